"""What must not stop learning, nor be learned: bad turns, foreign checkpoints, another scale, a damaged parent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.rows import turn_row
from tests.support.servers import wait_until
from tests.training.homes import Bench, Killed, feed, feed_probes, same
from turnwise.config import GateConfig
from turnwise.errors import JournalUnavailable
from turnwise.training import worker
from turnwise.training.asking import AT_ONCE
from turnwise.training.backends import local
from turnwise.training.batching import Row
from turnwise.training.gate import examination as examining
from turnwise.training.gate import gate
from turnwise.training.gate.answers import OwnAnswers
from turnwise.training.gate.probes import Probe
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.step import Signals, compute_signals
from turnwise.training.update import Trainer
from turnwise.training.worker import run, work
from turnwise.types import Batch, Exclusion, TurnState


def killed_before_publishing(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.journal.batches, "finish", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            bench.claim_and_work()
    bench.expire_lease()


def test_a_turn_that_cannot_be_trained_on_is_left_out_of_its_batch(make: Callable[..., Bench]) -> None:
    bench, reference = make("bench"), make("reference")
    for b in (bench, reference):
        feed(b.journal, range(4))
    batch, sound = bench.journal.batches.claim("trainer", 60), reference.journal.batches.claim("trainer", 60)
    assert batch is not None and sound is not None
    batch.samples[0].response_ids[0] = 10_000
    del sound.samples[0]
    for b, leased in ((bench, batch), (reference, sound)):
        work(b.config, b.journal, Trainer(b.config, Path(b.config.model.path)), leased, b.stop, b.clock)
    version = bench.journal.versions.get(1)
    assert version is not None and version.turn_ids == ["turn-1", "turn-2", "turn-3"]
    assert same(bench.weights(1), reference.weights(1))
    assert bench.journal.turns.get("turn-0").exclusion is Exclusion.FAILED_IN_TRAINING
    assert "outside the model's vocabulary" in turn_row(bench.journal, "turn-0").last_error


def test_a_turn_without_a_finite_gradient_is_left_out_of_its_batch(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a trainer that goes on after the one that noticed was killed."""

    def poisoned(policy: Policy, batch: Batch, *rest: Any) -> list[Signals]:
        signals = compute_signals(policy, batch, *rest)
        return [
            replace(s, old=torch.full_like(s.old, float("nan"))) if one.turn_id == "turn-2" else s
            for one, s in zip(batch.samples, signals, strict=True)
        ]

    monkeypatch.setattr(local, "compute_signals", poisoned)
    plain, killed = (make(name, **{"train.minibatch": 4}) for name in ("plain", "killed"))
    for bench in (plain, killed):
        feed(bench.journal, range(4))
    killed_before_publishing(killed)
    for bench in (plain, killed):
        assert bench.claim_and_work()
        version = bench.journal.versions.get(1)
        assert version is not None and version.turn_ids == ["turn-0", "turn-1", "turn-3"]
        assert version.gate["accepted"] and version.metrics["sampler_gap"] > 0
        assert bench.journal.turns.get("turn-2").exclusion is Exclusion.FAILED_IN_TRAINING
    assert same(plain.weights(1), killed.weights(1))


def test_a_turn_without_a_finite_gradient_does_not_go_back_with_its_refused_batch(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(policy: Policy, batch: Batch, *rest: Any) -> list[Signals]:
        first, *others = compute_signals(policy, batch, *rest)
        return [replace(first, old=torch.full_like(first.old, float("nan"))), *others]

    monkeypatch.setattr(local, "compute_signals", poisoned)
    bench = make(**{"train.minibatch": 4, "gate.max_step_kl": 1e-9})
    feed_probes(bench.journal)
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert bench.journal.turns.get("turn-0").exclusion is Exclusion.FAILED_IN_TRAINING
    assert turn_row(bench.journal, "turn-0").last_error == "its gradient is not finite"
    assert bench.turns() == {TurnState.READY: 3, TurnState.EXCLUDED: 4}, "the bad one and three probes"


@pytest.mark.parametrize(("setting", "value"), [("lora_alpha", 16), ("lora_rank", 8)])
def test_an_adapter_of_another_scale_is_not_gone_on_from(make: Callable[..., Bench], setting: str, value: int) -> None:
    bench = make()
    feed(bench.journal, range(8))
    assert bench.claim_and_work()
    before, was = bench.config, getattr(bench.config.train, setting)
    bench.config = before.model_copy(update={"train": before.train.model_copy(update={setting: value})})
    trainer = Trainer(bench.config, Path(bench.config.model.path))
    batch = bench.journal.batches.claim("trainer", 60)
    assert batch is not None
    fault = work(bench.config, bench.journal, trainer, batch, bench.stop, bench.clock)
    assert fault == trainer.fault_of(1)
    assert fault is not None and f"set train.{setting} back to {was}" in fault
    assert bench.turns() == {TurnState.TRAINED: 4, TurnState.READY: 4}, "nothing is spent"
    bench.config = before
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 2


def test_a_damaged_parent_spends_no_turns_and_a_rollback_helps(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    feed(bench.journal, range(12))
    for _ in range(2):
        assert bench.claim_and_work()
        bench.clock.now += 1
    weights = version_dir(bench.config.versions_dir, 2) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    monkeypatch.setattr(worker, "HEARTBEAT_S", 0.1)
    thread = threading.Thread(target=run, args=(bench.config, bench.stop), daemon=True)
    thread.start()
    try:
        wait_until(
            lambda: "damaged" in (bench.journal.status.figures()["loops"].get("trainer", {}).get("error") or ""), 60
        )
        assert bench.turns() == {TurnState.TRAINED: 8, TurnState.READY: 4}
        bench.journal.store.clock = time.time
        bench.journal.versions.serve(1)
        wait_until(lambda: bench.journal.versions.latest() == 3, 60)
    finally:
        bench.stop.set()
        thread.join(timeout=30)
    version = bench.journal.versions.get(3)
    assert version is not None and version.parent == 1
    assert not bench.journal.status.figures()["loops"]["trainer"].get("error")


def test_what_ends_a_trainer_is_noted_with_its_batch(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    feed(bench.journal, range(8))

    def explode(*_: Any) -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(local, "compute_signals", explode)
        for _ in range(3):
            with pytest.raises(MemoryError):
                bench.claim_and_work()
    assert bench.claim_and_work()
    assert bench.journal.status.figures()["excluded"] == {Exclusion.FAILED_IN_TRAINING: 4}
    assert "MemoryError: no more" in turn_row(bench.journal, "turn-0").last_error
    version = bench.journal.versions.get(1)
    assert version is not None and version.turn_ids == [f"turn-{n}" for n in range(4, 8)]


def test_versions_that_a_killed_trainer_left_half_are_swept_at_its_start(make: Callable[..., Bench]) -> None:
    bench = make()
    half = bench.config.versions_dir / ".v1.abc.tmp"
    half.mkdir(parents=True)
    Trainer(bench.config, Path(bench.config.model.path))
    assert not half.exists()


def test_a_trainer_that_waits_for_the_journal_gives_signs_of_life(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locked journal is a stand-in. Without a sign the supervisor would end it, and start it for nothing."""
    bench, beats, tries = make("bench"), [], []
    feed(bench.journal, range(4))
    batch = bench.journal.batches.claim("trainer", 60)
    assert batch is not None
    real = bench.journal.batches.suspend

    def locked(which: Batch) -> None:
        tries.append(which.id)
        if len(tries) < 4:
            raise JournalUnavailable("the journal is locked")
        real(which)

    monkeypatch.setattr(bench.journal.batches, "suspend", locked)
    monkeypatch.setattr(worker, "POLL_S", 0.01)
    monkeypatch.setattr(worker, "beat", lambda: beats.append(len(tries)))
    worker._suspend_when_possible(bench.journal, batch, bench.stop)
    assert set(beats) == {1, 2, 3}, "in each wait"


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_where_memory_runs_out_passes_are_halved_and_the_update_goes_on(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The fault is a stand-in: a training pass of more than 66 tokens, padding included."""
    of = {"train.weights": kind, "train.lr": 3e-3, "train.microbatch_tokens": 512, "train.minibatch": 4}
    plain, tight = make("plain", **of), make("tight", **of)
    for bench in (plain, tight):
        feed(bench.journal, range(4))
    plain.claim_and_work()
    real = Policy.hidden

    def little_memory(self: Policy, rows: list[Row], *given: Any, **more: Any) -> torch.Tensor:
        if torch.is_grad_enabled() and len(rows) * max(len(row.ids) for row in rows) > 66:
            raise torch.OutOfMemoryError
        return real(self, rows, *given, **more)

    monkeypatch.setattr(Policy, "hidden", little_memory)
    tight.claim_and_work()
    assert "out of memory: 64 tokens in a pass from now on" in caplog.text
    one, other = plain.weights(1), tight.weights(1)
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    assert tight.turns() == {TurnState.TRAINED: 4}


def test_a_gate_that_finds_no_memory_looks_again_in_smaller_passes_at_the_whole_step(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is a stand-in, at the half of a step whose whole a strict limit refused."""
    of = {"train.lr": 3e-3, "train.microbatch_tokens": 512, "train.minibatch": 4, "gate.enabled": True}
    plain, tight = make("plain", **of), make("tight", **of)
    for bench in (plain, tight):
        feed(bench.journal, range(4))
    real, tries, full = gate.look, [], iter([True])
    at_once: list[int] = []

    def strict(examination: OwnAnswers, config: GateConfig, *, thorough: bool) -> dict[str, Any]:
        tries.append(thorough)
        examination._sample([Probe([1, 2], [], None, "own")])
        if not thorough and next(full, False):
            raise torch.OutOfMemoryError
        return real(examination, config, thorough=thorough) | {"accepted": not thorough, "hopeless": False}

    monkeypatch.setattr(examining, "sample_answers", lambda *_, **named: at_once.append(named["at_once"]))
    monkeypatch.setattr(gate, "look", strict)
    tight.claim_and_work()
    assert "out of memory: 256 tokens in a pass from now on" in caplog.text
    assert tries == [True, False, True, False], "the whole step comes first again"
    assert at_once == [AT_ONCE] * 2 + [AT_ONCE // 2] * 2, "and fewer are answered at once"
    plain.claim_and_work()
    one, other = plain.weights(1), tight.weights(1)
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
