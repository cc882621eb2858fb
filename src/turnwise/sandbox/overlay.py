"""A root folder of an episode's own: the machine's programs below, and above them whatever who is inside writes.

Each folder of the machine that is shown is the lower layer of an overlay, so that it can be changed inside and stays as
it is outside. What was written lies in one folder, `layers`, where it is counted. Only root may mount overlays.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from functools import cache
from pathlib import Path

from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import PLACES
from turnwise.sandbox.folder import delete_folder
from turnwise.sandbox.leftovers import mounts_below, named

LAYERED = ("/usr", "/etc/alternatives", "/etc/ssl/certs", "/etc/dpkg", "/var/lib/dpkg")
"""Folders of the machine that are seen inside. Its other files are not: they may be somebody's own, as the keys in
`/etc/ssl/private` are. Root inside is root to the kernel, and reads whatever root may that stands there."""
COPIED = (
    "ld.so.cache",
    "ld.so.conf",
    "os-release",
    "nsswitch.conf",
    "services",
    "protocols",
    "login.defs",
    "shells",
    "ssl/openssl.cnf",
)
"""Files of `/etc` that tell nothing of anybody."""
MADE = ("etc", "home", "root", "opt", "srv", "run", "mnt", "media", "box", "proc", "dev", "tmp", "var/tmp", "var/log")
_NOSUID, _NODEV, _DETACH = 2, 4, 2


def lay_root(place: Path) -> Path:
    """Mount a root in ``place``, and give its folder. Raises SandboxError."""
    base, root = place / "base", place / "root"
    try:
        root.mkdir()
        for name in MADE:
            (base / name).mkdir(parents=True)
        for name in COPIED:
            with contextlib.suppress(FileNotFoundError):
                (base / "etc" / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(Path("/etc") / name, base / "etc" / name)
        for name in PLACES:
            at = Path("/") / name
            if at.is_symlink():
                (base / name).symlink_to(f"usr/{name}")
        shown = [*LAYERED, *(f"/{name}" for name in PLACES if _is_real_folder(Path("/") / name))]
        shown = [each for each in shown if Path(each).is_dir()]
        for each in shown:
            (base / each[1:]).mkdir(parents=True, exist_ok=True)
        for name in ("passwd", "group"):
            shutil.copyfile(place / "etc" / name, base / "etc" / name)
        _mount(place, "root", base, root)
        for each in shown:
            _mount(place, each[1:].replace("/", "-"), Path(each), root / each[1:])
    except OSError as e:
        take_down(place)
        raise SandboxError(f"no root for the sandbox can be laid: {e}") from e
    return root


def take_down(place: Path) -> None:
    """Unmount all that is mounted below a folder. Raises SandboxError where something stays."""
    for _ in range(3):
        for mounted in mounts_below(place):
            _libc().umount2(os.fsencode(mounted), _DETACH)
    if left := mounts_below(place):
        raise SandboxError(f"{left[0]} cannot be unmounted; do it by hand: umount -l {left[0]}")


@cache
def can_lay_roots(folder: Path) -> bool:
    """Whether overlays can be mounted whose upper layers lie in this folder. Tried once."""
    if os.geteuid() != 0:
        return False
    place = folder / named()
    try:
        (place / "etc").mkdir(parents=True)
        for name in ("passwd", "group"):
            (place / "etc" / name).touch()
        lay_root(place)
        take_down(place)
    except (OSError, SandboxError):
        return False
    finally:
        with contextlib.suppress(OSError, SandboxError):
            delete_folder(place)
    return True


def _mount(place: Path, name: str, lower: Path, at: Path) -> None:
    upper, work = place / "layers" / name, place / "work" / name
    upper.mkdir(parents=True)
    work.mkdir(parents=True)
    layers = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = ",".join(f"{key}={_escaped(path)}" for key, path in layers.items())
    arguments = (b"overlay", os.fsencode(at), b"overlay", _NOSUID | _NODEV, os.fsencode(options))
    if _libc().mount(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(at))


def _escaped(path: Path) -> str:
    """As the options of a mount have it."""
    return "".join(f"\\{sign}" if sign in ":,\\" else sign for sign in str(path.absolute()))


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
    return libc
