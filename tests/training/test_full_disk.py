"""Training on a disk that is really full: no sample is spent, nothing is half written, and it goes on by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.servers import wait_until
from tests.support.small_disk import SmallDisk, small_disk
from tests.training.homes import Bench, feed, same, settings
from turnwise.training import worker
from turnwise.training.publish import numbers_on_disk
from turnwise.training.update import Trainer
from turnwise.training.worker import run
from turnwise.types import TurnState

__all__ = ["small_disk"]


@pytest.mark.parametrize("full_at", ["the claim", "publishing"])
def test_a_full_disk_spends_nothing_and_training_goes_on_when_there_is_room(
    small_disk: SmallDisk, tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, full_at: str
) -> None:
    monkeypatch.setattr(worker, "ROOM_S", 0.2)
    reference = Bench(settings(tmp_path / "reference", tiny_dir))
    bench = Bench(settings(small_disk.path / "home", tiny_dir))
    for each in (reference, bench):
        feed(each.journal, range(4))
    assert reference.claim_and_work()
    tries: list[str] = []

    def fill_before(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def filling(*args: object, **kwargs: object) -> object:
            if not tries:
                small_disk.fill()
            tries.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, filling)

    if full_at == "the claim":
        small_disk.fill()
    else:
        fill_before(Trainer, "stage")
    thread = threading.Thread(target=run, args=(bench.config, bench.stop), daemon=True)
    thread.start()
    try:
        wait_until(lambda: tries or full_at == "the claim", 60)
        thread.join(3)
        assert thread.is_alive(), "it waits; nobody has to start it again"
        assert bench.journal.versions.latest() == 0
        assert numbers_on_disk(bench.config.versions_dir) == []
        assert sum(bench.turns().get(s, 0) for s in (TurnState.READY, TurnState.LEASED)) == 4, "nothing is spent"
        small_disk.empty()
        wait_until(lambda: bench.journal.versions.latest() == 1, 60)
    finally:
        bench.stop.set()
        thread.join(30)
    assert same(bench.weights(1), reference.weights(1))
    assert bench.turns() == {TurnState.TRAINED: 4}
    assert not list(bench.config.versions_dir.glob(".*"))
    for each in (reference, bench):
        each.journal.close()
