"""A folder that somebody else fills, read and written from outside: no link is followed, and nothing is waited for.

Whoever fills it may put links to our files there, pipes that never give a byte, files of any size, and folders without
end. Every part of a way is opened by itself below the one before it and must be a plain folder, the last a plain file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from turnwise.errors import FolderFault, SandboxError

MOST_PARTS = 16
MOST_DEPTH = 64
"""Folders in each other; the limit of what is counted, far above that of ways."""
MOST_OF_A_WAY = 512
"""Characters."""
MOST_NAMES = 4096
"""Entries of a folder that are looked at."""
MOST_BYTES = 2 << 20
"""Of a file that is read, unless the caller says another number."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class GuestFolder:
    """A folder whose content is somebody else's. Ways are relative to it, with `/` between their parts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, way: str, most: int = MOST_BYTES) -> bytes:
        """The whole content of a plain file. Raises FolderFault, also where it is larger than ``most`` bytes."""
        *folders, name = _parts(way)
        with self._opened(folders, way) as folder, _told(way), _plain_file(folder, name, os.O_RDONLY, way) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise FolderFault(f"{way} is larger than {most} bytes")
        return content

    def write(self, way: str, content: bytes) -> None:
        """Make or replace a plain file and the folders that lead to it. Raises FolderFault."""
        *folders, name = _parts(way)
        kind = os.O_WRONLY | os.O_CREAT
        with self._opened(folders, way, make=True) as folder, _told(way), _plain_file(folder, name, kind, way) as file:
            file.truncate(0)
            file.write(content)

    def names(self, way: str = "") -> list[str]:
        """The plain files of one folder, sorted; none where there is no such folder. Raises FolderFault."""
        return self._entries(way, folders=False)

    def folders(self, way: str = "") -> list[str]:
        """The folders in one folder, sorted; none where there is no such folder. Raises FolderFault."""
        return self._entries(way, folders=True)

    def status(self, way: str) -> os.stat_result:
        """What the system says of what stands there, be it a link or a folder. FileNotFoundError where nothing does."""
        *folders, name = _parts(way)
        with self._opened(folders, way) as folder, _told(way):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def target(self, way: str) -> str:
        """Where a symbolic link points, which is not looked at. Raises FolderFault where it is none."""
        *folders, name = _parts(way)
        with self._opened(folders, way) as folder, _told(way):
            return os.readlink(name, dir_fd=folder)

    def _entries(self, way: str, folders: bool) -> list[str]:
        """The names of one kind in one folder."""
        found: list[str] = []
        try:
            with self._opened(_parts(way) if way.strip("/.") else [], way) as folder, os.scandir(folder) as entries:
                for seen, entry in enumerate(entries):
                    if seen >= MOST_NAMES:
                        raise FolderFault(f"there are more than {MOST_NAMES} entries in {way or 'the folder'}")
                    if entry.is_dir(follow_symlinks=False) if folders else entry.is_file(follow_symlinks=False):
                        found.append(entry.name)
        except FileNotFoundError:
            return []
        return sorted(found)

    def has(self, way: str) -> bool:
        """Whether there is a plain file."""
        *folders, name = _parts(way)
        with contextlib.suppress(FolderFault, FileNotFoundError), self._opened(folders, way) as folder:
            return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        return False

    def weigh(self, most_entries: int) -> tuple[int, int]:
        """Bytes on disk and entries, all folders together. Counting ends with ``most_entries``, which is also what is
        said of folders that stand too deep in each other."""
        found = _Weight(most_entries)
        with contextlib.suppress(OSError):
            try:
                at = os.open(self.path, _FOLDER)
            except PermissionError:  # what nobody can look into could hold anything
                return 0, most_entries
            try:
                found.add(at, 0)
            finally:
                os.close(at)
        return found.weight, min(found.entries, most_entries)

    @contextlib.contextmanager
    def _opened(self, folders: list[str], way: str, make: bool = False) -> Iterator[int]:
        """The descriptor of a folder inside; FileNotFoundError where there is none, FolderFault for another fault."""
        with contextlib.ExitStack() as open_ones:
            try:
                at = os.open(self.path, _FOLDER)
                open_ones.callback(os.close, at)
                for part in folders:
                    if make:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(part, dir_fd=at)
                    at = os.open(part, _FOLDER, dir_fd=at)
                    open_ones.callback(os.close, at)
            except FileNotFoundError:
                raise
            except OSError as e:
                raise FolderFault(f"{way}: a part of it is no plain folder ({e.strerror})") from None
            yield at


@dataclass(slots=True)
class _Weight:
    """What lies in a folder, added up from folder to folder."""

    most_entries: int
    weight: int = 0
    entries: int = 0

    def add(self, folder: int, depth: int) -> None:
        if depth > MOST_DEPTH:
            self.entries = self.most_entries
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.entries >= self.most_entries:
                    return
                self.entries += 1
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    self.weight += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        self._below(folder, entry.name, depth)

    def _below(self, folder: int, name: str, depth: int) -> None:
        try:
            at = os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:  # what nobody can look into could hold anything
            self.entries = self.most_entries
            return
        try:
            self.add(at, depth + 1)
        finally:
            os.close(at)


def delete_folder(path: Path) -> None:
    """Delete a folder however deep it is; Python's own way ends at about a thousand folders in each other."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    program = shutil.which("rm")
    if program is None:
        shutil.rmtree(path)
        return
    where = str(path.absolute())
    done = subprocess.run([program, "-rf", "--", where], timeout=600, capture_output=True, check=False)
    if done.returncode and (mode := shutil.which("chmod")) is not None:  # a guest took away its owner's own rights
        subprocess.run([mode, "-R", "u+rwX", "--", where], timeout=600, capture_output=True, check=False)
        done = subprocess.run([program, "-rf", "--", where], timeout=600, capture_output=True, check=False)
    if done.returncode:
        raise SandboxError(f"{where} cannot be deleted: {done.stderr.decode(errors='replace')[:200].strip()}")


def _parts(way: str) -> list[str]:
    """The parts of a way. Raises FolderFault for one that leads elsewhere or is no way."""
    if "\0" in way or len(way) > MOST_OF_A_WAY:
        raise FolderFault(f"a way has at most {MOST_OF_A_WAY} characters, and no NUL")
    parts = [part for part in way.split("/") if part not in ("", ".")]
    if way.startswith("/") or ".." in parts:
        raise FolderFault(f"{way} leads out of the folder; give a way below it, as day01/report.json")
    if not parts or len(parts) > MOST_PARTS:
        raise FolderFault(f"{way or 'an empty way'} names no file; a way has 1 to {MOST_PARTS} parts")
    return parts


@contextlib.contextmanager
def _plain_file(folder: int, name: str, kind: int, way: str) -> Iterator[IO[bytes]]:
    """A file of an opened folder, opened without a wait. Raises FolderFault where it is no plain one."""
    descriptor = os.open(name, kind | _FILE, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "wb" if kind & os.O_WRONLY else "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FolderFault(f"{way} is no plain file")
        yield file


@contextlib.contextmanager
def _told(way: str) -> Iterator[None]:
    """What the system says about a file, as FolderFault; FileNotFoundError stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, UnicodeEncodeError) as e:
        said = e.strerror if isinstance(e, OSError) and e.strerror else "its name cannot be encoded"
        raise FolderFault(f"{way}: {said}") from None
