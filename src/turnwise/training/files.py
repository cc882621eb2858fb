"""Durable directories: written beside their place, synced to disk, renamed into it. None is ever half there."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target``; on a clean exit it is on disk under that name, or not there at all.

    A folder that already has the name is moved away in the same breath and then deleted.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    work.mkdir()
    try:
        yield work
        for file in work.iterdir():
            _sync(file)
        _sync(work)
        old = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
        if target.exists():
            target.rename(old)
        work.rename(target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def sweep(folder: Path) -> None:
    """Delete what a killed writer left in ``folder``. Only for the one process that writes there."""
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
