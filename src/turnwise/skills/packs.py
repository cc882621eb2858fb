"""Skills from elsewhere and to elsewhere: a file, a folder of skills, or an archive (`.zip`, `.tar`, `.tar.gz`).

An archive is read and never unpacked: of each member whose last name is `SKILL.md` the text is taken, and its place in
the library follows from the name that it says, so that no path of an archive means anything here.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from turnwise.errors import SkillError
from turnwise.files import write_atomically
from turnwise.skills.folder import MOST_SKILLS, SkillFolder, read_skill_file
from turnwise.skills.skill_file import FILE, MOST_BYTES, parse
from turnwise.types import Skill

MOST_UNPACKED = 64 << 20
"""Bytes of an archive that are looked through."""
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


def read_skill(path: Path) -> Skill:
    """The skill of a file, or of a folder with a SKILL.md in it. Raises SkillError."""
    file = path / FILE if path.is_dir() else path
    try:
        content = read_skill_file(file)
    except OSError as e:
        raise SkillError(f"{file} cannot be read: {e.strerror}") from e
    if content is None:
        raise SkillError(f"there is no file {file}")
    return parse(content, str(file))


def read_pack(path: Path) -> list[Skill]:
    """All skills of a folder or an archive. Raises SkillError for one that is wrong: then none is taken."""
    if path.is_dir():
        if (path / FILE).exists():
            return [read_skill(path)]
        found = SkillFolder(path).read()
        for fault in found.faults.values():
            raise SkillError(fault)
        texts = [(str(path / name / FILE), content) for name, content in found.files.items()]
    elif not path.exists():
        raise SkillError(f"there is no file {path}")
    elif path.suffix == ".md":
        raise SkillError(f"{path} is a single file; `turnwise skills add` takes one")
    else:
        texts = list(_members(path))
    if not texts:
        raise SkillError(f"there is no {FILE} in {path}; a skill is a folder with one in it")
    if len(texts) > MOST_SKILLS:
        raise SkillError(f"{path} has more than {MOST_SKILLS} skills")
    skills: dict[str, Skill] = {}
    for where, content in texts:
        skill = parse(content, where)
        if skill.name in skills:
            raise SkillError(f"{where}: a skill {skill.name!r} is in {path} already; give one of them another name")
        skills[skill.name] = skill
    return list(skills.values())


def write_pack(path: Path, skills: Sequence[Skill]) -> None:
    """Write skills into a new archive. Raises SkillError."""
    if path.suffix != ".zip":
        raise SkillError(f"{path} must end with .zip")
    if path.exists():
        raise SkillError(f"{path} exists; name another file or move it away")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for skill in skills:
            archive.writestr(zipfile.ZipInfo(f"{skill.name}/{FILE}"), skill.content, zipfile.ZIP_DEFLATED)
    try:
        write_atomically(path.absolute(), packed.getvalue())
    except OSError as e:
        raise SkillError(f"{path} cannot be written: {e.strerror}") from e


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The skills' files in an archive, each with where it stands. Raises SkillError."""
    try:
        if zipfile.is_zipfile(path):
            yield from _in_zip(path)
        else:
            yield from _in_tar(path)
    except _BROKEN as e:
        said = e.strerror if isinstance(e, OSError) and e.strerror else str(e) or type(e).__name__
        raise SkillError(f"{path} cannot be read as a .zip, .tar or .tar.gz: {said}") from e


def _in_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            regular = (member.external_attr >> 28) in (0, 8)  # the file's kind, where the archive says it
            if _is_skill(path, member.filename, regular or member.is_dir()):
                with archive.open(member) as file:
                    yield f"{path}: {member.filename}", file.read(MOST_BYTES + 1)


def _in_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        source = _Bounded(cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if zipped else raw, path)
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                if _is_skill(path, member.name, member.isreg() or member.isdir()):
                    file = archive.extractfile(member)
                    yield f"{path}: {member.name}", file.read(MOST_BYTES + 1) if file else b""


def _is_skill(path: Path, member: str, plain: bool) -> bool:
    """Whether a member of an archive is a skill's file. Raises SkillError for one that has no business in a library."""
    name = PurePosixPath(member.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or "\0" in member or ":" in "".join(name.parts[:1]):
        raise SkillError(f"{path} has a member {member[:200]!r}, which leads out of its folder; it is not imported")
    if not plain:
        raise SkillError(f"{path} has a member {member[:200]!r} that is a link or a device; it is not imported")
    return name.name == FILE


class _Bounded(io.RawIOBase):
    """A stream of which only so much is unpacked."""

    def __init__(self, source: IO[bytes], path: Path) -> None:
        self._source, self._path, self._left = source, path, MOST_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # tarfile asks for blocks
        found = self._source.read(size if 0 <= size < MOST_UNPACKED else MOST_UNPACKED)
        self._left -= len(found)
        if self._left < 0:
            raise SkillError(f"{self._path} unpacks to more than {MOST_UNPACKED >> 20} MB; that is no pack of skills")
        return found
