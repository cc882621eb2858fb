"""A clock that jumps decides nothing: not what serves, who holds a lease, what is old, nor the order of anything."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.test_queue import judged, publish_next, waiting_for_judge
from tests.support.earlier import take_back
from tests.support.versions import answered, publish
from turnwise.config import Config, load_config
from turnwise.errors import JournalFull, LeaseLost
from turnwise.journal import Journal, clocks, store
from turnwise.journal.read_only import read_ours
from turnwise.judges import worker
from turnwise.types import PolicyVersion, TurnState, Verdict

YEAR = 365 * 86400.0


class Time:
    """A wall clock that is set at will, and a monotonic one that only goes on."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_700_000_000.0, 5000.0

    def clock(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        self.mono += 1e-3
        return self.mono


def opened(config: Config, time: Time, boot: str = "boot-1") -> Journal:
    return Journal.open(config, time.clock, time.monotonic, boot)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def config(home: Path) -> Config:
    return load_config(overrides={"home": home, "train.min_batch": 2, "train.max_batch": 2, "train.max_age_s": 100})


@pytest.fixture
def queue(config: Config, time: Time) -> Iterator[Journal]:
    journal = opened(config, time)
    yield journal
    journal.close()


@pytest.mark.parametrize("jump", [-YEAR, -3600.0, 3600.0, YEAR])
def test_the_last_published_version_serves_whatever_the_clock_says(queue: Journal, time: Time, jump: float) -> None:
    assert [publish(queue) for _ in range(1)] == [1]
    time.wall += jump
    assert (publish(queue), queue.versions.latest()) == (2, 2)
    time.wall -= 2 * jump
    assert (publish(queue), queue.versions.latest()) == (3, 3)
    queue.versions.serve(1)
    time.wall += jump
    assert queue.versions.latest() == 1
    assert (publish(queue), queue.versions.latest()) == (4, 4)
    queue.versions.serve(0)
    assert queue.versions.latest() == 0


def test_a_lease_given_under_a_clock_a_year_ahead_blocks_nothing(queue: Journal, time: Time) -> None:
    judged(queue), judged(queue)
    time.wall += YEAR
    first = queue.batches.claim("one", 60)
    assert first is not None
    time.wall -= YEAR
    time.mono += 61
    again = queue.batches.claim("two", 60)
    assert again is not None and again.id == first.id


@pytest.mark.parametrize("further", [3600.0, YEAR, 1e12])
def test_a_deadline_further_away_than_any_lease_is_over(queue: Journal, time: Time, further: float) -> None:
    judged(queue), judged(queue)
    waiting = answered(queue)
    waiting_for_judge(queue, waiting)
    assert queue.batches.claim("one", 60) and queue.judging.claim("j", 5, 60)
    with queue.store.transaction() as c:
        for table in ("turns", "batches"):
            c.exec_driver_sql(f"UPDATE {table} SET lease_until = lease_until + {further}")
    assert queue.batches.claim("two", 60) is not None
    assert [t.turn_id for t in queue.judging.claim("k", 5, 60)] == [waiting]


def test_a_wait_longer_than_any_is_over(queue: Journal, time: Time) -> None:
    assert worker.MAX_RETRY_S <= clocks.LONGEST_RETRY_S
    turn = answered(queue)
    waiting_for_judge(queue, turn)
    [task] = queue.judging.claim("j", 5, 60)
    queue.judging.failed(task, "503", retry_in_s=YEAR, max_attempts=9)
    assert queue.judging.claim("j", 5, 60) == []
    time.mono += clocks.LONGEST_RETRY_S
    assert queue.judging.claim("j", 5, 60) != []
    with queue.store.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET lease_until = NULL, retry_at = 1e12")
    assert queue.judging.claim("j", 5, 60) != []


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_a_jump_makes_no_sample_old_and_keeps_none_young(queue: Journal, time: Time, jump: float) -> None:
    judged(queue)
    time.wall += jump
    assert queue.batches.claim("t", 60) is None
    time.mono += 101
    assert queue.batches.claim("t", 60) is not None


@pytest.mark.parametrize("uptime", [1.0, 1e9], ids=["a younger boot", "an older boot"])
def test_what_another_boot_left_blocks_nothing_in_this_one(config: Config, time: Time, uptime: float) -> None:
    before = opened(config, time)
    judged(before), judged(before)
    batch = before.batches.claim("dead", 60)
    assert batch is not None
    waiting = answered(before)
    waiting_for_judge(before, waiting)
    assert before.judging.claim("dead", 5, 60)
    alone = judged(before, session_id="alone")
    before.close()
    time.mono = uptime
    after = opened(config, time, "boot-2")
    again = after.batches.claim("t", 60)
    assert again is not None and again.samples == batch.samples
    with pytest.raises(LeaseLost):
        after.batches.renew(batch, 60)
    assert [t.turn_id for t in after.judging.claim("j", 5, 60)] == [waiting]
    after.batches.finish(again, PolicyVersion(1, 0, "versions/v1", 0.0))
    last = after.batches.claim("t", 60)
    assert last is not None and [s.turn_id for s in last.samples] == [alone], "it has waited long enough"
    assert after.sessions.idle(time.monotonic() - 60) == [], "idle time begins anew"
    [row, *_] = after.lookups.same_request("client", alone)
    assert not after.lookups.is_recent(row, 1e12), "nor is a turn of before a retry's"
    after.close()


@pytest.mark.files
def test_the_supervisor_lets_go_of_every_lease_at_its_start(queue: Journal, time: Time) -> None:
    judged(queue), judged(queue)
    turn = answered(queue)
    waiting_for_judge(queue, turn)
    batch = queue.batches.claim("dead", 60)
    [task] = queue.judging.claim("dead", 5, 60)
    assert batch is not None
    queue.store.end_leases()
    assert queue.batches.claim("t", 60) is not None
    assert queue.judging.claim("j", 5, 60) != []
    with pytest.raises(LeaseLost):
        queue.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", 0.0))
    with pytest.raises(LeaseLost):
        queue.judging.record(task, Verdict(1, None, "signals"))


@pytest.mark.parametrize("jump", [-YEAR, -3600.0, 3600.0, YEAR])
def test_sessions_are_idle_by_the_time_that_passed(queue: Journal, time: Time, jump: float) -> None:
    answered(queue)
    time.wall += jump
    assert queue.sessions.idle(time.monotonic() - 60) == []
    time.mono += 61
    assert queue.sessions.idle(time.monotonic() - 60) == ["session-1"]


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_a_retry_is_one_by_the_time_that_passed(queue: Journal, time: Time, jump: float) -> None:
    turn = answered(queue)
    time.wall += jump
    [row] = queue.lookups.same_request("client", turn)
    assert queue.lookups.is_recent(row, 60)
    time.mono += 61
    assert not queue.lookups.is_recent(row, 60)


def test_order_is_that_of_asking_while_the_clock_goes_back(queue: Journal, time: Time) -> None:
    same = {"request_hash": "same", "client": "c"}
    turns = []
    for _ in range(4):
        turns.append(answered(queue, session_id=f"s{len(turns)}", **same))
        time.wall -= 1000
    for turn in turns:
        waiting_for_judge(queue, turn)
        time.wall -= 1000
    assert [row.id for row in queue.lookups.same_request("c", "same")] == turns[::-1]
    assert [t.turn_id for t in queue.judging.claim("j", 2, 60)] == turns[:2]
    assert [t.turn_id for t in queue.judging.claim("j", 2, 60)] == turns[2:]
    assert [row["id"] for row in queue.sessions.last_seen()] == ["s3", "s2", "s1", "s0"]


@pytest.mark.files
def test_the_order_outlives_a_vacuum(queue: Journal) -> None:
    turns = [answered(queue, request_hash="same", client="c") for _ in range(9)]
    with queue.store.transaction() as c:
        c.exec_driver_sql(f"DELETE FROM turns WHERE id IN ('{turns[0]}', '{turns[4]}')")
    queue.store.engine.dispose()
    with sqlite3.connect(queue.store.config.journal_path) as db:
        db.execute("VACUUM")
    db.close()
    turns = [t for i, t in enumerate(turns) if i not in (0, 4)]
    turns.append(answered(queue, request_hash="same", client="c"))
    assert [row.id for row in queue.lookups.same_request("c", "same")] == turns[::-1]


@pytest.mark.files
def test_the_last_sign_of_a_loop_is_as_old_as_the_time_that_passed(config: Config, queue: Journal, time: Time) -> None:
    queue.status.say("judge", {})
    time.wall -= YEAR
    queue.store.now = lambda _: time.mono + 7
    with queue.store.transaction() as c:
        clocks.set_meta(c, "boot", clocks.boot_id())
    assert 6.9 <= queue.status.figures()["loops"]["judge"]["seconds_ago"] <= 7.1
    assert read_ours(config, lambda j: j.status.figures()["loops"]["judge"]["seconds_ago"]) >= 0


def test_every_process_of_a_boot_calls_it_the_same() -> None:
    assert clocks.boot_id() == clocks.boot_id() != ""


def test_without_the_kernels_word_the_start_of_the_machine_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "BOOT_ID", Path("/no/such/file"))
    assert clocks.boot_id() == clocks.boot_id()
    assert clocks.boot_id().startswith("started-")


@pytest.mark.files
@pytest.mark.parametrize(
    ("times", "serves"),
    [
        ("SET published_at = 1e9 - number", 3),  # the clock went back between them, and nobody rolled back
        ("SET served_at = CASE number WHEN 1 THEN 2e9 END", 1),  # a rollback to version 1
        ("SET served_at = 0", 0),  # a rollback to the base model
        ("SET served_at = CASE number WHEN 3 THEN NULL ELSE 0 END", 3),  # and one published after it
    ],
)
def test_a_journal_of_before_serves_what_it_should(config: Config, times: str, serves: int) -> None:
    journal = Journal.open(config)
    for _ in range(3):
        publish(journal)
    take_back(journal, "0004")
    journal.close()
    with sqlite3.connect(config.journal_path) as db:
        db.execute("UPDATE versions SET served_at = NULL")
        db.execute(f"UPDATE versions {times}")
    db.close()
    journal = Journal.open(config)
    assert journal.versions.latest() == serves
    assert publish(journal) == journal.versions.latest() == 4
    journal.close()


def test_numbers_are_kept_for_a_batch_and_never_given_out_again(queue: Journal, time: Time) -> None:
    for _ in range(2):
        judged(queue), judged(queue)
    publish_next(queue)
    batch = queue.batches.claim("one", 60)
    assert batch is not None
    assert queue.batches.reserve_version(batch) == queue.batches.reserve_version(batch, above=40) == 2
    time.mono += 61
    again = queue.batches.claim("two", 60)
    assert again is not None
    with pytest.raises(LeaseLost):
        queue.batches.reserve_version(batch)
    assert queue.batches.reserve_version(again) == 2, "the next trainer of the batch has the same"
    queue.batches.release(again)
    released = queue.batches.claim("three", 60)
    assert released is not None and queue.batches.reserve_version(released, above=7) == 8
    assert queue.status.figures()["turns"][TurnState.LEASED] == 2


def test_a_boot_that_a_full_disk_kept_out_is_entered_before_any_lease_of_it(
    queue: Journal, config: Config, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is full is a stand-in; the journals are those of a trainer and, later, of a command."""
    judged(queue), judged(queue)
    dead = queue.batches.claim("dead", 60)
    queue.close()

    def full(*_: object) -> None:
        raise JournalFull("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "enter_boot", full)
        trainer = opened(config, time, "boot-2")
    batch = trainer.batches.claim("t", 60)
    assert dead is not None and batch is not None, "with its first write the leases of the last boot end"
    opened(config, time, "boot-2").close()
    trainer.batches.renew(batch, 60)
    trainer.close()


def test_a_session_that_is_seen_again_is_not_closed_as_idle(queue: Journal, time: Time) -> None:
    answered(queue)
    time.mono += 61
    before = time.monotonic() - 60
    assert queue.sessions.idle(before) == ["session-1"]
    turn = answered(queue)
    assert not queue.sessions.close("session-1", "idle", before)
    assert queue.turns.get(turn).state is TurnState.WAITING
    time.mono += 61
    assert queue.sessions.close("session-1", "idle", time.monotonic() - 60)
