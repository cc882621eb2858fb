"""What a server sends as an adapter: read as a stranger's, checked against the model, and written anew."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.hosted.stand_in import archive_of, tar_of
from tests.training.tiny import train_config
from turnwise.errors import AdapterError
from turnwise.local_engine.model.adapters import read_adapter
from turnwise.training.hosted.adapter import HostedWeights, linear_shapes, read_archive
from turnwise.training.policy import Policy
from turnwise.training.weights.files import load_version_dir

CONFIG = train_config(lora_alpha=32)


@pytest.fixture(scope="module")
def sound(tiny_dir: Path) -> dict[str, Tensor]:
    return Policy(tiny_dir, CONFIG).state()


def read(tmp_path: Path, model: Path, content: bytes) -> dict[str, Tensor]:
    archive = tmp_path / "adapter.tar.gz"
    archive.write_bytes(content)
    return read_archive(archive, linear_shapes(model), CONFIG)


def test_a_sound_one_is_read_and_serves_in_the_local_engine(
    tmp_path: Path, tiny_dir: Path, sound: dict[str, Tensor]
) -> None:
    state = read(tmp_path, tiny_dir, archive_of({n: t.bfloat16() for n, t in sound.items()}, 4, 32.0))
    assert state.keys() == sound.keys()
    assert all(t.dtype == torch.float32 for t in state.values())
    folder = tmp_path / "v1"
    folder.mkdir()
    HostedWeights(tiny_dir, 4, 32.0).write(state, folder)
    assert load_version_dir(folder).settings["target_modules"][0] == "down_proj"
    shapes = {f"{name}.weight": shape for name, shape in linear_shapes(tiny_dir).items()}
    assert read_adapter("v1", folder, shapes).scale == 8.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 8}, "r = 8, the configuration says train.lora_rank = 4"),
        ({"alpha": 16.0}, "lora_alpha = 16.0, the configuration says train.lora_alpha = 32"),
        ({"peft_type": "VERA"}, "no LoRA adapter"),
    ],
)
def test_another_kind_rank_or_scale_is_refused(
    tmp_path: Path, tiny_dir: Path, sound: dict[str, Tensor], changed: dict, said: str
) -> None:
    with pytest.raises(AdapterError, match=said):
        read(tmp_path, tiny_dir, archive_of(sound, **({"rank": 4, "alpha": 32.0} | changed)))


def _without_one(state: dict[str, Tensor]) -> None:
    del state["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"]


def _not_finite(state: dict[str, Tensor]) -> None:
    state["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"][0, 0] = float("inf")


def _of_another_layer(state: dict[str, Tensor]) -> None:
    state["base_model.model.model.layers.7.mlp.up_proj.lora_B.weight"] = torch.zeros(48, 4)


def _of_another_width(state: dict[str, Tensor]) -> None:
    state["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"] = torch.zeros(47, 4)


def _of_the_vocabulary(state: dict[str, Tensor]) -> None:
    state["base_model.model.model.embed_tokens.lora_A.weight"] = torch.zeros(4, 32)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_one, "no complete pairs"),
        (_not_finite, "not finite"),
        (_of_another_layer, "no projection of this model"),
        (_of_another_width, "does not fit this model"),
        (_of_the_vocabulary, "no projection of this model"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    tmp_path: Path, tiny_dir: Path, sound: dict[str, Tensor], damage, said: str
) -> None:
    state = {name: tensor.clone() for name, tensor in sound.items()}
    damage(state)
    with pytest.raises(AdapterError, match=said):
        read(tmp_path, tiny_dir, archive_of(state, 4, 32.0))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (b"no archive at all", "damaged"),
        (tar_of({"adapter_config.json": b"{}"}), "has no adapter_model.safetensors"),
        (tar_of({"a/adapter_config.json": b"{}", "b/adapter_config.json": b"{}"}), "twice"),
        (tar_of({"adapter_config.json": b"{" * 9, "adapter_model.safetensors": b"x"}), "cannot be read"),
        (tar_of({"adapter_config.json": b" " * (2 << 20), "adapter_model.safetensors": b"x"}), "larger than any"),
    ],
    ids=["empty", "text", "without weights", "a file twice", "torn", "too large"],
)
def test_what_is_no_such_archive_is_refused(tmp_path: Path, tiny_dir: Path, content: bytes, said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        read(tmp_path, tiny_dir, content)


def test_links_in_it_are_left_alone(tmp_path: Path, tiny_dir: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(AdapterError, match=r"has no adapter_config\.json"):
        read(tmp_path, tiny_dir, buffer.getvalue())
