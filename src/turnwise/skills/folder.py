"""The folder of the library: `HOME/skills/<name>/SKILL.md`, read and written without ever leaving it.

No link is followed, no pipe is waited for, and no file is read further than a skill may be long. Beside the folder lies
`skills-written.json`: what turnwise itself last wrote there, by which an edit by hand is told from a write that was cut
off, and a folder that was deleted from one that was not made yet.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.errors import SkillError
from turnwise.files import exchange, sync_all, write_atomically, written_beside
from turnwise.skills.skill_file import FILE, MOST_BYTES, check_name

WRITTEN_INSIDE = ".written.json"
"""Where that lay before, within the folder."""
MOST_SKILLS = 1000
"""In a library."""


@dataclass(slots=True)
class FolderContent:
    """What lies in the folder: files by the names of their folders, and sentences about what is no skill."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


class SkillFolder:
    """The folder `path`, which is made when something is written into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = path.parent / f"{path.name}-written.json"

    def read(self) -> FolderContent:
        """Every skill's file. Raises SkillError where the folder itself cannot be used."""
        found = FolderContent()
        try:
            if not self._is_folder(self.path):
                return found
            names = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
        except OSError as e:
            raise SkillError(f"the skills in {self.path} cannot be read: {e.strerror}") from e
        if len(names) > MOST_SKILLS:
            raise SkillError(f"{self.path} has more than {MOST_SKILLS} entries; move some of them away")
        for name in names:
            try:
                content = self._file(name)
            except SkillError as e:
                found.faults[name] = str(e)
            except OSError as e:
                found.faults[name] = f"{self.path / name / FILE} cannot be read: {e.strerror}"
            else:
                if content is not None:
                    found.files[name] = content
        return found

    def seen(self) -> tuple[object, ...]:
        """What changes when a file of the library does: cheap to ask for, many times a minute."""
        marks: list[object] = []
        with contextlib.suppress(OSError):
            for folder in sorted(self.path.iterdir()):
                with contextlib.suppress(OSError):
                    found = os.lstat(folder / FILE)
                    marks.append((folder.name, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino))
        return tuple(marks)

    def put(self, name: str, content: bytes, over: bytes | None) -> None:
        """Write a skill's file, whole or not at all, in place of ``over`` (None: where there is none). What somebody
        wrote there at this very moment stays, and is what lies there then. Raises SkillError."""
        folder = self.path / check_name(name)
        try:
            for each in (self.path, folder):
                each.mkdir(mode=0o700, exist_ok=True)
                if not self._is_folder(each):
                    raise SkillError(f"{each} is not a folder; move it away")
            _sweep(folder)
            with written_beside(folder / FILE, content) as written:
                _put_over(written, folder / FILE, over)
        except OSError as e:
            raise SkillError(f"{folder / FILE} cannot be written: {e.strerror}") from e

    def take_out(self, name: str, lying: bytes) -> None:
        """Delete a skill's file, and its folder where nothing else lies in it. What somebody wrote there at this very
        moment, in place of what was ``lying`` there, stays. Raises SkillError."""
        folder = self.path / check_name(name)
        try:
            if self._is_folder(folder):
                _sweep(folder)
                _take_out(folder / FILE, lying)
                with contextlib.suppress(OSError):
                    folder.rmdir()
        except OSError as e:
            raise SkillError(f"{folder / FILE} cannot be deleted: {e.strerror}") from e

    def tidy(self) -> None:
        """Delete what a killed writer left in the skills' folders, and folders that were left for nothing else. Only
        for who is alone. A file that was moved aside to be deleted, and is not what was last written, goes back."""
        written = self.written()
        with contextlib.suppress(OSError):
            for leftover in self.path.glob(f"*/.{FILE}.*"):
                folder = leftover.parent
                if folder.is_symlink():
                    continue
                text = _lying(leftover) if len(leftover.name) == len(f".{FILE}.") + len(uuid.uuid4().hex) else None
                if text is not None and digest(text) != written.get(folder.name):
                    _name_anew(leftover, folder / FILE)
                leftover.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def written(self) -> dict[str, str]:
        """By name, the hash of what was last written or found here; nothing where that is not known."""
        place = self._written if self._written.exists() else self.path / WRITTEN_INSIDE
        try:
            said = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(said, dict):
            return {}
        return {name: value for name, value in said.items() if isinstance(value, str)}

    def note_written(self, hashes: dict[str, str]) -> None:
        """Remember what lies here now, once all of it is on disk."""
        try:
            if there := self._is_folder(self.path):
                sync_all(self.path)
            write_atomically(self._written, json.dumps(hashes, sort_keys=True).encode())
            if there:
                (self.path / WRITTEN_INSIDE).unlink(missing_ok=True)
        except OSError as e:
            raise SkillError(f"{self._written} cannot be written: {e.strerror}") from e

    def _file(self, name: str) -> bytes | None:
        """The file of a skill's folder; None where there is none. Raises SkillError and OSError."""
        folder = self.path / name
        mode = os.lstat(folder).st_mode
        if stat.S_ISLNK(mode):
            raise SkillError(f"{folder} is a link; put the folder itself there")
        if not stat.S_ISDIR(mode):
            return None
        content = read_skill_file(folder / FILE)
        if content is not None:
            check_name(name)
        return content

    def _is_folder(self, path: Path) -> bool:
        """Whether a folder is there. Raises SkillError where something else has its name."""
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise SkillError(f"{path} is a link or a file, not a folder; move it away")
        return True


def _put_over(written: Path, file: Path, over: bytes | None) -> None:
    """Give a written file its name where ``over`` lies, and leave what somebody else put there meanwhile.

    The two are exchanged, and what lay there is looked at only then: between a look and a write somebody could write.
    """
    if over is None:
        _name_anew(written, file)
        return
    expected, mine = over, _lying(written)
    try:
        while exchange(written, file):
            found = _lying(written)
            if found == expected:
                return
            expected, mine = mine, found  # somebody's: it goes back, unless there is a newer one by then
    except FileNotFoundError:
        return  # deleted by hand, and it stays so
    if _lying(file) == over:  # no exchange here: as near to it as can be
        written.replace(file)


def _take_out(file: Path, lying: bytes) -> None:
    """Delete a file where ``lying`` is still what lies there."""
    aside = file.with_name(f".{FILE}.{uuid.uuid4().hex}")
    try:
        file.rename(aside)
    except FileNotFoundError:
        return
    if _lying(aside) != lying:
        _name_anew(aside, file)
    aside.unlink(missing_ok=True)


def _name_anew(written: Path, file: Path) -> None:
    """Give a file a name that none has; where somebody took it meanwhile, theirs stays."""
    with contextlib.suppress(FileExistsError):
        try:
            os.link(written, file, follow_symlinks=False)
        except OSError as e:
            if e.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            with file.open("xb") as new:  # no second names here, as on exFAT
                new.write(written.read_bytes())
                new.flush()
                os.fsync(new.fileno())


def _lying(path: Path) -> bytes | None:
    """What a file says; None where it is no file that a skill may be."""
    with contextlib.suppress(SkillError):
        return read_skill_file(path)
    return None


def _sweep(folder: Path) -> None:
    """Delete what a killed writer left beside a skill's file."""
    for leftover in folder.glob(f".{FILE}.*"):
        leftover.unlink(missing_ok=True)


def read_skill_file(path: Path) -> bytes | None:
    """A regular file's content, at most a byte more than a skill may have; None where there is none.

    Raises SkillError for a link, a pipe or a device, and OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as e:
        if path.is_symlink():
            raise SkillError(f"{path} is a link; put the file itself there") from e
        raise
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SkillError(f"{path} is no regular file; put a text file there")
        return file.read(MOST_BYTES + 1)


def digest(content: bytes) -> str:
    """What a file is known again by."""
    return hashlib.sha256(content).hexdigest()
