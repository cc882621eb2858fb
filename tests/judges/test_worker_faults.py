"""The judge loop when something fails: the disk, the machine, the turn, another judge. The journal is a real one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.judges.test_worker import Scripted, add_turn, down, good, settings, state, until, work_until
from turnwise.config import Config
from turnwise.errors import JournalError, JournalUnavailable, LeaseLost
from turnwise.journal import Journal, schema
from turnwise.judges.child import ChildUnavailable, TooSlow
from turnwise.judges.choice import SignalJudge
from turnwise.judges.signals.states import StatesUnavailable
from turnwise.judges.worker import Worker, run
from turnwise.types import FinishReason, JudgeTask, TurnState, Verdict


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def failing(part: Any, name: str, *faults: Exception) -> list[tuple[Any, ...]]:
    """From now on this method raises these, one call after the other, and then does its work. Gives its calls."""
    does, left, calls = getattr(part, name), list(faults), []

    def tried(*arguments: Any) -> Any:
        calls.append(arguments)
        if left:
            raise left.pop(0)
        return does(*arguments)

    setattr(part, name, tried)
    return calls


def turn_row(journal: Journal, turn: str) -> tuple[int, str | None]:
    """Its tries, and the words of its last fault."""
    with journal.store.reading() as c:
        row = c.execute(select(schema.turns.c.attempts, schema.turns.c.last_error).where(schema.turns.c.id == turn))
        return tuple(row.one())


def raising(*faults: Exception) -> Scripted:
    """A judge that fails so, and then judges."""
    left = list(faults)

    async def answer(task: JudgeTask) -> Verdict:
        if left:
            raise left.pop(0)
        return await good(task)

    return Scripted(answer)


def ready(journal: Journal, *turns: str) -> Callable[[], bool]:
    return lambda: all(state(journal, turn) is TurnState.READY for turn in turns)


# -- a fault of the turn's ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "waits"), [(600.0, [0.01, 0.02, 0.04, 0.08]), (0.03, [0.01, 0.02, 0.03, 0.03])])
async def test_waits_between_the_tries_of_a_turn_double_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float, waits: list[float]
) -> None:
    monkeypatch.setattr("turnwise.judges.worker.MAX_RETRY_S", most)
    monkeypatch.setattr("turnwise.judges.worker.POLL_S", 0.01)
    config = settings(tmp_path, max_attempts=4)
    journal = Journal.open(config)
    turn = add_turn(journal, "aaa", "hm")
    calls = failing(journal.judging, "failed")
    worker = Worker(config, journal, Scripted(down))
    await work_until(worker, lambda: state(journal, turn) is TurnState.EXCLUDED)
    journal.close()
    assert [(task.turn_id, words, wait, of) for task, words, wait, of in calls] == [
        (turn, "the endpoint is down", wait, 4) for wait in waits
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (TooSlow("it took too long"), "it took too long"),
        (ValueError("odd \ud83d"), "ValueError: odd \ufffd"),
        (MemoryError(), "MemoryError: "),
    ],
)
async def test_whatever_a_turn_makes_of_the_judge_is_a_try_of_that_turn(
    journal: Journal, tmp_path: Path, fault: Exception, words: str
) -> None:
    turn = add_turn(journal, "aaa", "hm")
    judge = raising(fault)
    worker = Worker(settings(tmp_path), journal, judge)
    failed = failing(journal.judging, "failed")
    await work_until(worker, ready(journal, turn))
    assert [call[1] for call in failed] == [words]
    assert turn_row(journal, turn)[0] == 2


# -- a fault of the machine's ------------------------------------------------------------------------------------------


MACHINE_FAULTS = [StatesUnavailable("the engine is busy"), ChildUnavailable("no memory")]


def said_error(journal: Journal) -> str | None:
    return (journal.status.last("judge") or ({},))[0].get("error")


@pytest.mark.parametrize("fault", MACHINE_FAULTS)
async def test_a_turn_waits_for_the_machine_uncounted_and_so_do_the_next_ones(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr("turnwise.judges.worker.HEARTBEAT_S", 0.02)
    monkeypatch.setattr("turnwise.judges.worker.POLL_S", 0.02)
    turn = add_turn(journal, "aaa", "hm")
    judge = raising(fault)
    claims = failing(journal.judging, "claim")
    beats = failing(journal.status, "say")
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path, retry_s=600), journal, judge).run(stop))
    await until(lambda: said_error(journal) == str(fault))
    await until(lambda: turn_row(journal, turn) == (0, None))
    before, turns_of_the_loop = len(claims), len(beats) + 5
    await until(lambda: len(beats) >= turns_of_the_loop)
    assert len(claims) == before, "nothing is taken meanwhile"
    stop.set()
    await asyncio.wait_for(running, 10)
    assert (len(judge.calls), state(journal, turn)) == (1, TurnState.JUDGING)


async def test_what_was_being_claimed_when_the_machine_failed_is_given_back_uncounted(
    journal: Journal, tmp_path: Path
) -> None:
    turn, claims = add_turn(journal, "aaa", "hm"), []
    claim = journal.judging.claim

    def slow(*arguments: Any) -> list[JudgeTask]:
        """The second one begins while the turn is judged, and claims it as it was given back."""
        claims.append(claim(*arguments) if not claims else None)
        if claims[-1] is None:
            deadline = time.monotonic() + 20
            while turn_row(journal, turn) != (0, None) and time.monotonic() < deadline:
                time.sleep(0.01)
            claims[-1] = claim(*arguments)
        return claims[-1]

    async def answer(_: JudgeTask) -> Verdict:
        await until(lambda: len(claims) == 2)
        raise StatesUnavailable("the engine is busy")

    journal.judging.claim = slow  # type: ignore[method-assign]
    judge, stop = Scripted(answer), asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path, retry_s=600, concurrency=2), journal, judge).run(stop))
    await until(lambda: len(claims) == 2 and claims[1])
    assert [task.turn_id for task in claims[1]] == [turn]
    await until(lambda: turn_row(journal, turn) == (0, None))
    stop.set()
    await asyncio.wait_for(running, 10)
    assert (len(judge.calls), state(journal, turn)) == (1, TurnState.JUDGING)


@pytest.mark.parametrize("fault", MACHINE_FAULTS)
async def test_a_turn_is_judged_once_the_machine_can_and_the_fault_is_said_no_more(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr("turnwise.judges.worker.HEARTBEAT_S", 0.02)
    turn = add_turn(journal, "aaa", "hm")
    judge = raising(fault)
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path, retry_s=0.05), journal, judge).run(stop))
    await until(ready(journal, turn))
    beats = failing(journal.status, "say")
    await until(lambda: len(beats) >= 3)
    assert said_error(journal) is None
    stop.set()
    await asyncio.wait_for(running, 10)
    assert (len(judge.calls), turn_row(journal, turn)) == (2, (1, None))


async def test_a_verdict_waits_for_a_full_disk_and_is_not_judged_anew(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    judge = Scripted(good)
    records = failing(journal.judging, "record", JournalUnavailable("full"), JournalUnavailable("full"))
    await work_until(Worker(settings(tmp_path), journal, judge), ready(journal, turn))
    assert (len(records), judge.calls) == (3, [turn])


async def test_a_busy_journal_is_said_once_and_looked_into_again(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.judges.worker.POLL_S", 0.01)
    turn = add_turn(journal, "aaa", "hm")
    failing(journal.judging, "claim", *[JournalError("locked")] * 3, JournalError("full"))
    with caplog.at_level(logging.WARNING):
        await work_until(Worker(settings(tmp_path), journal, Scripted(good)), ready(journal, turn))
    said = [record.getMessage() for record in caplog.records if "the journal is busy" in record.getMessage()]
    assert said == ["the journal is busy: locked", "the journal is busy: full"]


async def test_signs_of_life_that_cannot_be_written_stop_no_judging(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    failing(journal.status, "say", *[JournalError("locked")] * 9)
    await work_until(Worker(settings(tmp_path), journal, Scripted(good)), ready(journal, turn))


# -- the lease ---------------------------------------------------------------------------------------------------------


async def test_a_lease_that_cannot_be_renewed_for_once_is_kept(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    renewed = failing(journal.judging, "renew", JournalError("locked"))

    async def slow(task: JudgeTask) -> Verdict:
        await until(lambda: len(renewed) >= 2)
        return await good(task)

    judge = Scripted(slow)
    await work_until(Worker(settings(tmp_path, lease_s=1.5), journal, judge), ready(journal, turn))
    assert judge.calls == [turn]
    assert {seconds for _, seconds in renewed} == {1.5}


async def test_a_turn_that_went_to_another_judge_is_dropped_at_once(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn = add_turn(journal, "aaa", "hm")
    failing(journal.judging, "renew", LeaseLost("another has it"))
    records = failing(journal.judging, "record")
    dropped = asyncio.Event()

    async def for_ever(task: JudgeTask) -> Verdict:
        try:
            await asyncio.sleep(3600)
        finally:
            dropped.set()
        raise AssertionError

    with caplog.at_level(logging.INFO):
        worker = Worker(settings(tmp_path, lease_s=0.2), journal, Scripted(for_ever))
        await work_until(worker, dropped.is_set)
    assert records == []
    assert f"turn {turn} went to another judge" in caplog.text


# -- how many at once, and what decides --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
async def test_as_many_turns_as_configured_are_judged_side_by_side(journal: Journal, tmp_path: Path, most: int) -> None:
    turns = [add_turn(journal, f"t{i:02d}", "hm") for i in range(6)]
    at_once: set[str] = set()
    seen: list[int] = []

    async def slow(task: JudgeTask) -> Verdict:
        at_once.add(task.turn_id)
        seen.append(len(at_once))
        await asyncio.sleep(0.05)
        at_once.remove(task.turn_id)
        return await good(task)

    await work_until(Worker(settings(tmp_path, concurrency=most), journal, Scripted(slow)), ready(journal, *turns))
    assert max(seen) == most


async def test_a_reply_about_the_cut_alone_is_neutral_and_says_why(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "please continue", FinishReason.LENGTH)
    judge = Scripted(good)
    await work_until(Worker(settings(tmp_path), journal, judge), lambda: state(journal, turn) is TurnState.EXCLUDED)
    assert judge.calls == []
    with journal.store.reading() as c:
        columns = (schema.verdicts.c.score, schema.verdicts.c.judge, schema.verdicts.c.reason)
        [verdict] = c.execute(select(*columns)).all()
    assert tuple(verdict) == (0, "signals", "the answer was cut off, and what came back is about that alone")


async def test_foreign_text_is_read_where_the_loop_is_told_to(journal: Journal, tmp_path: Path) -> None:
    did: set[str] = set()

    async def work(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        did.add(function.__name__)
        return function(*args, **kwargs)

    turn = add_turn(journal, "aaa", "You were cut off. And no, that is wrong!", FinishReason.LENGTH)
    await work_until(Worker(settings(tmp_path), journal, SignalJudge(work), work), ready(journal, turn))
    assert did == {"apart_from_the_cut", "read"}


async def test_the_loop_begins_when_the_gateway_has_written_its_token(journal: Journal, tmp_path: Path) -> None:
    config = settings(tmp_path, kind="model", retry_s=0.05)
    stop = asyncio.Event()
    running = asyncio.create_task(run(config, stop))

    def last() -> dict[str, Any]:
        return (journal.status.last("judge") or ({},))[0]

    await until(lambda: "token" in str(last().get("error")))
    config.token_path.write_text("the-token", encoding="utf-8")
    await until(lambda: last().get("by") == "model turnwise@base")
    assert last()["error"] is None
    stop.set()
    await asyncio.wait_for(running, 10)
    assert last() == {"state": "stopped", "error": None, "by": None}


async def test_the_loop_judges_by_the_engine_that_it_is_given(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.judges.worker.HEARTBEAT_S", 0.02)
    turn = add_turn(journal, "aaa", "No, that is wrong!")
    config = Config.model_validate({"home": tmp_path, "model": {"path": "someone/model"}})
    stop = asyncio.Event()
    running = asyncio.create_task(run(config, stop, "http://127.0.0.1:9"))
    await until(ready(journal, turn))
    by = "signals, the words alone (the model is no local folder)"
    await until(lambda: (journal.status.last("judge") or ({},))[0].get("by") == by)
    stop.set()
    await asyncio.wait_for(running, 10)
