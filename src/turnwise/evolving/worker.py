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
from dataclasses import dataclass, replace

from turnwise.config import Config
from turnwise.errors import JournalError, SkillError, TurnwiseError
from turnwise.evolving.asking import request_for
from turnwise.evolving.clusters import Cluster, clusters
from turnwise.evolving.endpoint import SkillWriter, WriterUnavailable
from turnwise.evolving.evidence import ShownTurn, look_at
from turnwise.evolving.lifecycle import chance_of_help, decide_on
from turnwise.evolving.planning import (
    EVOLVER,
    PlannedChanges,
    after_replay,
    plan_tool,
    plan_wishes,
    plan_written,
    text_to_try,
)
from turnwise.evolving.replay import Replayer
from turnwise.evolving.replies import BadReply
from turnwise.evolving.writing import MADE_BY
from turnwise.journal import Journal
from turnwise.journal.queue.judging import judge_task
from turnwise.journal.skills.failures import FailureKind, JudgedTurn
from turnwise.journal.skills.replays import ReplayResult
from turnwise.judges.child import Child, ChildUnavailable, TooSlow, Work, right_here
from turnwise.messages import storable
from turnwise.skills.compressing.making import PromptShortener
from turnwise.skills.library import KnownSkill, Library, LibraryView
from turnwise.skills.vectors import WordVectors, word_vectors
from turnwise.skills.wishes import wishes_among
from turnwise.types import SkillState

log = logging.getLogger(__name__)

POLL_S = 0.25
HEARTBEAT_S = 5.0
RETRY_S = 10.0
"""Wait after an endpoint or the journal failed."""
AT_ONCE = 20
"""Verdicts that are looked at before it is noted."""
MOST_TRIES = 2
"""Times that the model is asked about a cluster whose replies cannot be used."""
ASK_S = 5.0
"""How often is looked whether failing turns wait to be asked again."""
AGAIN_S = 300.0
"""Wait before an engine is asked again that did not answer in time; it doubles."""
GIVEN_UP = "given up, since failing turns went no better with "
KEPT = 400
"""Turns whose reading is kept in memory."""


async def run(config: Config, stop: asyncio.Event, engine_url: str | None = None) -> None:
    """Evolve until `stop` is set. `engine_url`: the local engine, which is asked failing turns again."""
    journal = Journal.open(config)
    child = Child(config.judge.deadline_s)
    writer = SkillWriter(config) if config.skills.evolver_url else None
    replayer = Replayer(config, journal, [engine_url] if engine_url else []) if config.skills.replay else None
    shortener = PromptShortener(config, journal) if config.compress.url is not None else None
    beside = asyncio.create_task(shortener.run(stop)) if shortener is not None else None
    try:
        if not (config.skills.enabled and config.skills.evolve):
            await stop.wait()  # system prompts alone are made shorter
            return
        with contextlib.suppress(TurnwiseError, RuntimeError):
            await child(wishes_among, (), None)  # what it imports is no part of a turn's time
        await Evolver(config, journal, child, writer, replayer).run(stop)
    finally:
        if beside is not None and shortener is not None:
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside
            await shortener.close()
        if replayer is not None:
            await replayer.close()
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
    """One evolver process. `work` is where foreign text is read; without a `writer` skills are quoted, not written, and
    without a `replayer` none is checked before it is used."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        work: Work = right_here,
        writer: SkillWriter | None = None,
        replayer: Replayer | None = None,
    ) -> None:
        self._skills = config.skills
        self._journal = journal
        self._library = Library(config, journal)
        self._work = work
        self._writer = writer
        self._replayer = replayer
        self._again_at: dict[int, float] = {}  # when failing turns that wait are asked again, by the skill's version
        self._listening, self._mending, self._asking = _Round(), _Round(), _Round()
        self._unusable: str | None = None  # why a model's last reply was left
        self._known: OrderedDict[tuple[str, int], ShownTurn | None] = OrderedDict()

    async def run(self, stop: asyncio.Event) -> None:
        """Look for what is new until `stop` is set. What cannot be done now is said, and tried again."""
        said = float("-inf")
        mending = asyncio.create_task(self._again_and_again(self._mending, self.mend, stop))
        asking = asyncio.create_task(self._again_and_again(self._asking, self.ask_again, stop, ASK_S))
        listening = asyncio.create_task(self._again_and_again(self._listening, self.listen, stop))
        try:
            while not stop.is_set():
                if time.monotonic() - said >= HEARTBEAT_S:
                    said = time.monotonic()
                    await self._say("waiting")
                await _until(stop, POLL_S)
            await listening
        finally:
            for task in (mending, listening, asking):  # a model that writes is not waited for: its failures stay
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self._say("stopped")

    async def _again_and_again(
        self, one: _Round, do: Callable[[], Awaitable[bool]], stop: asyncio.Event, every_s: float = POLL_S
    ) -> None:
        while not stop.is_set():
            if time.monotonic() >= one.again_at:
                try:
                    await do()
                except (JournalError, SkillError, WriterUnavailable, ChildUnavailable) as e:
                    _wait(one, e)
                except Exception as e:
                    log.exception("a fault that was not foreseen")
                    _wait(one, e)
            await _until(stop, every_s)

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

    async def ask_again(self) -> bool:
        """Have those failing turns asked again for which the engine was away; gives whether there were any. Raises
        TurnwiseError."""
        if self._replayer is None:
            return False
        waiting = await asyncio.to_thread(self._journal.replays.waiting)
        view = await asyncio.to_thread(self._library.sync) if waiting else None
        for version in waiting:
            self._again_at.setdefault(version, time.monotonic() + AGAIN_S)
        used = {known.version.id: known for known in (view.injected if view else ())}
        for version in waiting.keys() - used.keys():
            result = replace(waiting[version], state="unclear", why="not asked again: it is not used any more")
            await asyncio.to_thread(self._journal.replays.note, version, result)
        due = [
            known
            for known in used.values()
            if known.version.id in waiting and time.monotonic() >= self._again_at[known.version.id]
        ]
        for known in due:
            await self._ask_again(self._replayer, known, waiting[known.version.id])
        self._asking.error = None
        return bool(due)

    async def _ask_again(self, replayer: Replayer, known: KnownSkill, before: ReplayResult) -> None:
        sources = await asyncio.to_thread(self._journal.skills.sources, known.version.id)
        words = await asyncio.to_thread(self._journal.failures.last_words, [turn for turn, _ in sources])
        turns = [shown for judged in words if (shown := await self._shown(judged)) is not None]
        result = await replayer.replay(turns, known.skill, before.tries)
        self._again_at[known.version.id] = time.monotonic() + AGAIN_S * 2 ** (result.tries - 1)
        await asyncio.to_thread(self._journal.replays.note, known.version.id, result)
        if result.state == "failed" and known.state is SkillState.CANDIDATE:
            log.info("text %d is retired: %s", known.version.id, result.why)
            candidate = frozenset({SkillState.CANDIDATE})
            what = f"asked again, {result.why}:"
            await asyncio.to_thread(self._library.move, known.skill.name, SkillState.RETIRED, what, candidate)

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
            task = judge_task(turn, rollout=judged.rollout)
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
            plan = plan_wishes(turns, view, vectors, await asyncio.to_thread(self._taught, view))
            await self._carry_out(plan, view, MADE_BY, self._library.take_wishes)

    def _taught(self, view: LibraryView) -> dict[str, list[tuple[str, str]]]:
        """The wishes that the version that serves should know, by name, with the turns in which they were said."""
        names = {known.version.id: known.skill.name for known in view.injected if known.version.made_by == MADE_BY}
        known = self._journal.skills.taught(self._journal.versions.latest(), list(names))
        return {names[version]: self._journal.skills.sources(version) for version in known}

    async def _make_of_failures(self, vectors: WordVectors) -> None:
        turns = await self._pending("failure", lambda shown, judged: shown.failed and not judged.trained)
        for cluster in clusters(turns, vectors):
            if len(cluster.turns) >= self._skills.failures_before:
                await self._make_of(cluster, vectors)

    async def _make_of(self, cluster: Cluster, vectors: WordVectors) -> None:
        if self._writer is None:
            await self._try_out(cluster, lambda view: plan_tool(cluster, view), MADE_BY)
            return
        request = request_for(cluster, await asyncio.to_thread(self._library.sync))
        try:
            written = await self._writer.write(request)
        except BadReply as e:
            await self._left_by_the_model(cluster, str(e))
            return
        self._unusable = None
        await self._try_out(
            cluster, lambda view: plan_written(cluster, written, view, request.review, vectors), EVOLVER
        )

    async def _try_out(self, cluster: Cluster, plan: Callable[[LibraryView], PlannedChanges], made_by: str) -> None:
        """Ask the failing turns again with each new text, and take those that they do not speak against."""
        results: dict[str, ReplayResult] = {}
        while True:
            view = await asyncio.to_thread(self._library.sync)  # a wish may have come meanwhile
            planned = plan(view)
            texts = {skill.body: skill for skill in map(text_to_try, planned.changes) if skill is not None}
            new = [skill for body, skill in texts.items() if body not in results]
            if self._replayer is None or not new:
                break
            for skill in new:
                results[skill.body] = await self._replayer.replay(cluster.turns, skill)
        taken, given_up = after_replay(planned, view, results)
        if given_up.changes or given_up.left:
            log.info("%s: %d skills were given up before they were used", made_by, len(given_up.changes))
        view = await self._carry_out(taken, view, made_by)
        await self._carry_out(given_up, view, made_by, self._library.give_up, GIVEN_UP)

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
        self,
        plan: PlannedChanges,
        view: LibraryView,
        made_by: str,
        change: Callable[..., LibraryView] | None = None,
        said: str = "",
    ) -> LibraryView:
        if plan.changes:
            what = f"{made_by}: {said}{plan.names()}"
            view = await asyncio.to_thread(change or self._library.evolve, view, what, plan.changes, made_by)
            told = (made_by, len(plan.changes), view.revision.number, view.revision.generation)
            log.info("%s: %d changes of skills (library %d, generation %d)", *told)
        by_reason: dict[str, list[str]] = {}
        for turn, why in plan.left.items():
            by_reason.setdefault(why, []).append(turn)
        for why, turns in by_reason.items():
            await asyncio.to_thread(self._journal.failures.leave, turns, why)
        return view

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
