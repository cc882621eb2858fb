"""Two trainers on one batch, one of them held up where it hurts: what is recorded is never touched by the other."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors import SafetensorError

from tests.support.servers import wait_until
from tests.training.homes import Bench, feed, settings
from turnwise import files
from turnwise.journal import Journal
from turnwise.journal.queue.batches import Batches
from turnwise.training import publish
from turnwise.training.publish import clean_leftovers, numbers_on_disk, version_dir
from turnwise.training.update import Trainer
from turnwise.training.weights import lora
from turnwise.training.worker import work
from turnwise.types import TurnState


@pytest.fixture
def bench(tmp_path: Path, tiny_dir: Path):
    made = Bench(settings(tmp_path / "home", tiny_dir, **{"gate.enabled": False}))
    yield made
    made.journal.close()


def contents(bench: Bench) -> dict[str, str]:
    """Every file of every version, by its digest."""
    folder = bench.config.versions_dir
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("v*/*"))}


def check(bench: Bench) -> None:
    """The journal names directories that are there and whole, and nothing else is called a version."""
    recorded = [v.number for v in bench.journal.versions.all()]
    assert numbers_on_disk(bench.config.versions_dir) == recorded
    for number in recorded:
        assert bench.weights(number)
    assert not list(bench.config.versions_dir.glob(".*.tmp"))


Point = Callable[[pytest.MonkeyPatch, Callable[[], None]], None]


def before(owner: object, name: str) -> Point:
    """Stop in front of a call."""

    def place(patch: pytest.MonkeyPatch, stop: Callable[[], None]) -> None:
        real = getattr(owner, name)
        patch.setattr(owner, name, lambda *a, **k: (stop(), real(*a, **k))[1])

    return place


POINTS: dict[str, Point] = {
    "before its number": before(Batches, "reserve_version"),
    "before it writes": before(lora, "save_file"),
    "before it syncs": before(publish, "sync_all"),
    "before it records": before(Batches, "finish"),
    "before the optimiser's state": before(publish, "write_moments"),
    "before it prunes": before(Trainer, "prune"),
}


@pytest.mark.parametrize("where", POINTS)
def test_a_trainer_held_up_while_another_publishes_touches_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    feed(bench.journal, range(8))
    slow = bench.journal.batches.claim("slow", 60)
    assert slow is not None
    seen: list[dict[str, str]] = []

    def meanwhile() -> None:
        if seen:
            return
        seen.append({})
        bench.expire_lease()
        while bench.claim_and_work():  # the same batch by another trainer, and the next one
            pass
        seen.append(contents(bench))

    with monkeypatch.context() as patch:
        POINTS[where](patch, meanwhile)
        trainer = Trainer(bench.config, Path(bench.config.model.path))
        with suppress(
            FileNotFoundError, SafetensorError
        ):  # the other one swept what it was writing: a loop ends and starts again
            work(bench.config, bench.journal, trainer, slow, bench.stop, bench.clock)
    assert contents(bench) == seen[1] and len(bench.journal.versions.all()) == 2
    assert bench.turns() == {TurnState.TRAINED: 8}
    check(bench)
    feed(bench.journal, range(8, 12))
    assert bench.claim_and_work(), "and training goes on"
    check(bench)


def test_nobody_takes_the_batch_over_while_its_version_is_put_in_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is given while the journal lets nobody else write: whoever wants the batch waits for it."""
    feed(bench.journal, range(4))
    slow = bench.journal.batches.claim("slow", 60)
    assert slow is not None
    claimed: list[object] = []
    other = Journal.open(bench.config, bench.clock)
    claiming = threading.Thread(target=lambda: claimed.append(other.batches.claim("fast", 60)))
    real = publish.put_in_place

    def held_up(work: Path, target: Path) -> None:
        bench.expire_lease()
        claiming.start()
        claiming.join(0.5)
        assert not claimed
        real(work, target)

    monkeypatch.setattr(publish, "put_in_place", held_up)
    trainer = Trainer(bench.config, Path(bench.config.model.path))
    work(bench.config, bench.journal, trainer, slow, bench.stop, bench.clock)
    claiming.join(20)
    other.close()
    assert claimed == [None], "there is nothing left to do"
    assert bench.journal.versions.latest() == 1
    check(bench)


def test_what_could_not_be_recorded_is_a_leftover_and_no_version(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(bench.journal, range(8))
    assert bench.claim_and_work()
    first = contents(bench)

    class Gone(BaseException):
        pass

    real = files._sync

    def killed(path: Path) -> None:
        real(path)
        if path == bench.config.versions_dir:
            raise Gone  # in place, and not yet recorded

    with monkeypatch.context() as patch, pytest.raises(Gone):
        patch.setattr(files, "_sync", killed)
        bench.claim_and_work()
    assert numbers_on_disk(bench.config.versions_dir) == [1, 2]
    assert [v.number for v in bench.journal.versions.all()] == [1]
    clean_leftovers(bench.journal, bench.config.versions_dir)
    assert contents(bench) == first
    bench.expire_lease()
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 2
    check(bench)


def test_directories_of_a_journal_that_was_replaced_are_left_and_passed_over(bench: Bench) -> None:
    theirs = version_dir(bench.config.versions_dir, 7)
    theirs.mkdir(parents=True)
    (theirs / "adapter_model.safetensors").write_bytes(b"theirs")
    clean_leftovers(bench.journal, bench.config.versions_dir)
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 8
    clean_leftovers(bench.journal, bench.config.versions_dir)
    assert (theirs / "adapter_model.safetensors").read_bytes() == b"theirs"


def stop_between_writes(pid: int, journal: Path) -> None:
    """Stop a process while it does not hold the journal's write lock, which nobody could take from it."""
    for _ in range(100):
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)  # until it has stopped
        with contextlib.closing(sqlite3.connect(journal, timeout=0.5, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            else:
                connection.execute("ROLLBACK")
                return
    raise AssertionError("the process was writing whenever it was stopped")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_process_that_slept_over_its_lease_touches_nothing(tmp_path: Path, tiny_dir: Path) -> None:
    """Two real processes; the first is stopped by a signal in the middle of its batch, and woken up when it is late."""
    home = tmp_path / "home"
    config = settings(home, tiny_dir, **{"gate.enabled": False, "train.epochs": 40, "train.lease_s": 1.0})
    file = tmp_path / "config.toml"
    file.write_text(
        f'home = "{home}"\n[model]\npath = "{tiny_dir}"\n[train]\nwhen = "always"\nlr = 3e-3\n'
        "lora_rank = 4\nmin_batch = 4\n"
        'max_batch = 4\nminibatch = 2\nmicrobatch_tokens = 64\ndevice = "cpu"\ndtype = "float32"\nthreads = 1\n'
        "lease_s = 1.0\nepochs = 40\n[gate]\nenabled = false\n"
    )
    bench = Bench(config)
    bench.journal.close()
    bench.journal = Journal.open(config)
    feed(bench.journal, range(4))
    processes = []

    def start() -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen([sys.executable, "-m", "turnwise.training", "--config", str(file)]))
        return processes[-1]

    try:
        slow = start()
        wait_until(lambda: bench.journal.status.figures()["loops"].get("trainer", {}).get("state") == "training", 120)
        stop_between_writes(slow.pid, config.journal_path)
        start()
        wait_until(lambda: bench.journal.versions.latest() == 1, 120)
        published = contents(bench)
        os.kill(slow.pid, signal.SIGCONT)
        feed(bench.journal, range(4, 8))
        wait_until(lambda: bench.journal.versions.latest() == 2, 120)
        assert {k: v for k, v in contents(bench).items() if k.startswith("v1/")} == published
        check(bench)
        assert bench.turns() == {TurnState.TRAINED: 8}
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            process.wait(timeout=30)
        bench.journal.close()
