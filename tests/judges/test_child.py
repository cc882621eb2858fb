"""Foreign text is read in a child that can be killed: nothing it does to a pattern stops the judge.

The hang is a real one: a pattern of exponential time, planted here, which holds the interpreter's lock of its process.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from tests.judges.test_worker import add_turn, settings, state, until, work_until
from turnwise.journal import Journal, schema
from turnwise.judges.child import Child, ChildUnavailable, TooSlow
from turnwise.judges.choice import SignalJudge
from turnwise.judges.worker import Worker
from turnwise.messages import text_of
from turnwise.types import Exclusion, TurnState

HANGS = (re.search, r"(?:a|aa)+$", "a" * 80 + "!")
FOREVER = "Too long, make it shorter" + " please" * 40 + "!x"
"""A reply of 310 characters that once stopped the judge for ever."""


@pytest.fixture
async def child() -> AsyncIterator[Child]:
    made = Child(deadline_s=20)
    yield made
    await made.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_a_child_gives_results_and_the_words_of_faults(child: Child) -> None:
    assert await child(divmod, 7, 2) == (3, 1)
    assert await child("half \ud83d".upper) == "HALF \ud83d"
    with pytest.raises(RuntimeError, match="ZeroDivisionError: "):
        await child(divmod, 7, 0)
    assert await child(len, "x" * 9_000_000) == 9_000_000  # larger than any pipe


async def test_calls_wait_for_each_other_and_each_has_its_own_result(child: Child) -> None:
    found = await asyncio.gather(*(child(divmod, n, 7) for n in range(30)), child(sorted, "cab", reverse=True))
    assert found == [*(divmod(n, 7) for n in range(30)), ["c", "b", "a"]]


async def test_what_is_printed_in_a_child_stands_between_no_results(child: Child) -> None:
    assert await child(print, "x" * 9000, flush=True) is None
    assert await child(os.write, 1, b"more of it") == 10
    assert await child(len, "four") == 4


async def test_a_pressed_control_c_is_the_judges_to_handle(child: Child) -> None:
    await child(len, "")
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    assert await child(len, "four") == 4
    assert child.pid == pid


async def test_a_closed_child_is_gone_and_the_next_call_has_another(child: Child) -> None:
    assert child.pid is None and await child.close() is None, "none is started before there is work"
    assert await child(len, "four") == 4
    pid = child.pid
    assert pid is not None
    assert await child.close() == -signal.SIGKILL
    assert child.pid is None and gone(pid)
    assert await child(len, "four") == 4
    assert child.pid != pid


async def test_a_deadline_is_of_one_call_and_not_of_all_of_them() -> None:
    child = Child(deadline_s=1.2)
    try:
        await child(len, "")
        pid = child.pid
        for _ in range(3):
            await child(time.sleep, 0.45)
        assert child.pid == pid
    finally:
        await child.close()


async def test_the_childs_own_alarm_ends_it_where_its_judge_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace is made negative, so that the alarm comes before the judge's deadline."""
    monkeypatch.setattr("turnwise.judges.child.ALARM_GRACE_S", -19.5)
    child = Child(deadline_s=20)
    try:
        assert await child(len, "four") == 4
        await asyncio.sleep(0.7)
        assert await child(len, "four") == 4, "no alarm rings for a call that has ended"
        with pytest.raises(TooSlow, match=f"ended with code {-signal.SIGALRM}: "):
            await child(*HANGS)
    finally:
        await child.close()


async def test_a_child_of_another_parent_ends_at_once() -> None:
    command = [sys.executable, "-P", "-m", "turnwise.judges.child", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, out) == (0, b"")


async def test_a_child_is_small(child: Child) -> None:
    heavy = {"torch", "openai", "sqlalchemy", "numpy", "pydantic"}
    assert await child(eval, f"{heavy!r} & set(__import__('sys').modules)") == set()
    assert child.pid is not None
    assert psutil.Process(child.pid).memory_info().rss < 100e6


@pytest.mark.skipif(sys.platform != "linux", reason="macOS knows the limit but does not hold to it")
async def test_what_takes_too_much_memory_costs_its_turn_alone(child: Child) -> None:
    with pytest.raises(RuntimeError, match="MemoryError"):
        await child(bytes, 2 << 30)
    assert await child(len, "x" * 40_000_000) == 40_000_000, "more than any request may have"


async def test_what_hangs_is_killed_at_its_deadline_and_the_next_call_has_a_new_child() -> None:
    child = Child(deadline_s=2.0)
    await child(len, "")
    first = child.pid
    assert first is not None
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticking = asyncio.create_task(tick())
    try:
        with pytest.raises(TooSlow, match=r"judge\.deadline_s"):
            await child(*HANGS)
        assert ticks >= 3, "the loop went on meanwhile"
        assert gone(first)
        assert await child(len, "four") == 4
        assert child.pid != first
    finally:
        ticking.cancel()
        await child.close()


async def test_a_child_that_dies_is_a_failed_try(child: Child) -> None:
    with pytest.raises(TooSlow, match="ended with code 7"):
        await child(os._exit, 7)
    assert await child(len, "four") == 4


async def test_a_child_that_cannot_start_is_no_fault_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(deadline_s=5)
    monkeypatch.setattr("turnwise.judges.child.START_S", 0.001)
    with pytest.raises(ChildUnavailable, match=r"did not start within 0\.001 s"):
        await child(len, "four")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ChildUnavailable, match="could not be started"):
        await child(len, "four")
    monkeypatch.undo()
    assert await child(len, "four") == 4
    await child.close()


async def test_a_turn_is_not_charged_for_a_child_that_cannot_start(journal: Journal, tmp_path: Path) -> None:
    """The first five starts fail, more than a turn has tries: the work is a stand-in for a machine without memory."""
    turn = add_turn(journal, "aaa", "No, that's wrong, there are nine!")
    starts = 0

    async def work(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal starts
        starts += 1
        if starts <= 5:
            raise ChildUnavailable("the process that reads turns could not be started: Cannot allocate memory")
        return function(*args, **kwargs)

    worker = Worker(settings(tmp_path, max_attempts=2), journal, SignalJudge(work), work)
    await work_until(worker, lambda: state(journal, turn) is TurnState.READY)
    assert starts > 5


async def test_who_stops_waiting_stops_the_work(child: Child) -> None:
    await child(len, "")
    pid = child.pid
    assert pid is not None
    waiting = asyncio.create_task(child(*HANGS))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=10)
    assert gone(pid)


async def test_a_turn_that_hangs_its_reader_is_excluded_with_its_reason_and_the_others_are_judged(
    journal: Journal, tmp_path: Path
) -> None:
    """`read` hangs on the first turn: that is the stand-in."""
    bad, fine = add_turn(journal, "aaa", "hang"), add_turn(journal, "bbb", "No, that's wrong, there are nine!")
    child = Child(deadline_s=1.0)

    async def work(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        hangs = text_of(args[0].next_state[-1]) == "hang"
        return await (child(*HANGS) if hangs else child(function, *args, **kwargs))

    config = settings(tmp_path, max_attempts=2, concurrency=2)
    try:
        await work_until(
            Worker(config, journal, SignalJudge(work), work),
            lambda: state(journal, fine) is TurnState.READY and state(journal, bad) is TurnState.EXCLUDED,
        )
    finally:
        await child.close()
    found = journal.turns.get(bad)
    assert found is not None
    assert found.exclusion is Exclusion.NO_VALID_VOTE
    with journal.store.reading() as c:
        error = c.execute(select(schema.turns.c.last_error).where(schema.turns.c.id == bad)).scalar_one()
    assert "took more than 1 s and was stopped" in error


JUDGE = """
import re, sys
import turnwise.judges.choice as cascade
from turnwise.messages import text_of

reads = cascade.SignalJudge.signals

async def signals(self, task):
    if text_of(task.next_state[-1]) == "hang":  # stands in for a pattern nobody foresaw
        return await self._work(re.search, r"(?:a|aa)+$", "a" * 80 + "!")
    return await reads(self, task)

cascade.SignalJudge.signals = signals
sys.argv[0] = "judge"
import runpy
runpy.run_module("turnwise.judges", run_name="__main__")
"""


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the real judge process on the journal of `tmp_path`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*sets: str) -> subprocess.Popen[bytes]:
        overrides = [arg for pair in ("judge.retry_s=0.01", *sets) for arg in ("--set", pair)]
        command = [sys.executable, "-c", JUDGE, "--home", str(tmp_path), *overrides]
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(20)


async def until_child(process: subprocess.Popen[bytes]) -> int:
    """The pid of a judge's child that is hard at work."""

    def busy() -> list[psutil.Process]:
        return [p for p in psutil.Process(process.pid).children() if p.cpu_times().user > 0.6]

    await until(busy)
    return busy()[0].pid


async def test_the_reply_that_stopped_the_judge_for_ever_is_judged(journal: Journal, judge: Callable[..., Any]) -> None:
    assert len(FOREVER) > 300
    turns = [add_turn(journal, "aaa", FOREVER), add_turn(journal, "bbb", "No, that's wrong, there are nine!")]
    process = judge()
    await until(lambda: all(state(journal, turn) is TurnState.READY for turn in turns))
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 20) == 0


async def test_a_judge_stops_in_seconds_while_its_child_hangs(journal: Journal, judge: Callable[..., Any]) -> None:
    turn = add_turn(journal, "aaa", "hang")
    process = judge("judge.deadline_s=300")
    child = await until_child(process)
    process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    assert await asyncio.to_thread(process.wait, 60) == 0
    assert time.monotonic() - asked < 30
    assert gone(child)
    with journal.store.reading() as c:
        row = c.execute(select(schema.turns.c.attempts, schema.turns.c.lease_until).where(schema.turns.c.id == turn))
        assert row.one() == (0, None), "being asked to stop is no try of the turn's"


async def test_a_child_that_hangs_ends_with_a_judge_that_is_killed(journal: Journal, judge: Callable[..., Any]) -> None:
    add_turn(journal, "aaa", "hang")
    process = judge("judge.deadline_s=8")  # where the kernel does not do it, the child's own alarm does
    child = await until_child(process)
    process.kill()
    await asyncio.to_thread(process.wait, 20)
    await until(lambda: gone(child))


async def test_a_child_that_waits_ends_with_its_pipe(child: Child) -> None:
    await child(len, "")
    process = child._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_a_planted_package_in_the_working_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "turnwise").mkdir()
    (tmp_path / "turnwise" / "__init__.py").write_text("raise SystemExit('planted')\n")
    monkeypatch.chdir(tmp_path)
    child = Child(30.0)
    try:
        assert await child(len, "three") == 5
    finally:
        await child.close()
