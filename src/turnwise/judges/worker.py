"""The judge loop: leases turns whose next state has come, judges them side by side, records the verdicts.

What reads foreign text runs in a child process with a deadline, so that no text stops this loop. It meets the other
loops in the journal alone. Killed at any moment it loses nothing: a turn whose lease runs out is judged by the next
worker, and a verdict is recorded once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid

from turnwise.config import Config
from turnwise.errors import JournalError, JournalUnavailable, LeaseLost
from turnwise.journal import Journal
from turnwise.judges.child import Child, ChildUnavailable, TooSlow, Work, right_here
from turnwise.judges.choice import Judge, make_judge
from turnwise.judges.cut_off import apart_from_the_cut
from turnwise.judges.model import JudgeUnavailable
from turnwise.judges.signals.states import StatesUnavailable
from turnwise.messages import storable
from turnwise.types import JudgeTask, Verdict

log = logging.getLogger(__name__)

POLL_S = 0.25
"""Wait between two looks into the journal when there is nothing to judge."""
HEARTBEAT_S = 5.0
"""Time between two signs of life in the journal."""
STOP_GRACE_S = 2.0
"""How long verdicts in the making may still take once the loop is asked to stop."""
MAX_RETRY_S = 600.0


async def run(config: Config, stop: asyncio.Event, engine_url: str | None = None) -> None:
    """Judge until ``stop`` is set, then end within a few seconds. Turns in work go back to the journal.

    ``engine_url``: the local engine, which gives hidden states.
    """
    journal = Journal.open(config)
    judge: Judge | None = None
    child = Child(config.judge.deadline_s)
    try:
        while judge is None and not stop.is_set():
            try:
                judge = make_judge(config, child, engine_url)
            except JudgeUnavailable as e:  # the gateway has not written its token yet
                log.warning("waiting: %s", e)
                await _say(journal, "waiting", str(e))
                await _wait(stop, config.judge.retry_s)
        if judge is not None:
            await Worker(config, journal, judge, child).run(stop)
    finally:
        if judge is not None:
            await judge.close()
        await child.close()
        journal.close()


class Worker:
    """One judge process: at most ``judge.concurrency`` turns at once. ``work`` is where it reads foreign text."""

    def __init__(self, config: Config, journal: Journal, judge: Judge, work: Work = right_here) -> None:
        self._config = config.judge
        self._journal = journal
        self._judge = judge
        self._work_out = work
        self._error: str | None = None
        self._busy = ""
        self._paused_until = float("-inf")
        self._name = f"judge-{os.getpid()}-{uuid.uuid4().hex[:6]}"

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and judge until ``stop`` is set."""
        working: set[asyncio.Task[None]] = set()
        said = float("-inf")
        try:
            while not stop.is_set():
                if time.monotonic() - said >= HEARTBEAT_S:
                    said = time.monotonic()
                    await _say(self._journal, "judging" if working else "waiting", self._error, self._judge.who)
                for done in {t for t in working if t.done()}:
                    working.discard(done)
                    done.result()  # a fault of ours, not of the judge's: let the supervisor see it
                free = self._config.concurrency - len(working) if time.monotonic() >= self._paused_until else 0
                claimed = await self._claim(free) if free else []
                if claimed and time.monotonic() < self._paused_until:  # the machine failed while they were claimed
                    await asyncio.gather(*map(self._let_go, claimed))
                    claimed = []
                working |= {asyncio.create_task(self._work(task)) for task in claimed}
                if not claimed:
                    await _until_any(stop, working, POLL_S)
            if working:
                await asyncio.wait(working, timeout=STOP_GRACE_S)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await _say(self._journal, "stopped", None)

    async def _claim(self, limit: int) -> list[JudgeTask]:
        try:
            return await asyncio.to_thread(self._journal.judging.claim, self._name, limit, self._config.lease_s)
        except JournalError as e:
            if str(e) != self._busy:  # a full disk is said once, not four times a second
                log.warning("the journal is busy: %s", e)
            self._busy = str(e)
            return []

    async def _work(self, task: JudgeTask) -> None:
        """Judge one turn, keep its lease meanwhile, and record the verdict or the failure."""
        judging = asyncio.create_task(self._verdict(task))
        keeping = asyncio.create_task(self._keep_lease(task))
        try:
            await asyncio.wait({judging, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if not judging.done():
                keeping.result()  # raises LeaseLost: another worker has the turn
            verdict = await judging
            await self._record(task, verdict)
            self._error = None
            log.info("turn %s: %+d by %s (%s)", task.turn_id, verdict.score, verdict.judge, verdict.reason)
        except LeaseLost:
            log.info("turn %s went to another judge", task.turn_id)
        except asyncio.CancelledError:  # asked to stop: that is no try of this turn's
            await self._let_go(task)
            raise
        except (
            ChildUnavailable,
            StatesUnavailable,
        ) as e:  # the machine's fault: no try of this turn's, and none of the next ones
            log.warning("turn %s waits: %s", task.turn_id, e)
            self._error = storable(str(e))
            self._paused_until = time.monotonic() + self._config.retry_s
            await self._let_go(task)
        except (JudgeUnavailable, TooSlow) as e:
            await self._give_back(task, str(e))
        except Exception as e:
            # Whatever it is, it is this turn's: counted as a try, so that one turn cannot stop the judging of others.
            log.exception("turn %s: a fault that was not foreseen", task.turn_id)
            await self._give_back(task, f"{type(e).__name__}: {e}")
        finally:
            for side in (judging, keeping):
                side.cancel()
            await asyncio.gather(judging, keeping, return_exceptions=True)

    async def _verdict(self, task: JudgeTask) -> Verdict:
        rest = await self._work_out(apart_from_the_cut, task) if task.cut_off else task
        if rest is None:
            return Verdict(0, None, "signals", "the answer was cut off, and what came back is about that alone")
        return await self._judge.judge(rest)

    async def _record(self, task: JudgeTask, verdict: Verdict) -> None:
        """Write a verdict down as soon as that can be done: a full disk is no failure of the judge's."""
        while True:
            try:
                return await asyncio.to_thread(self._journal.judging.record, task, verdict)
            except JournalUnavailable as e:
                log.warning("turn %s: its verdict waits to be recorded: %s", task.turn_id, e)
                await asyncio.sleep(self._config.retry_s)

    async def _keep_lease(self, task: JudgeTask) -> None:
        while True:
            await asyncio.sleep(self._config.lease_s / 3)
            try:
                await asyncio.to_thread(self._journal.judging.renew, task, self._config.lease_s)
            except LeaseLost:
                raise
            except JournalError as e:  # a busy or full disk: the lease holds for two more tries
                log.warning("turn %s: its lease could not be renewed: %s", task.turn_id, e)

    async def _let_go(self, task: JudgeTask) -> None:
        try:
            await asyncio.to_thread(self._journal.judging.release, task)
        except LeaseLost:
            pass  # somebody else has it by now
        except JournalError as e:
            log.warning("turn %s returns when its lease runs out: %s", task.turn_id, e)

    async def _give_back(self, task: JudgeTask, error: str) -> None:
        self._error = storable(error)
        wait = min(self._config.retry_s * 2 ** (task.attempts - 1), MAX_RETRY_S)
        log.warning("turn %s, try %d of %d: %s", task.turn_id, task.attempts, self._config.max_attempts, error)
        try:
            await asyncio.to_thread(self._journal.judging.failed, task, self._error, wait, self._config.max_attempts)
        except LeaseLost:
            pass  # somebody else has it by now
        except JournalError as e:
            log.warning("turn %s returns when its lease runs out: %s", task.turn_id, e)


async def _say(journal: Journal, state: str, error: str | None, who: str | None = None) -> None:
    """What `turnwise status` and `turnwise doctor` show of this loop. ``who``: which judge decides."""
    try:
        await asyncio.to_thread(journal.status.say, "judge", {"state": state, "error": error, "by": who})
    except JournalError as e:
        log.warning("the journal takes no sign of life: %s", e)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _until_any(stop: asyncio.Event, working: set[asyncio.Task[None]], seconds: float) -> None:
    """Return when the loop should look again: asked to stop, a turn is done, or the poll interval is over."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopping, *working}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
