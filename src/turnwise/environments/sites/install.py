"""Where the sites are installed: an environment of their own in the cache folder, and the data that each begins with.

Nothing of them is imported by turnwise. The data is made once, by the site's own code, and copied for each instance.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from turnwise.config import cache_dir
from turnwise.environments.sites.table import SITES, Site
from turnwise.errors import DataError
from turnwise.files import put_in_place, sync_all

INSIDE = Path(__file__).parent / "inside"
PROGRAM = INSIDE / "keeper.py"
PINS = INSIDE / "requirements.txt"
INSTALL_S = 900.0
"""Longest wait for the packages, or for another process that installs them."""
MAKE_S = 300.0
"""Longest wait for the data of a site to be made."""
MISSING = "the sites are not installed here; install them: make sites (300 MB in the cache folder)"


def interpreter() -> Path:
    """The Python of the sites' environment. Raises DataError where there is none."""
    if not (_environment() / ".installed").is_file():
        raise DataError(MISSING)
    return _environment() / "bin" / "python"


def install(say: Callable[[str], None] = print) -> None:
    """Make the environment from its pins, and the data of every site. Raises DataError."""
    place = _environment()
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{place}.lock", timeout=INSTALL_S):
            if not (place / ".installed").is_file():
                say(f"installing {', '.join(site.software for site in SITES.values())} into {place}")
                _run([sys.executable, "-P", "-m", "venv", "--clear", str(place)], INSTALL_S)
                pip = [
                    str(place / "bin" / "python"),
                    "-P",
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ]
                _run([*pip, "--no-deps", "-r", str(PINS)], INSTALL_S)
                (place / ".installed").touch()
    except Timeout:
        raise DataError(f"another process holds {place}.lock; wait for it or stop it") from None
    except OSError as e:
        raise DataError(f"cannot write to {place.parent}: {e}; free space or set TURNWISE_CACHE") from e
    for site in SITES.values():
        seed_of(site)


def seed_of(site: Site) -> Path:
    """The folder with the data that a site begins with; it is made where it is not there yet. Raises DataError."""
    folder = cache_dir() / "sites" / "data" / f"{site.name}-{_digest(site.name)}"
    if folder.is_dir():
        return folder
    python = interpreter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=MAKE_S):
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
                    new = Path(scratch) / site.name
                    _run([str(python), "-I", "-B", str(PROGRAM), "make", site.name, str(new)], MAKE_S)
                    sync_all(new)
                    put_in_place(new, folder)
    except Timeout:
        raise DataError(f"another process holds {folder}.lock; wait for it or stop it") from None
    return folder


def database_of(site: Site) -> Path:
    """The database that a site begins with. Raises DataError."""
    return seed_of(site) / site.database


def surroundings() -> dict[str, str]:
    """The variables that a site's programs are given."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def _run(command: Sequence[str], within_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, env=_asking(), check=False)
    except subprocess.TimeoutExpired:
        raise DataError(f"{Path(command[0]).name} took longer than {within_s:g} s; try again") from None
    if done.returncode:
        said = " | ".join(done.stderr.strip().splitlines()[-3:])[-400:]
        raise DataError(f"the sites cannot be installed: {said}")


def _asking() -> dict[str, str]:
    """What pip may need beside: where its index is, and a proxy."""
    kept = ("HOME", "http_proxy", "https_proxy", "no_proxy", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    found = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in kept}
    return surroundings() | found


def _environment() -> Path:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return cache_dir() / "sites" / f"environment-{version}-{_short(PINS.read_bytes())}"


@cache
def _digest(name: str) -> str:
    """Of everything that the data is made by."""
    return _short(PINS.read_bytes() + (INSIDE / f"{name}.py").read_bytes())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
