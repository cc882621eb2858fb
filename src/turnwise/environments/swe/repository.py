"""A package's source distribution as files by their way: what of it an agent may change, and what are its tests.

Archives are read, never unpacked or built: no code of a package runs outside of the sandbox.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from turnwise.errors import DataError

MOST_FILES = 5000
MOST_BYTES = 32 << 20
"""Of all files of a distribution together."""
_LEFT_OUT = ("docs", "doc", "benchmark", "benchmarks", "examples", "build", "dist", "changelog.d")
"""Folders at the top that no test needs; some hold what was built of the sources."""
_NOTES = ("PKG-INFO", "AGENTS.md", "CLAUDE.md", "uv.lock")
"""Files at the top that name the package's place in the index, or tell other agents what to do."""
_KEPT = (".pytest.ini",)

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Repository:
    """A package's files. ``sources`` are the ways of the files that may be changed to mend it."""

    files: Files
    sources: tuple[str, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """The ways of the files in which pytest finds tests."""
        return tuple(way for way in sorted(self.files) if way.endswith(".py") and has_tests(way))


def is_source(way: str, tops: tuple[str, ...]) -> bool:
    """Whether a file belongs to what the package is made of (``tops``: its files and folders), and is no test."""
    inside = any(way == top or way.startswith(f"{top}/") for top in tops)
    return inside and way.endswith(".py") and not is_of_tests(way)


def is_of_tests(way: str) -> bool:
    """Whether a file has to do with tests, so that it is never taken from an agent."""
    *folders, name = PurePosixPath(way).parts
    return has_tests(way) or name == "conftest.py" or any(each in ("test", "tests") for each in folders)


def has_tests(way: str) -> bool:
    name = PurePosixPath(way).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def read_sdist(content: bytes, tops: tuple[str, ...]) -> Repository:
    """The plain files of a `.tar.gz`, by their way below its one folder. Raises DataError."""
    files: dict[str, bytes] = {}
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                way = "/".join(PurePosixPath(member.name).parts[1:])
                if not member.isfile() or not _is_wanted(way):
                    continue
                size += member.size
                if size > MOST_BYTES or len(files) >= MOST_FILES:
                    raise DataError(f"the distribution has more than {MOST_FILES} files or {MOST_BYTES >> 20} MB")
                read = archive.extractfile(member)
                files[way] = read.read() if read is not None else b""
    except (tarfile.TarError, OSError, EOFError) as e:
        raise DataError(f"the distribution is no archive that can be read: {str(e)[:100]}") from e
    sources = tuple(sorted(way for way in files if is_source(way, tops)))
    if not sources:
        raise DataError(f"the distribution has no sources at {', '.join(tops)}")
    return Repository(files, sources)


def _is_wanted(way: str) -> bool:
    parts = PurePosixPath(way).parts
    if not parts or ".." in parts or way.startswith("/"):
        return False
    top = parts[0]
    if top in _KEPT:
        return True
    return not (top in _LEFT_OUT or top in _NOTES or top.endswith(".egg-info") or any(p.startswith(".") for p in parts))
