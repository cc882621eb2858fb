"""Every weight is trained: masters, the reference, versions as model folders, and what does not go together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.local_engine.engine_process import complete, post, start_engine
from tests.training.homes import Bench, feed, feed_probes, same
from tests.training.tiny import batch, by_the_model, ids, no_tick, plain_model, sample, shake, train_config
from turnwise.config import load_config
from turnwise.errors import AdapterError, ConfigError, ModelError
from turnwise.training.backends.local import LocalBackend
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.training.update import Trainer
from turnwise.training.weights.files import kind_of

FULL = {"train.weights": "full", "train.lr": 3e-3}


def full_policy(folder: Path, **changes: Any) -> Policy:
    return Policy(folder, train_config(weights="full", **changes))


def test_it_starts_as_the_model_in_its_folder(tiny_dir: Path) -> None:
    policy = full_policy(tiny_dir)
    stored = load_file(tiny_dir / "model.safetensors")
    assert policy.state().keys() == stored.keys()
    assert all(torch.equal(policy.state()[name], stored[name]) for name in stored)
    assert same(policy.weights.initial(), policy.state())


@pytest.mark.parametrize("reference", ["kept", "read"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_reference_is_the_base_model_whatever_was_learned(tiny_dir: Path, reference: str, dtype: str) -> None:
    policy = full_policy(tiny_dir, reference=reference, dtype=dtype)
    row = torch.tensor([ids(1, 12)])
    with torch.no_grad():
        base = policy.model(input_ids=row).logits
        state = shake(policy)
        moved = policy.model(input_ids=row).logits
        with policy.reference(), policy.reference():
            assert torch.equal(policy.model(input_ids=row).logits, base)
        assert torch.equal(policy.model(input_ids=row).logits, moved)
    assert not torch.equal(base, moved)
    assert same(policy.state(), state)


def test_steps_too_small_for_bfloat16_add_up_in_the_masters(tiny_dir: Path) -> None:
    """At this rate no single step moves a rounded weight of ordinary size; a hundred of them do."""
    config = train_config(weights="full", dtype="bfloat16", lr=1e-5, weight_decay=0.0)
    policy, data = Policy(tiny_dir, config), batch([sample(1, hint=None), sample(3, hint=None)])
    optimizer = policy.weights.optimizer(config)
    before, rounded = policy.state(), [p.detach().clone() for p in policy.model.parameters()]
    signals = compute_signals(policy, data, config, no_tick)
    optimiser_step(policy, optimizer, data, signals, [0, 1], config, no_tick)
    after = policy.state()
    moved = torch.cat([(after[n] - before[n]).flatten() for n in before])
    seen = torch.cat([(p - r).flatten() for p, r in zip(policy.model.parameters(), rounded, strict=True)])
    assert (moved != 0).float().mean() > 0.9 > 0.2 > (seen != 0).float().mean()
    for _ in range(99):
        optimiser_step(policy, optimizer, data, signals, [0, 1], config, no_tick)
    seen = torch.cat([(p - r).flatten() for p, r in zip(policy.model.parameters(), rounded, strict=True)])
    assert (seen != 0).float().mean() > 0.3


def test_in_bfloat16_the_gradients_of_micro_batches_are_summed_in_float32(tiny_dir: Path) -> None:
    def gradient(room: int) -> list[torch.Tensor]:
        config = train_config(weights="full", dtype="bfloat16", microbatch_tokens=room, grad_clip=1e9)
        policy, data = Policy(tiny_dir, config), batch([sample(n) for n in range(6)])
        signals = compute_signals(policy, data, config, no_tick)
        optimiser_step(policy, torch.optim.SGD(policy.parameters(), lr=0.0), data, signals, range(6), config, no_tick)
        found = [p.grad for p in policy.parameters() if p.grad is not None]
        assert all(g.dtype == torch.float32 for g in found)
        assert all(p.grad is None for p in policy.model.parameters())
        return found

    whole, parts = gradient(4096), gradient(64)
    for one, other in zip(whole, parts, strict=True):
        assert (one - other).norm() < 0.05 * one.norm()


def test_weights_that_do_not_stand_in_the_folder_are_refused(tiny_dir: Path, tmp_path: Path) -> None:
    for file in tiny_dir.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    renamed = {n.replace("model.norm", "model.other"): t for n, t in load_file(tiny_dir / "model.safetensors").items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"holds no model\.norm\.weight"):
        full_policy(tmp_path)
    with pytest.raises(ModelError, match="takes its folder"):
        Policy("somebody/model", train_config(weights="full"))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_engine_that_takes_no_whole_model_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    given = {"home": tmp_path, "train.weights": "full", "engine.kind": kind, "engine.url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match=f'engine.kind = "{kind}" cannot take up a whole model'):
        load_config(overrides=given)


def test_the_rate_of_every_weight_is_smaller_unless_it_is_given(tmp_path: Path) -> None:
    def rate(**given: object) -> float:
        return load_config(overrides={"home": tmp_path} | given).train.lr

    assert rate() == 6e-4
    assert rate(**{"train.weights": "full"}) == 1e-5
    assert rate(**{"train.weights": "full", "train.lr": 2e-6}) == 2e-6


# -- versions -------------------------------------------------------------------------------------------------------


def test_a_version_is_a_model_folder_that_transformers_loads(make: Callable[..., Bench]) -> None:
    bench = make(**FULL)
    feed(bench.journal, range(8))
    assert bench.claim_and_work() and bench.claim_and_work()
    folder = version_dir(bench.config.versions_dir, 2)
    assert kind_of(folder) == "full"
    assert json.loads((folder / "meta.json").read_text())["weights"] == "full"
    assert not same(bench.weights(1), bench.weights(2))
    served, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    one = sample(1)
    ours = by_the_model(
        plain_model(Path(bench.config.model.path), bench.weights(2), train_config(weights="full")),
        one.prompt_ids,
        one.response_ids,
        1.0,
    )
    assert torch.equal(by_the_model(served.eval(), one.prompt_ids, one.response_ids, 1.0), ours)


def test_a_version_serves_beside_the_base_model_and_others(make: Callable[..., Bench], tmp_path: Path) -> None:
    """Trained, published, loaded into the real engine while it serves, swapped, and taken out again."""
    bench = make(**FULL)
    feed(bench.journal, range(8))
    assert bench.claim_and_work() and bench.claim_and_work()
    model, prompt = Path(bench.config.model.path), ids(5, 20)
    log = tmp_path / "logs" / "engine.log"
    log.parent.mkdir()
    with start_engine(model, log, "--dtype", "float32", "--kv-cache-mb", "16", "--max-model-len", "256") as (url, _):
        for number in (1, 2):
            path = str(version_dir(bench.config.versions_dir, number))
            loaded = post(url, "/v1/load_lora_adapter", lora_name=f"v{number}", lora_path=path)
            assert loaded.status_code == 200, loaded.text
        said = {}
        for name in ("base", "v1", "v2", "base", "v1"):
            choice = complete(url, prompt, model=name, max_tokens=8, ignore_eos=True)["choices"][0]
            answer, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            assert said.setdefault(name, answer) == answer
            state = None if name == "base" else bench.weights(int(name[1:]))
            trained = plain_model(model, state, train_config(weights="full"))
            assert logprobs == pytest.approx(by_the_model(trained, prompt, answer, 1.0).tolist(), abs=1e-4)
        cards = httpx.get(f"{url}/v1/models", timeout=20).json()["data"]
        assert [c["id"] for c in cards] == ["base", "v1", "v2"]
        assert post(url, "/v1/unload_lora_adapter", lora_name="v1").status_code == 200
        assert post(url, "/v1/completions", prompt=prompt, model="v1").status_code == 404


def _change(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_folder_that_does_not_fit_changes_nothing_at_the_engine(make: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make(**FULL)
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    folder, log = version_dir(bench.config.versions_dir, 1), tmp_path / "logs" / "engine.log"
    log.parent.mkdir()
    intact = (folder / "model.safetensors").read_bytes()
    norm = "model.norm.weight"
    faults: dict[str, Callable[[], object]] = {
        "cannot be read": lambda: (folder / "model.safetensors").write_bytes(intact[:-200]),
        "has no model.norm.weight": lambda: _change(folder, lambda w: w.pop(norm)),
        "has model.norm.weight (3,)": lambda: _change(folder, lambda w: w.update({norm: torch.ones(3)})),
        "has more (1,), and the model none": lambda: _change(folder, lambda w: w.update(more=torch.ones(1))),
        "not finite": lambda: _change(folder, lambda w: w[norm].fill_(float("inf"))),
    }
    with start_engine(Path(bench.config.model.path), log, "--dtype", "float32", "--max-model-len", "256") as (url, _):
        for sentence, spoil in faults.items():
            (folder / "model.safetensors").write_bytes(intact)
            spoil()
            refused = post(url, "/v1/load_lora_adapter", lora_name="v1", lora_path=str(folder))
            assert refused.status_code == 400
            assert sentence in refused.json()["error"]["message"]
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").symlink_to(Path(bench.config.model.path) / "model.safetensors")
        refused = post(url, "/v1/load_lora_adapter", lora_name="v1", lora_path=str(folder))
        assert refused.status_code == 400 and "no plain file" in refused.json()["error"]["message"]
        assert [c["id"] for c in httpx.get(f"{url}/v1/models", timeout=20).json()["data"]] == ["base"]


def test_the_gate_publishes_the_largest_part_that_passes(make: Callable[..., Bench]) -> None:
    whole = make("whole", **FULL)
    feed_probes(whole.journal)
    feed(whole.journal, range(4))
    whole.claim_and_work()
    limit = whole.journal.versions.all()[0].gate["step_kl"] / 2
    part = make("part", **FULL, **{"gate.max_step_kl": limit})
    feed_probes(part.journal)
    feed(part.journal, range(4))
    part.claim_and_work()
    alpha = part.journal.versions.all()[0].gate["alpha"]
    assert 0 < alpha < 1
    start = load_file(Path(part.config.model.path) / "model.safetensors")
    steps, published = whole.weights(1), part.weights(1)
    assert all(torch.allclose(published[n], start[n] + alpha * (steps[n] - start[n]), atol=1e-6) for n in start)


def test_the_gate_measures_the_parent_by_its_own_projection(make: Callable[..., Bench]) -> None:
    """A candidate that is its parent is at no distance from it, and as far from the base as it."""
    bench = make(**FULL)
    feed_probes(bench.journal)
    feed(bench.journal, range(4))
    bench.claim_and_work()
    backend = LocalBackend(bench.config, Path(bench.config.model.path))
    backend.prepare(1)
    probes = bench.journal.batches.gate_probes(4, [])
    found = backend.figures(probes, no_tick)
    assert found["step_kl"] < 1e-5
    assert found["drift_kl"] == pytest.approx(found["parents_drift_kl"], abs=1e-6) and found["drift_kl"] > 1e-3


def test_weights_of_another_kind_are_no_parent(make: Callable[..., Bench]) -> None:
    bench = make(**FULL)
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    lora = bench.config.model_copy(update={"train": bench.config.train.model_copy(update={"weights": "lora"})})
    trainer = Trainer(lora, Path(bench.config.model.path))
    assert 'set train.weights = "full"' in (trainer.fault_of(1) or "")
    with pytest.raises(AdapterError, match=r'version 1 was trained with train\.weights = "full"'):
        trainer.backend.prepare(1)
    assert trainer.fault_of(0) is None
