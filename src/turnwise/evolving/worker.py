"""The evolver's loop: looks at what was judged, makes skills of wishes and of failures, and decides on candidates.

It meets the other loops in the journal alone. A wish is acted on at the next look, four times a second, also while a
model writes; failures when enough of one kind are there. Killed at any moment it leaves a whole library: what was
looked at, and what was made of it, are each recorded in one transaction. Logs name no skill: names are made of what
people said.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from turnwise.config import Config
from turnwise.errors import JournalError, SkillError, TurnwiseError
from turnwise.evolving.asking import request_for
from turnwise.evolving.clusters import Cluster, clusters
from turnwise.evolving.endpoint import SkillWriter, WriterUnavailable
from turnwise.evolving.evidence import ShownTurn, look_at
from turnwise.evolving.lifecycle import chance_of_help, decide_on
from turnwise.evolving.planning import EVOLVER, PlannedChanges, plan_tool, plan_wishes, plan_written
from turnwise.evolving.replies import BadReply
from turnwise.evolving.wishes import wishes_among
from turnwise.evolving.writing import MADE_BY
from turnwise.journal import Journal
from turnwise.journal.skills.failures import FailureKind, JudgedTurn
from turnwise.judges.child import Child, ChildUnavailable, TooSlow, Work, right_here
from turnwise.messages import answer_of, storable
from turnwise.skills.library import Library, LibraryView
from turnwise.skills.vectors import WordVectors, word_vectors
from turnwise.types import FinishReason, JudgeTask, SkillState

log = logging.getLogger(__name__)

POLL_S = 0.25
HEARTBEAT_S = 5.0
RETRY_S = 10.0
"""Wait after an endpoint or the journal failed."""
AT_ONCE = 20
"""Verdicts that are looked at before it is noted."""
MOST_TRIES = 2
"""Times that the model is asked about a cluster whose replies cannot be used."""
KEPT = 400
"""Turns whose reading is kept in memory."""


async def run(config: Config, stop: asyncio.Event) -> None:
    """Evolve until `stop` is set."""
    journal = Journal.open(config)
    child = Child(config.judge.deadline_s)
    writer = SkillWriter(config) if config.skills.evolver_url else None
    try:
        with contextlib.suppress(TurnwiseError, RuntimeError):
            await child(wishes_among, (), None)  # what it imports is no part of a turn's time
        await Evolver(config, journal, child, writer).run(stop)
    finally:
        if writer is not None:
            await writer.close()
        await child.close()
        journal.close()


@dataclass(slots=True)
class _Round:
    """What is done again and again: the last verdict that it saw, when it may go on after an error, and the error."""

    seen: int = -1
    again_at: float = float("-inf")
    error: str | None = None


class Evolver:
    """One evolver process. `work` is where foreign text is read; without a `writer` skills are quoted, not written."""

    def __init__(
        self, config: Config, journal: Journal, work: Work = right_here, writer: SkillWriter | None = None
    ) -> None:
        self._skills = config.skills
        self._journal = journal
        self._library = Library(config, journal)
        self._work = work
        self._writer = writer
        self._listening, self._mending = _Round(), _Round()
        self._unusable: str | None = None  # why a model's last reply was left
        self._known: OrderedDict[tuple[str, int], ShownTurn | None] = OrderedDict()

    async def run(self, stop: asyncio.Event) -> None:
        """Look for what is new until `stop` is set. What cannot be done now is said, and tried again."""
        said = float("-inf")
        mending = asyncio.create_task(self._again_and_again(self._mending, self.mend, stop))
        listening = asyncio.create_task(self._again_and_again(self._listening, self.listen, stop))
        try:
            while not stop.is_set():
                if time.monotonic() - said >= HEARTBEAT_S:
                    said = time.monotonic()
                    await self._say("waiting")
                await _until(stop, POLL_S)
            await listening
        finally:
            for task in (mending, listening):  # a model that writes is not waited for: its failures stay
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self._say("stopped")

    async def _again_and_again(self, one: _Round, do: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            if time.monotonic() >= one.again_at:
                try:
                    await do()
                except (JournalError, SkillError, WriterUnavailable, ChildUnavailable) as e:
                    _wait(one, e)
                except Exception as e:
                    log.exception("a fault that was not foreseen")
                    _wait(one, e)
            await _until(stop, POLL_S)

    async def step(self) -> bool:
        """Do all there is to do now; gives whether there was a new verdict. Raises TurnwiseError."""
        heard = await self.listen()
        await self.mend()
        return heard

    async def listen(self) -> bool:
        """Read what was judged, and act on wishes; gives whether there was a new verdict. Raises TurnwiseError."""
        newest = await asyncio.to_thread(self._journal.failures.newest)
        if newest == self._listening.seen:
            return False
        await self._read()
        await self._make_of_wishes(await asyncio.to_thread(word_vectors))
        self._listening.seen, self._listening.error = newest, None
        return True

    async def mend(self) -> bool:
        """Make skills of failures among what was read, which may take a model minutes, and decide on candidates; gives
        whether there was anything new. Raises TurnwiseError."""
        newest = self._listening.seen
        if newest == self._mending.seen:
            return False
        await self._make_of_failures(await asyncio.to_thread(word_vectors))
        await self._decide()
        self._mending.seen, self._mending.error = newest, None
        return True

    # -- what is new ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while judged := await asyncio.to_thread(self._journal.failures.unread, AT_ONCE):
            found: list[tuple[JudgedTurn, FailureKind]] = []
            for turn in judged:
                shown = await self._shown(turn)
                if shown is not None and shown.wishes:
                    found.append((turn, "wish"))
                elif shown is not None and shown.failed and not turn.trained:
                    found.append((turn, "failure"))
            await asyncio.to_thread(self._journal.failures.note, judged[-1].verdict, found)

    async def _shown(self, judged: JudgedTurn) -> ShownTurn | None:
        """What a turn shows; None where it is gone, or cannot be read."""
        key = (judged.turn_id, judged.verdict)
        if key not in self._known:
            turn = await asyncio.to_thread(self._journal.turns.get, judged.turn_id)
            if turn is None:
                return None
            cut_off = turn.finish_reason is FinishReason.LENGTH
            answer = turn.answer or answer_of("")
            task = JudgeTask(turn.id, "", 0, turn.messages, answer, turn.next_state, cut_off, turn.tools)
            try:
                word = (judged.session_id, judged.judge, judged.score, judged.hint)
                self._known[key] = await self._work(look_at, task, *word)
            except (TooSlow, RuntimeError) as e:
                log.warning("turn %s shows nothing: %s", judged.turn_id, e)
                self._known[key] = None
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return self._known[key]

    async def _pending(self, kind: FailureKind, keep: Callable[[ShownTurn, JudgedTurn], bool]) -> list[ShownTurn]:
        """What waits. What shows nothing of the kind any more, by a later word of the person, is left."""
        found: list[ShownTurn] = []
        left: list[str] = []
        for judged in await asyncio.to_thread(self._journal.failures.pending, kind):
            shown = await self._shown(judged)
            if shown is not None and keep(shown, judged):
                found.append(shown)
            else:
                left.append(judged.turn_id)
        if left:
            await asyncio.to_thread(self._journal.failures.leave, left, "it shows nothing of the kind any more")
        return found

    # -- what is made of it --------------------------------------------------------------------------------------------

    async def _make_of_wishes(self, vectors: WordVectors) -> None:
        turns = await self._pending("wish", lambda shown, _: bool(shown.wishes))
        if turns:
            view = await asyncio.to_thread(self._library.sync)
            await self._carry_out(plan_wishes(turns, view, vectors), view, MADE_BY, self._library.take_wishes)

    async def _make_of_failures(self, vectors: WordVectors) -> None:
        turns = await self._pending("failure", lambda shown, judged: shown.failed and not judged.trained)
        for cluster in clusters(turns, vectors):
            if len(cluster.turns) >= self._skills.failures_before:
                await self._make_of(cluster, vectors)

    async def _make_of(self, cluster: Cluster, vectors: WordVectors) -> None:
        view = await asyncio.to_thread(self._library.sync)
        if self._writer is None:
            await self._carry_out(plan_tool(cluster, view), view, MADE_BY)
            return
        request = request_for(cluster, view)
        try:
            written = await self._writer.write(request)
        except BadReply as e:
            await self._left_by_the_model(cluster, str(e))
            return
        self._unusable = None
        view = await asyncio.to_thread(self._library.sync)  # a wish may have come meanwhile
        await self._carry_out(plan_written(cluster, written, view, request.review, vectors), view, EVOLVER)

    async def _left_by_the_model(self, cluster: Cluster, why: str) -> None:
        self._unusable = storable(f"a model's skill for {len(cluster.turns)} failures was not taken: {why}")
        log.warning("a model's skill was not taken; `turnwise status` says why")
        ids = [turn.turn_id for turn in cluster.turns]
        pending = await asyncio.to_thread(self._journal.failures.pending, "failure")
        spent = [turn.turn_id for turn in pending if turn.turn_id in ids and turn.tries + 1 >= MOST_TRIES]
        await asyncio.to_thread(self._journal.failures.tried, ids, storable(why))
        if spent:
            await asyncio.to_thread(self._journal.failures.leave, spent, storable(why))

    async def _carry_out(
        self, plan: PlannedChanges, view: LibraryView, made_by: str, change: Callable[..., LibraryView] | None = None
    ) -> None:
        if plan.changes:
            what = f"{made_by}: {plan.names()}"
            now = await asyncio.to_thread(change or self._library.evolve, view, what, plan.changes, made_by)
            told = (made_by, len(plan.changes), now.revision.number, now.revision.generation)
            log.info("%s: %d changes of skills (library %d, generation %d)", *told)
        by_reason: dict[str, list[str]] = {}
        for turn, why in plan.left.items():
            by_reason.setdefault(why, []).append(turn)
        for why, turns in by_reason.items():
            await asyncio.to_thread(self._journal.failures.leave, turns, why)

    # -- what becomes of it --------------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        view = await asyncio.to_thread(self._library.sync)
        on_trial = {known.version.id: known for known in view.injected if known.state is SkillState.CANDIDATE}
        if not on_trial:
            return
        trials = await asyncio.to_thread(self._journal.skills.trials, list(on_trial))
        for version, known in on_trial.items():
            to = decide_on(known.state, trials[version])
            if to is not None:
                what = "proven:" if to is SkillState.PROVEN else "does not help:"
                trial = trials[version]
                log.info("%s text %d (%s; chance that it helps %.2f)", what, version, trial, chance_of_help(trial))
                candidate = frozenset({SkillState.CANDIDATE})
                await asyncio.to_thread(self._library.move, known.skill.name, to, what, candidate)

    async def _say(self, state: str) -> None:
        """What `turnwise status` and `turnwise doctor` show of this loop."""
        by = self._writer.who if self._writer is not None else "the person's own words"
        try:
            counts = await asyncio.to_thread(self._journal.failures.counts)
            error = self._listening.error or self._mending.error or self._unusable
            told = {"state": state, "error": error, "by": by, "failures": counts.get("pending", 0)}
            await asyncio.to_thread(self._journal.status.say, "evolver", told)
        except TurnwiseError as e:
            log.warning("the journal takes no sign of life: %s", e)


def _wait(one: _Round, e: Exception) -> None:
    """Remember what was wrong, for a later try. What a skill's error says names skills, so no log has it."""
    known = isinstance(e, TurnwiseError)
    error = storable(str(e) if known else f"{type(e).__name__}: {e}")
    if error != one.error:
        shown = "the library cannot be changed; `turnwise status` says why" if isinstance(e, SkillError) else error
        log.warning("skills wait: %s", shown)
    one.error, one.seen, one.again_at = error, -1, time.monotonic() + RETRY_S


async def _until(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
