"""Version and checkpoint directories are whole or absent, and a damaged one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from tests.training.tiny import ids, train_config
from turnwise import files
from turnwise.errors import AdapterError
from turnwise.models.identity import base_digest
from turnwise.training.policy import Policy
from turnwise.training.publish import keep_moments, staged_version, version_dir
from turnwise.training.sft.checkpoints import Checkpoint, CheckpointStore
from turnwise.training.weights import files as files_of
from turnwise.training.weights.base import State
from turnwise.training.weights.files import load_version_dir
from turnwise.training.weights.moments import fits, moments_of, read_moments, set_moments, write_moments
from turnwise.types import PolicyVersion


def write_version(version: PolicyVersion, policy: Policy, moments: State | None = None) -> None:
    """What publishing does on disk, without the journal's part of it."""
    with staged_version(version, policy.weights, policy.state(), moments) as put_in_place:
        put_in_place()


@pytest.fixture
def version(tmp_path: Path) -> PolicyVersion:
    return PolicyVersion(
        number=4,
        parent=3,
        path=str(version_dir(tmp_path / "versions", 4)),
        created_at=1234.5,
        metrics={"loss": 0.25},
        gate={"accepted": True, "kl": 0.1},
        turn_ids=["a", "b"],
    )


@pytest.fixture
def written(policy: Policy, version: PolicyVersion) -> Path:
    generator = torch.Generator().manual_seed(1)
    policy.load({n: t + 0.1 * torch.randn(t.shape, generator=generator) for n, t in policy.state().items()})
    write_version(version, policy)
    return Path(version.path)


def test_a_version_reads_back_to_the_bit(policy: Policy, written: Path) -> None:
    adapter = load_version_dir(written)
    state = policy.state()
    assert adapter.weights.keys() == state.keys()
    assert all(torch.equal(adapter.weights[name], state[name]) for name in state)
    assert adapter.settings["r"] == 4


def test_its_story_stands_beside_it(written: Path, tiny_dir: Path) -> None:
    assert load_version_dir(written).meta == {
        "number": 4,
        "parent": 3,
        "created_at": 1234.5,
        "metrics": {"loss": 0.25},
        "gate": {"accepted": True, "kl": 0.1},
        "turn_ids": ["a", "b"],
        "base_sha256": base_digest(tiny_dir),
        "weights": "lora",
    }


def test_it_is_a_plain_peft_directory(policy: Policy, written: Path, tiny_dir: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32)
    served = PeftModel.from_pretrained(base, written).eval()
    prompt = torch.tensor([ids(1, 9)])
    with torch.no_grad():
        assert torch.allclose(served(input_ids=prompt).logits, policy.model(input_ids=prompt).logits, atol=1e-5)


def test_a_leftover_of_a_crash_is_replaced(policy: Policy, written: Path, version: PolicyVersion) -> None:
    (written / files_of.META).write_text("{}")
    write_version(version, policy)
    assert load_version_dir(written).meta["number"] == 4
    assert [p.name for p in written.parent.iterdir()] == ["v4"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"), files.new_directory(tmp_path / "v1") as folder:
        (folder / "half").write_text("x")
        raise OSError("disk full")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_replacement_leaves_the_old_one(tmp_path: Path) -> None:
    with files.new_directory(tmp_path / "v1") as folder:
        (folder / "file").write_text("old")
    with pytest.raises(OSError, match="disk full"), files.new_directory(tmp_path / "v1") as folder:
        raise OSError("disk full")
    assert (tmp_path / "v1" / "file").read_text() == "old"


def test_leftovers_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".v1.abc.tmp").mkdir()
    (tmp_path / "v1").mkdir()
    files.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["v1"]


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda d: (d / files_of.LORA_WEIGHTS).unlink(), "has no adapter_model.safetensors"),
        (lambda d: _truncate(d / files_of.LORA_WEIGHTS), "is damaged"),
        (lambda d: (d / files_of.LORA_WEIGHTS).write_bytes(b""), "is damaged"),
        (lambda d: save_file({}, d / files_of.LORA_WEIGHTS), "holds no weights"),
        (lambda d: save_file({"w": torch.tensor([float("nan")])}, d / files_of.LORA_WEIGHTS), "not finite"),
        (lambda d: (d / files_of.LORA_CONFIG).unlink(), "not an adapter directory"),
        (lambda d: (d / files_of.LORA_CONFIG).write_text("{"), "cannot be read"),
        (lambda d: (d / files_of.LORA_CONFIG).write_text("[]"), "not a JSON object"),
        (lambda d: (d / files_of.LORA_CONFIG).write_text(json.dumps({"peft_type": "IA3"})), "does not describe"),
        (lambda d: (d / files_of.META).write_bytes(b"\xff"), "cannot be read"),
    ],
)
def test_a_damaged_adapter_is_an_error_that_names_the_fault(written: Path, damage, sentence: str) -> None:
    damage(written)
    with pytest.raises(AdapterError, match=sentence):
        load_version_dir(written)


# -- the optimiser's state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_the_optimisers_state_reads_back_to_the_bit(tiny_dir: Path, tmp_path: Path, kind: str) -> None:
    config = train_config(weights=kind)
    policy = Policy(tiny_dir, config)
    optimizer = policy.weights.optimizer(config)
    for parameter in policy.parameters():
        parameter.grad = torch.randn(parameter.shape)
    optimizer.step()
    write_moments(moments_of(policy.weights, optimizer), tmp_path)
    read = read_moments(tmp_path)
    assert read is not None and fits(read, policy.weights.shapes)
    again = policy.weights.optimizer(config)
    set_moments(policy.weights, again, read)
    assert again.state.keys() == optimizer.state.keys()
    for parameter, state in optimizer.state.items():
        assert all(torch.equal(again.state[parameter][what], state[what]) for what in ("step", "exp_avg", "exp_avg_sq"))
    assert not fits({name: t for name, t in read.items() if not name.startswith("step")}, policy.weights.shapes)
    assert read_moments(tmp_path / "elsewhere") is None


def test_a_state_that_is_not_finite_is_none(tmp_path: Path) -> None:
    write_moments({"exp_avg/w": torch.tensor([1.0, float("nan")])}, tmp_path)
    with pytest.raises(ValueError, match="exp_avg/w is not finite"):
        read_moments(tmp_path)


def test_only_the_newest_versions_keep_it(tmp_path: Path, policy: Policy) -> None:
    for number in (1, 2, 10):
        version = PolicyVersion(number, number - 1, str(version_dir(tmp_path, number)), 0.0)
        write_version(version, policy, {"step/w": torch.tensor(1.0)})
    keep_moments(tmp_path, 2)
    assert sorted(file.parent.name for file in tmp_path.glob("*/optimizer.state")) == ["v10", "v2"]
    keep_moments(tmp_path, 5)


# -- checkpoints of a fine-tuning -----------------------------------------------------------------------------------


def checkpoint(position: int, origin: str = "run") -> Checkpoint:
    return Checkpoint(
        {"w": torch.tensor([1.0, position])}, {"exp_avg/w": torch.rand(2)}, position, [{"loss": 0.5}] * position, origin
    )


def test_a_checkpoint_reads_back_to_the_bit(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    saved = checkpoint(2)
    store.save(saved)
    loaded = CheckpointStore(tmp_path).latest("run")
    assert loaded is not None
    assert torch.equal(loaded.weights["w"], saved.weights["w"])
    assert torch.equal(loaded.moments["exp_avg/w"], saved.moments["exp_avg/w"])
    assert (loaded.position, loaded.metrics) == (2, saved.metrics)
    assert store.latest("another") is None


def test_of_a_damaged_checkpoint_the_one_before_is_taken_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path)
    for position in range(1, 12):
        store.save(checkpoint(position))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000010", "step-000011"]
    for name, expected in (("optimizer.state", 10), ("weights.safetensors", None)):
        step = 11 if expected else 10
        _truncate(tmp_path / f"step-{step:06d}" / name)
        found = store.latest("run")
        assert (found and found.position) == expected
        assert f"step-{step:06d} cannot be read" in caplog.text and "goes on from the one before" in caplog.text
