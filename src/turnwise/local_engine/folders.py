"""Which folders adapters may come from: those below one that is given at the start, and no link leads out of it.

An adapter decides what is answered, so whoever can name a folder of theirs decides it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from turnwise.errors import AdapterError, EngineError


def adapter_folder(path: str, root: Path | None) -> Path:
    """The folder of an adapter with all links followed, below `root`.

    Raises EngineError: 403 where no root was given, 400 for a path that is not plainly below it, 404 for none there.
    """
    if root is None:
        raise EngineError("no adapters are loaded here; start the engine with --adapters-dir, their folder", 403)
    asked = Path(path)
    if "\0" in path or not asked.is_absolute() or ".." in asked.parts:
        raise EngineError("lora_path: give the whole path of a folder, without '..'", 400)
    try:
        top, real = root.resolve(strict=True), asked.resolve(strict=True)
    except FileNotFoundError:
        raise EngineError(f"no adapter folder at {path}", 404) from None
    except (OSError, RuntimeError) as e:
        raise EngineError(f"lora_path: {path} cannot be followed: {e}", 400) from e
    if top not in real.parents:
        raise EngineError(f"lora_path: {path} is not in {root}, the only place that adapters are loaded from", 400)
    if not real.is_dir():
        raise EngineError(f"no adapter folder at {path}", 404)
    return real


def read_files(folder: Path, names: tuple[str, ...]) -> list[bytes]:
    """The contents of files of a folder, none of which may be a link or anything but a plain file.

    Raises AdapterError.
    """
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        raise AdapterError(f"the adapter folder {folder} cannot be opened: {e.strerror}") from e
    try:
        return [_read(at, folder, name) for name in names]
    finally:
        os.close(at)


def _read(at: int, folder: Path, name: str) -> bytes:
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer for ever.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        raise AdapterError(f"{folder} is not a PEFT adapter: {name} is missing") from None
    except OSError as e:
        raise AdapterError(f"{folder / name} cannot be opened: {e.strerror}; it must be a plain file, no link") from e
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AdapterError(f"{folder / name} is no plain file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read()
        except OSError as e:
            raise AdapterError(f"the adapter in {folder} cannot be read: {e}") from e
