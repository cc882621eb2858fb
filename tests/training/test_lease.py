"""The lease of a batch while one pass takes longer than it: kept for a trainer that gets on, and for no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import wait_until
from tests.training.homes import Bench, feed
from turnwise.errors import LeaseLost
from turnwise.training.lease import KeptLease
from turnwise.training.update import Trainer
from turnwise.types import Batch

LEASE_S = 1.0


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    made = make(**{"train.lease_s": LEASE_S})
    feed(made.journal, range(4))
    return made


def claimed(bench: Bench) -> Batch:
    batch = bench.journal.batches.claim("trainer", LEASE_S)
    assert batch is not None
    return batch


def passes_by(bench: Bench, seconds: float) -> None:
    """Let time pass by the journal's clock, and wait until the lease is renewed after it."""
    renewed = threading.Event()
    renew = bench.journal.batches.renew

    def seen(*args: Any) -> None:
        renew(*args)
        renewed.set()

    bench.clock.now += seconds
    bench.journal.batches.renew = seen  # type: ignore[method-assign]
    assert renewed.wait(20)
    bench.journal.batches.renew = renew  # type: ignore[method-assign]


def test_it_is_kept_without_a_tick_and_ends_with_it(bench: Bench) -> None:
    with KeptLease(bench.journal, claimed(bench), LEASE_S):
        for _ in range(3):
            passes_by(bench, 0.9 * LEASE_S)
            assert bench.journal.batches.claim("another", LEASE_S) is None
    bench.clock.now += 1.1 * LEASE_S
    assert bench.journal.batches.claim("another", LEASE_S) is not None


def test_a_trainer_that_is_silent_for_too_long_loses_it(bench: Bench) -> None:
    ticks: list[str] = []
    with KeptLease(bench.journal, claimed(bench), LEASE_S, longest_s=0.0) as kept:
        kept.told_by(lambda phase, done, total: ticks.append(phase))("training", 0, 1)
        assert ticks == ["training"]
        calls: list[object] = []
        bench.journal.batches.renew = lambda *given: calls.append(given)  # type: ignore[method-assign]
        time.sleep(LEASE_S)  # several times as long as between two renewals
        assert calls == []
        bench.clock.now += 1.1 * LEASE_S
        assert bench.journal.batches.claim("another", LEASE_S) is not None


def test_a_lease_that_is_lost_is_left_alone(bench: Bench) -> None:
    batch = claimed(bench)
    bench.clock.now += 1.1 * LEASE_S
    other = claimed(bench)
    with KeptLease(bench.journal, batch, LEASE_S):
        wait_until(lambda: not any(t.name == "keeps the lease" for t in threading.enumerate()))
    with pytest.raises(LeaseLost):
        bench.journal.batches.renew(batch, LEASE_S)
    bench.journal.batches.renew(other, LEASE_S)


def test_an_update_with_a_long_pass_keeps_its_batch(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, others = Trainer.train, []

    def slow(self: Trainer, *args: Any) -> Any:
        for _ in range(2):
            passes_by(bench, 0.9 * LEASE_S)
            others.append(bench.journal.batches.claim("another", LEASE_S))
        return train(self, *args)

    monkeypatch.setattr(Trainer, "train", slow)
    assert bench.claim_and_work()
    assert others == [None, None]
    assert bench.journal.versions.latest() == 1
