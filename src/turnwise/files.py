"""Durable directories and files: written beside their place, synced, renamed into it. None is ever half there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from turnwise.errors import ConfigError, DiskFull

NO_ROOM = 1 << 20
"""Bytes. torch says only that a write stopped; with less than this left it was for want of room."""
_BLOCK = 1 << 16
"""Bytes that are read at a time from the end of a file."""


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target``, under a name of its own. It is gone at the exit unless it was moved.

    Nobody reads it there. ``sync_all`` and ``put_in_place`` make it what ``target`` names. Raises DiskFull.
    """
    work = _beside(target)
    try:
        with told_when_full(target.parent):
            work.mkdir(parents=True)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def told_when_full(folder: Path) -> Iterator[None]:
    """Raises DiskFull in place of whatever a write in the folder failed with for want of room."""
    try:
        yield
    except Exception as e:
        if _is_want_of_room(e, folder):
            text = f"the disk of {folder} is full; free some space, and training goes on where it was"
            raise DiskFull(text) from e
        raise


def _is_want_of_room(error: Exception, folder: Path) -> bool:
    """Whether a write failed because the disk is full. torch and safetensors say so in words of their own."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, SafetensorError):
        return f"os error {errno.ENOSPC}" in str(error) or f"os error {errno.EDQUOT}" in str(error)
    return isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < NO_ROOM


def sync_all(work: Path) -> None:
    """Wait until a staged folder is on disk."""
    for file in work.iterdir():
        _sync(file)
    _sync(work)


def put_in_place(work: Path, target: Path) -> None:
    """Give a staged folder its name, in one step. A folder that has the name already is moved away and then deleted."""
    old = _beside(target)
    if target.exists():
        target.rename(old)
    work.rename(target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target``; on a clean exit it is on disk under that name, or not there at all."""
    with staged(target) as work:
        yield work
        sync_all(work)
        put_in_place(work, target)


def sweep(folder: Path) -> None:
    """Delete what a killed writer left in ``folder``. Only for the one process that writes there."""
    for leftover in folder.glob(".*.tmp"):
        remove(leftover)


def remove(path: Path) -> None:
    """Delete a folder. It loses its name first, so that a writer who still lives cannot put half of it in place."""
    nameless = _beside(path)
    with contextlib.suppress(FileNotFoundError):
        path.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """The whole content with this mode, durable, or the file as it was. No reader sees a half of it or a wider mode."""
    with written_beside(path, content, mode) as written:
        written.replace(path)
        _sync(path.parent)


def ready_for_lines(path: Path) -> None:
    """Make sure that JSON lines can be added to a file, whether it is there yet or not.

    A last line that a killed writer did not finish is cut off; one that lacks its line end alone is given it. Raises
    ConfigError where the file cannot be written, or ends in something else.
    """
    try:
        if not path.exists():
            tempfile.TemporaryFile(dir=path.resolve().parent).close()
        elif path.is_file() or path.is_dir():  # of a pipe or a terminal there is nothing to look at
            with path.open("a+b") as file:
                _end_last_line(file, path)
    except OSError as e:
        why = e.strerror or str(e)
        raise ConfigError(f"{path} cannot be written ({why}); make its folder, or name another file") from None


def _end_last_line(file: BinaryIO, path: Path) -> None:
    begins = _begin_of_last_line(file)
    if begins is None:
        return
    file.seek(begins)
    last = file.read()
    if last.strip()[:1] not in (b"", b"{"):
        raise ConfigError(f"{path} ends in what is no line of JSON; name another file")
    if _is_json(last):
        file.write(b"\n")
    else:
        file.truncate(begins)


def _begin_of_last_line(file: BinaryIO) -> int | None:
    """Where the last line of a file begins that has no line end; None where every line has one."""
    end = place = file.seek(0, os.SEEK_END)
    while place > 0:
        before, place = place, max(0, place - _BLOCK)
        file.seek(place)
        if (at := file.read(before - place).rfind(b"\n")) >= 0:
            return None if place + at + 1 == end else place + at + 1
    return 0 if end else None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@contextlib.contextmanager
def written_beside(path: Path, content: bytes, mode: int = 0o600) -> Iterator[Path]:
    """Yield a durable file with this content beside ``path``; it is gone at the exit unless it was moved."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def exchange(one: Path, other: Path) -> bool:
    """Give two files each other's names in one step, so that none is ever missing or lost; False where the system or
    the file system cannot. Raises OSError where one of them is not there."""
    name, *arguments = _EXCHANGE.get(sys.platform, ("",))
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    if call is None:
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    done = call(_HERE, paths[0], _HERE, paths[1], _SWAP) if arguments else call(*paths, _SWAP)
    if done == 0:
        _sync(one.parent)
        return True
    error = ctypes.get_errno()
    if error in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(error, os.strerror(error), str(one))


_EXCHANGE: dict[str, tuple[str, ...]] = {"linux": ("renameat2", "at"), "darwin": ("renamex_np",)}
"""The call of the C library by system; the first takes a folder before each path."""
_HERE, _SWAP = -100, 2
"""AT_FDCWD, and RENAME_EXCHANGE, which is RENAME_SWAP."""


def _beside(target: Path) -> Path:
    return target.parent / f".{target.name.strip('.').split('.')[0]}.{uuid.uuid4().hex}.tmp"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
