"""The packages that tasks are made from, and the pytest that judges them: pinned, fetched once, kept in the cache."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from turnwise.config import cache_dir
from turnwise.environments.swe.repository import Repository, read_sdist
from turnwise.errors import DataError
from turnwise.files import put_in_place, sync_all

TABLE = Path(__file__).with_name("packages.json")
FETCH_S = 300.0
"""Longest wait for one distribution, or for another process that fetches."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A package by the exact file of its sources. ``sources``: what of it is the package; ``path``: where it is
    imported from."""

    name: str
    version: str
    file: str
    sha256: str
    sources: tuple[str, ...]
    path: str

    @property
    def modules(self) -> tuple[str, ...]:
        """The names under which it is imported."""
        return tuple(top.rsplit("/", 1)[-1].removesuffix(".py") for top in self.sources)


@cache
def packages() -> Mapping[str, Pinned]:
    """The table, by name."""
    raw = json.loads(TABLE.read_text(encoding="utf-8"))["packages"]
    return {name: Pinned(name=name, **{**each, "sources": tuple(each["sources"])}) for name, each in raw.items()}


def package_named(name: object) -> Pinned:
    """Raises DataError for one that is not in the table."""
    found = packages().get(name) if isinstance(name, str) else None
    if found is None:
        raise DataError(f"there is no package {name!r} to make tasks of, only {', '.join(packages())}")
    return found


def fetch(names: list[str], say: Callable[[str], None] = lambda said: None) -> None:
    """Bring these packages and pytest into the cache. Raises DataError where the index gives another file."""
    place = _place()
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place / ".fetch.lock", timeout=FETCH_S):
            for name in names:
                package = package_named(name)
                if not _is_here(place / package.file, package.sha256):
                    say(f"fetching the sources of {name} {package.version}")
                    # The hash is checked before the package's own build is asked for its name and version.
                    asked = ["--no-binary", name, "--require-hashes", "-r"]
                    _download(place, asked, {f"{name}=={package.version}": package.sha256}, [package.file])
            if not pytest_folder().is_dir():
                say("fetching pytest for the sandbox")
                _fetch_pytest(place)
    except Timeout:
        raise DataError(f"another process holds {place / '.fetch.lock'}; wait for it or stop it") from None
    except OSError as e:
        raise DataError(f"cannot write to {place}: {e}; free space or set TURNWISE_CACHE") from e


def read_package(package: Pinned) -> Repository:
    """The files of a fetched package. Raises DataError where it was not fetched."""
    try:
        content = (_place() / package.file).read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise DataError(
            f"the sources of {package.name} are not in the cache; `turnwise tasks swe build --packages {package.name}` "
            "fetches them"
        )
    return read_sdist(content, package.sources)


def pytest_folder() -> Path:
    """Where the pytest of the sandbox lies, once it was fetched."""
    digest = hashlib.sha256(json.dumps(_wheels(), sort_keys=True).encode()).hexdigest()[:12]
    return _place() / f"pytest-{digest}"


def _place() -> Path:
    return cache_dir() / "swe"


def _wheels() -> Mapping[str, str]:
    """The wheels of pytest and what it needs, with their hashes."""
    return {each["file"]: each["sha256"] for each in json.loads(TABLE.read_text(encoding="utf-8"))["pytest"]}


def _is_here(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _fetch_pytest(place: Path) -> None:
    wheels = _wheels()
    parts = {file: file.split("-") for file in wheels}
    pins = {f"{name}=={version}": wheels[file] for file, (name, version, *_) in parts.items()}
    _download(place, ["--only-binary", ":all:", "--require-hashes", "-r"], pins, list(wheels))
    with tempfile.TemporaryDirectory(dir=place, prefix=".new-") as scratch:
        new = Path(scratch) / "pytest"
        for file in wheels:
            with zipfile.ZipFile(place / file) as wheel:  # a wheel of pure Python is run as it is unpacked
                wheel.extractall(new)
        # Most of a short run of tests would be the compiling of pytest; a Python of another version does without these.
        compiled = ["-P", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(new)]
        subprocess.run([sys.executable, *compiled], capture_output=True, timeout=FETCH_S, check=False)
        sync_all(new)
        put_in_place(new, pytest_folder())


def _download(place: Path, asked: list[str], pins: Mapping[str, str], files: list[str]) -> None:
    """Fetch pinned distributions with pip, and give them their names in the cache with the right hash alone."""
    with tempfile.TemporaryDirectory(dir=place, prefix=".new-") as scratch:
        listed = Path(scratch) / "pinned.txt"
        listed.write_text("".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in pins.items()))
        pip = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
        command = [*pip, "--no-deps", "--no-cache-dir", "-d", scratch, *asked, str(listed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            raise DataError(f"{', '.join(pins)} did not come within {FETCH_S:.0f} s; try again") from None
        for file, digest in zip(files, pins.values(), strict=True):
            fetched = Path(scratch) / file
            if not _is_here(fetched, digest):
                said = " | ".join(done.stderr.strip().splitlines()[-2:])[-300:]
                raise DataError(f"the package index does not give {file} as it was pinned: {said or 'another file'}")
            fetched.replace(place / file)
