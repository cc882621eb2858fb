"""Version and checkpoint directories are whole or absent, and a damaged one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from tests.training.tiny import ids
from turnwise import files
from turnwise.errors import AdapterError
from turnwise.training import publish
from turnwise.training.checkpoints import Checkpoint, CheckpointStore
from turnwise.training.policy import Policy
from turnwise.training.publish import load_adapter_dir, recent_checkpoints, staged_version, version_dir
from turnwise.types import PolicyVersion


def write_version(version: PolicyVersion, policy: Policy, checkpoint: str, model: str) -> None:
    """What publishing does on disk, without the journal's part of it."""
    with staged_version(version, policy.state(), policy.lora_config, checkpoint, model) as put_in_place:
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
def written(policy: Policy, version: PolicyVersion, tiny_dir: Path) -> Path:
    generator = torch.Generator().manual_seed(1)
    policy.load({n: t + 0.1 * torch.randn(t.shape, generator=generator) for n, t in policy.state().items()})
    write_version(version, policy, "batch-000001-step-001", str(tiny_dir))
    return Path(version.path)


def test_a_version_reads_back_to_the_bit(policy: Policy, written: Path) -> None:
    adapter = load_adapter_dir(written)
    state = policy.state()
    assert adapter.weights.keys() == state.keys()
    assert all(torch.equal(adapter.weights[name], state[name]) for name in state)
    assert adapter.lora["r"] == 4


def test_its_story_stands_beside_it(written: Path) -> None:
    assert load_adapter_dir(written).meta == {
        "number": 4,
        "parent": 3,
        "created_at": 1234.5,
        "metrics": {"loss": 0.25},
        "gate": {"accepted": True, "kl": 0.1},
        "turn_ids": ["a", "b"],
        "checkpoint": "batch-000001-step-001",
    }


def test_it_is_a_plain_peft_directory(policy: Policy, written: Path, tiny_dir: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32)
    served = PeftModel.from_pretrained(base, written).eval()
    prompt = torch.tensor([ids(1, 9)])
    with torch.no_grad():
        assert torch.allclose(served(input_ids=prompt).logits, policy.model(input_ids=prompt).logits, atol=1e-5)


def test_a_leftover_of_a_crash_is_replaced(policy: Policy, written: Path, version: PolicyVersion) -> None:
    (written / publish.META).write_text("{}")
    write_version(version, policy, "other", "model")
    assert load_adapter_dir(written).meta["checkpoint"] == "other"
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
        (lambda d: (d / publish.WEIGHTS).unlink(), "has no adapter_model.safetensors"),
        (lambda d: _truncate(d / publish.WEIGHTS), "is damaged"),
        (lambda d: (d / publish.WEIGHTS).write_bytes(b""), "is damaged"),
        (lambda d: save_file({}, d / publish.WEIGHTS), "holds no weights"),
        (lambda d: save_file({"w": torch.tensor([float("nan")])}, d / publish.WEIGHTS), "not finite"),
        (lambda d: (d / publish.LORA_CONFIG).unlink(), "not an adapter directory"),
        (lambda d: (d / publish.LORA_CONFIG).write_text("{"), "cannot be read"),
        (lambda d: (d / publish.LORA_CONFIG).write_text("[]"), "not a JSON object"),
        (lambda d: (d / publish.LORA_CONFIG).write_text(json.dumps({"peft_type": "IA3"})), "does not describe"),
        (lambda d: (d / publish.META).write_bytes(b"\xff"), "cannot be read"),
    ],
)
def test_a_damaged_adapter_is_an_error_that_names_the_fault(written: Path, damage, sentence: str) -> None:
    damage(written)
    with pytest.raises(AdapterError, match=sentence):
        load_adapter_dir(written)


# -- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoint(position: int) -> Checkpoint:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.AdamW([weight])
    weight.grad = torch.tensor([0.5, -0.5]) * position
    optimizer.step()
    return Checkpoint({"w": weight.detach()}, optimizer.state_dict(), position, [{"loss": 0.5}] * position)


def test_a_checkpoint_reads_back_to_the_bit(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    saved = checkpoint(2)
    store.save(7, saved)
    loaded = CheckpointStore(tmp_path).latest(7)
    assert loaded is not None
    assert torch.equal(loaded.adapter["w"], saved.adapter["w"])
    assert torch.equal(loaded.optimizer["state"][0]["exp_avg"], saved.optimizer["state"][0]["exp_avg"])
    assert (loaded.position, loaded.metrics) == (2, saved.metrics)


def test_only_the_furthest_of_a_batch_is_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for position in range(1, 12):
        store.save(7, checkpoint(position))
    store.save(8, checkpoint(1))
    assert {p.name for p in tmp_path.iterdir()} == {store.name(7, 11), store.name(8, 1)}
    assert store.latest(9) is None


def test_the_furthest_counts_when_a_crash_left_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("turnwise.training.checkpoints.shutil.rmtree", lambda folder, **_: None)
        for position in (1, 12, 2, 3):
            store.save(7, checkpoint(position))
    latest = store.latest(7)
    assert latest is not None and latest.position == 12


def test_a_damaged_checkpoint_costs_its_steps_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(tmp_path)
    name = store.save(7, checkpoint(1))
    _truncate(tmp_path / name / "optimizer.pt")
    assert store.latest(7) is None
    assert "cannot be read" in caplog.text


def test_pruning_keeps_the_named_ones(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    names = [store.save(batch, checkpoint(1)) for batch in range(4)]
    store.keep_only(names[2:])
    assert sorted(p.name for p in tmp_path.iterdir()) == names[2:]
    store.drop(3)
    assert [p.name for p in tmp_path.iterdir()] == [names[2]]


def test_the_newest_versions_name_the_checkpoints_to_keep(tmp_path: Path, policy: Policy) -> None:
    for number in (1, 2, 10):
        version = PolicyVersion(number, number - 1, str(version_dir(tmp_path, number)), 0.0)
        write_version(version, policy, f"checkpoint-{number}", "model")
    assert recent_checkpoints(tmp_path, 2) == ["checkpoint-10", "checkpoint-2"]
