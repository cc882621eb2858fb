"""The loop against a real journal: every way a batch can end, and that being killed on the way changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.homes import Bench, Killed, feed, feed_probes, same
from turnwise import files
from turnwise.doctor.journal import examine_journal
from turnwise.errors import JournalError
from turnwise.training import worker
from turnwise.training.backends.local import LocalBackend
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.update import Trainer
from turnwise.training.weights.files import load_version_dir
from turnwise.training.worker import run, work
from turnwise.types import TurnState


def test_a_batch_becomes_a_version_and_the_rest_stays_ready(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(6))
    assert bench.claim_and_work()
    version = bench.journal.versions.get(1)
    assert version is not None
    assert version.turn_ids == [f"turn-{n}" for n in range(4)]
    assert version.parent == 0
    assert version.gate["accepted"] is True
    assert version.metrics["optimiser_steps"] == 2
    assert version.metrics["sampler_gap"] > 0
    assert bench.turns() == {TurnState.TRAINED: 4, TurnState.READY: 2}
    assert load_version_dir(Path(version.path)).meta["turn_ids"] == version.turn_ids


def test_it_publishes_without_waiting_for_the_next_batch(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 1
    assert not bench.claim_and_work()


def test_the_next_update_goes_on_from_the_parents_weights_and_optimiser(make: Callable[..., Bench]) -> None:
    bench, interrupted = make("one"), make("two")
    for b in (bench, interrupted):
        feed(b.journal, range(8))
    trainer = Trainer(bench.config, Path(bench.config.model.path))
    for _ in range(2):  # one process does both
        batch = bench.journal.batches.claim("trainer", 60)
        assert batch is not None
        work(bench.config, bench.journal, trainer, batch, bench.stop, bench.clock)
    while interrupted.claim_and_work():  # a new process for each
        pass
    assert same(bench.weights(2), interrupted.weights(2))
    assert not same(bench.weights(1), bench.weights(2))


def test_without_the_parents_optimiser_state_it_starts_a_fresh_one_and_says_so(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench, bereft = make("one"), make("two")
    for b in (bench, bereft):
        feed(b.journal, range(8))
        b.claim_and_work()
    (version_dir(bereft.config.versions_dir, 1) / "optimizer.state").unlink()
    assert bench.claim_and_work() and "is gone" not in caplog.text
    assert bereft.claim_and_work() and "is gone" in caplog.text
    assert not same(bench.weights(2), bereft.weights(2))


def test_with_a_damaged_optimiser_state_it_goes_on_from_that_of_the_parent_and_says_so(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench, damaged = make("one"), make("two")
    for b in (bench, damaged):
        feed(b.journal, range(12))
        b.claim_and_work()
        b.claim_and_work()
    one, two = (version_dir(damaged.config.versions_dir, n) / "optimizer.state" for n in (1, 2))
    two.write_bytes(two.read_bytes()[:-50])
    assert bench.claim_and_work() and "cannot be read" not in caplog.text
    assert damaged.claim_and_work() and "v2: " in caplog.text and "goes on from the state of its parent" in caplog.text
    assert not same(bench.weights(3), damaged.weights(3))
    backend = LocalBackend(damaged.config, Path(damaged.config.model.path))
    backend.prepare(2)
    assert same(backend.snapshot()[1], load_file(one))


def kill_at(bench: Bench, n: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill the trainer at the n-th event of its update; False when the update has fewer of them.

    Events are everything between which work is done: ticks, and both sides of every durable write and of the last
    transaction.
    """
    count = 0

    def event() -> None:
        nonlocal count
        count += 1
        if count > n:
            raise Killed

    real_keeper, real_finish = worker._lease_keeper, bench.journal.batches.finish

    def keeper(*args):
        tick = real_keeper(*args)

        def counted(phase: str, done: int, total: int) -> None:
            event()
            tick(phase, done, total)

        return counted

    def sync(path: Path) -> None:
        event()

    def finish(*args):
        event()
        real_finish(*args)
        event()

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_lease_keeper", keeper)
        patch.setattr(files, "_sync", sync)  # called for every file, before and after the rename
        patch.setattr(files.shutil, "rmtree", lambda *a, **k: None)  # a killed process cleans nothing up
        patch.setattr(bench.journal.batches, "finish", finish)
        try:
            bench.claim_and_work()
        except Killed:
            return True
    return False


def test_killed_anywhere_it_comes_to_bit_identical_weights(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = make("reference")
    feed(reference.journal, range(4))
    reference.claim_and_work()
    kills = 0
    while True:
        bench = make(f"killed-{kills}")
        feed(bench.journal, range(4))
        if not kill_at(bench, kills, monkeypatch):
            break
        kills += 1
        bench.expire_lease()
        while bench.claim_and_work():
            pass
        assert bench.journal.versions.latest() == 1, f"kill {kills}"
        assert same(bench.weights(1), reference.weights(1)), f"kill {kills}"
        assert bench.turns() == {TurnState.TRAINED: 4}, f"kill {kills}"
    assert kills > 15


def test_told_to_stop_it_lets_go_of_the_batch_and_the_next_one_goes_on(make: Callable[..., Bench]) -> None:
    reference, bench = make("reference"), make("stopped")
    for b in (reference, bench):
        feed(b.journal, range(4))
    reference.claim_and_work()
    bench.stop.set()
    assert bench.claim_and_work()
    assert bench.turns() == {TurnState.LEASED: 4}
    bench.stop.clear()
    assert bench.claim_and_work(), "no need to wait for the lease"
    assert same(bench.weights(1), reference.weights(1))


def test_a_lease_is_renewed_while_the_update_runs(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make()
    feed(bench.journal, range(4))
    renewals = []
    real = bench.journal.batches.renew
    monkeypatch.setattr(bench.journal.batches, "renew", lambda b, s: (renewals.append(s), real(b, s)))

    def slow() -> None:
        bench.clock.now += 20.0  # the lease is 60 s; a whole update takes several of them

    monkeypatch.setattr(worker, "beat", slow)
    assert bench.claim_and_work()
    assert len(renewals) >= 2
    assert bench.journal.versions.latest() == 1


def test_a_trainer_that_lost_its_lease_publishes_nothing(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(4))
    slow = bench.journal.batches.claim("slow", 60)
    assert slow is not None
    bench.expire_lease()
    fast = bench.journal.batches.claim("fast", 60)
    assert fast is not None and fast.samples == slow.samples
    work(
        bench.config, bench.journal, Trainer(bench.config, Path(bench.config.model.path)), slow, bench.stop, bench.clock
    )
    assert bench.journal.versions.latest() == 0
    work(
        bench.config, bench.journal, Trainer(bench.config, Path(bench.config.model.path)), fast, bench.stop, bench.clock
    )
    assert bench.journal.versions.latest() == 1


def test_a_refused_version_leaves_no_trace_and_its_samples_go_back(make: Callable[..., Bench]) -> None:
    """The update after a refusal is the one there would have been without the refused attempt."""
    strict = {"gate.max_step_kl": 1e-9, "train.max_batch": 8}
    bench, reference = make("refused", **strict), make("reference", **{"train.max_batch": 8})
    for b in (bench, reference):
        feed_probes(b.journal)
    feed(bench.journal, range(4))
    bench.claim_and_work()
    assert bench.journal.versions.latest() == 0
    assert bench.turns() == {"ready": 4, "excluded": 3}, "nothing is spent"
    assert bench.journal.batches.refused_in_a_row()["count"] == 1
    assert not list(bench.config.versions_dir.glob("v*"))
    assert not bench.claim_and_work(), "the same batch is not tried by itself again"
    bench.config = bench.config.model_copy(update={"gate": reference.config.gate})
    feed(bench.journal, range(4, 8))
    bench.claim_and_work()
    # The order of samples depends on the batch's number, which is 2 in both homes.
    feed(reference.journal, range(4))
    skipped = reference.journal.batches.claim("nobody", 60)
    assert skipped is not None
    reference.journal.batches.refuse(skipped, {}, {})
    feed(reference.journal, range(4, 8))
    reference.claim_and_work()
    assert same(bench.weights(1), reference.weights(1))
    assert len(bench.journal.versions.all()[0].turn_ids) == 8


def test_three_refusals_in_a_row_are_loud(make: Callable[..., Bench], caplog: pytest.LogCaptureFixture) -> None:
    bench = make(**{"gate.max_step_kl": 1e-9})
    feed_probes(bench.journal)
    for n in range(3):
        assert "nothing new is learned" not in caplog.text
        feed(bench.journal, range(4 * n, 4 * n + 4))
        assert bench.claim_and_work()
    assert "nothing new is learned: the gate refused the last 3 batches" in caplog.text
    assert "gate.max_step_kl = 1e-09" in caplog.text and "lower train.lr" in caplog.text
    said = [found for name, _, found in examine_journal(bench.config) if name == "gate"]
    assert len(said) == 1 and "the gate refused the last 3 batches" in said[0]


def test_a_part_of_a_step_is_published_with_its_share_and_its_momentum(make: Callable[..., Bench]) -> None:
    whole = make("whole")
    feed_probes(whole.journal)
    feed(whole.journal, range(4))
    whole.claim_and_work()
    full = whole.journal.versions.all()[0]
    part = make("part", **{"gate.max_step_kl": full.gate["step_kl"] / 2})
    feed_probes(part.journal)
    feed(part.journal, range(4))
    part.claim_and_work()
    version = part.journal.versions.all()[0]
    alpha = version.gate["alpha"]
    assert full.gate["alpha"] == 1.0 and 0 < alpha < 1
    assert "max_step_kl" in version.gate["whole"]["reasons"][0]
    assert part.journal.status.figures()["version"] == {"number": 1, "part": alpha}
    start = Policy(Path(part.config.model.path), part.config.train).weights.initial()
    steps, published = whole.weights(1), part.weights(1)
    assert all(torch.allclose(published[n], start[n] + alpha * (steps[n] - start[n]), atol=1e-6) for n in start)
    moments = []
    for bench in (whole, part):
        backend = Trainer(bench.config, Path(bench.config.model.path)).backend
        assert isinstance(backend, LocalBackend)
        backend.prepare(1)
        moments.append(list(backend._optimizer.state.values()))
    for of_whole, of_part in zip(*moments, strict=True):
        assert torch.allclose(of_part["exp_avg"], alpha * of_whole["exp_avg"])
        assert torch.equal(of_part["exp_avg_sq"], of_whole["exp_avg_sq"])


def test_old_versions_are_pruned_as_new_ones_come(make: Callable[..., Bench]) -> None:
    bench = make(**{"journal.keep_versions": 2, "gate.enabled": False})
    feed(bench.journal, range(16))
    while bench.claim_and_work():
        pass
    assert sorted(p.name for p in bench.config.versions_dir.iterdir()) == ["v3", "v4"]
    assert [v.pruned for v in bench.journal.versions.all()] == [True, True, False, False]
    with pytest.raises(JournalError, match="version 1 was pruned"):
        bench.journal.versions.serve(1)


def test_a_batch_that_cannot_be_trained_on_does_not_stop_the_loop(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(4))
    batch = bench.journal.batches.claim("trainer", 60)
    assert batch is not None
    for one in batch.samples:
        one.response_ids[0] = 10_000
    trainer = Trainer(bench.config, Path(bench.config.model.path))
    work(bench.config, bench.journal, trainer, batch, bench.stop, bench.clock)
    assert bench.journal.status.figures()["batches"] == {"refused": 1}
    feed(bench.journal, range(4, 8))
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 1


def test_old_optimiser_states_are_deleted_and_adapters_kept(make: Callable[..., Bench]) -> None:
    bench = make(**{"train.keep_checkpoints": 2, "gate.enabled": False})
    feed(bench.journal, range(16))
    while bench.claim_and_work():
        pass
    assert bench.journal.versions.latest() == 4
    assert sorted(p.name for p in bench.config.versions_dir.iterdir()) == ["v1", "v2", "v3", "v4"]
    states = bench.config.versions_dir.glob("*/optimizer.state")
    assert sorted(file.parent.name for file in states) == ["v3", "v4"]


def test_after_a_rollback_training_goes_on_from_the_version_that_serves(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(8))
    while bench.claim_and_work():
        pass
    bench.clock.now += 1
    bench.journal.versions.serve(1)
    feed(bench.journal, range(8, 12))
    assert bench.claim_and_work()
    version = bench.journal.versions.get(3)
    assert version is not None and version.parent == 1


def test_the_gate_can_be_switched_off(make: Callable[..., Bench]) -> None:
    bench = make(**{"gate.enabled": False})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    version = bench.journal.versions.get(1)
    assert version is not None and "skipped" in version.gate


def test_the_loop_trains_what_is_ready_says_so_and_stops(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(4))
    thread = threading.Thread(target=run, args=(bench.config, bench.stop), daemon=True)
    thread.start()
    tries = 0
    while bench.journal.versions.latest() == 0 and tries < 600:
        threading.Event().wait(0.1)
        tries += 1
    bench.stop.set()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert bench.journal.versions.latest() == 1
    assert bench.journal.status.figures()["loops"]["trainer"]["state"] == "stopped"
