"""Rollouts: each plays one task as an ordinary client of the gateway, and posts what came of it.

A run has a name, and each of its rollouts a session that is named after it. So a run that was killed goes on: what was
scored is posted, what was in the middle is played again in a session of its own that takes the lost one's place, and
the rest is played.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from turnwise.environments.actors import Actor
from turnwise.environments.base import CutOff, InfrastructureFailure, Observation, Task, TaskOutcome, Worked
from turnwise.environments.feeding import Feed
from turnwise.environments.gateway_side import GatewayAt, announce, post_outcome, steps_answered
from turnwise.environments.host import Held, Host
from turnwise.environments.programs.player import ProgramPlayer
from turnwise.errors import JournalError, LeaseLost, SandboxError
from turnwise.journal.rollouts.leases import EnvironmentLease, EnvironmentLeases
from turnwise.journal.rollouts.trajectories import AGAIN, LARGEST_OUTCOME
from turnwise.trajectories.trail import Trail

log = logging.getLogger(__name__)

__all__ = ["Ended", "GatewayAt", "Play", "Rollouts"]

CRASHED = "the rollout ended in the middle of its episode"
MOST_TRIES = 4
"""How often one rollout is played when its player is lost in the middle; then it is masked."""
MOST_OF_A_FAILURE = 1000


@dataclass(frozen=True, slots=True)
class Play:
    """One rollout to be played. ``attempt``: the how many-th time; those before it were lost in the middle."""

    run: str
    task: Task
    index: int
    group_size: int
    attempt: int = 1

    @property
    def group(self) -> str:
        return f"{self.run}.{self.task.id}"

    @property
    def name(self) -> str:
        """What it is called, however often it is tried."""
        return f"{self.group}.{self.index}"

    @property
    def session(self) -> str:
        return self.name if self.attempt == 1 else f"{self.name}{AGAIN}{self.attempt}"

    @property
    def headers(self) -> dict[str, str]:
        """What a client says of it that nobody announced."""
        named = {"X-Stream": self.task.environment, "X-Task-Id": self.task.id, "X-Group-Id": self.group}
        return named | {"X-Group-Size": str(self.group_size), "X-Session-Id": self.session, "X-Turn-Type": "main"}

    @property
    def announced(self) -> dict[str, object]:
        """The same as what the gateway is told before it begins."""
        of = {"stream": self.task.environment, "task": self.task.id, "group": self.group}
        return {**of, "group_size": self.group_size}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rollout ended: with a reward or a failure. ``cut_off``: the limit that ended it. ``note`` says why the
    gateway does not have it, or does not use it; ``open``: it is to be posted yet, or another has it in hand.
    ``details`` and ``trail`` are there where it was played just now."""

    play: Play
    reward: float | None
    failure: str | None
    steps: int = 0
    note: str | None = None
    open: bool = False
    cut_off: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    trail: Trail | None = None


class Rollouts:
    """Plays rollouts with what ``player`` makes: an actor, or a program that works in the environment by itself.
    Without a gateway nothing is posted. ``limits``: rollouts of a stream at a time, where there is a limit. ``judge``
    says what came of a task that has no verifier; it raises InfrastructureFailure where it cannot be asked."""

    def __init__(
        self,
        host: Host,
        leases: EnvironmentLeases,
        gateway: GatewayAt | None,
        player: Callable[[Play], Actor | ProgramPlayer],
        limits: Mapping[str, int] | None = None,
        judge: Callable[[TaskOutcome], TaskOutcome] | None = None,
    ) -> None:
        self._judge = judge
        self._host, self._leases, self._gateway, self._player = host, leases, gateway, player
        self._limits = limits or {}

    def run(self, plays: Sequence[Play], parallel: int, stop: threading.Event | None = None) -> Iterator[Ended]:
        """Play all of them, each once; gives each as it ends. Each stream has its share of the places. Once ``stop`` is
        set none begins, and those under way are played to their end."""
        feed, left = Feed(plays, self._limits), len(plays)
        with ThreadPoolExecutor(parallel) as pool:
            running: dict[Future[Ended], Play] = {}
            try:
                while left:
                    stopped = stop is not None and stop.is_set()
                    while not stopped and len(running) < parallel and (play := feed.next()) is not None:
                        running[pool.submit(self.play, play)] = play
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        feed.ended(running.pop(done))
                        left -= 1
                        yield done.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def play(self, play: Play) -> Ended:
        """Play a rollout to its end, or go on with one that was left."""
        ended: Ended | None = None
        try:
            with self._host.lease(play.run, play.name) as lease:
                elsewhere = Ended(play, None, None, note="another process plays it", open=True)
                ended = elsewhere if lease is None else self._play(play, lease)
        except (LeaseLost, JournalError, SandboxError, OSError, subprocess.SubprocessError) as e:
            if ended is None:
                return Ended(play, None, None, note=_plain(str(e)), open=True)
            log.warning("the lease of %s could not be given back, and runs out: %s", play.session, e)
        return ended

    def _play(self, play: Play, lease: EnvironmentLease) -> Ended:
        lost = replace(play, attempt=lease.attempt) if lease.attempt else None
        if lease.state in ("scored", "posted"):
            ended = Ended(lost or play, lease.reward, lease.failure, cut_off=lease.cut_off)
            return ended if lease.state == "posted" else self._post(ended, lease)
        is_last = lost is not None and lost.attempt >= MOST_TRIES
        if lost is not None and self._gateway is not None:
            play = lost if is_last else replace(play, attempt=lost.attempt + 1)
        lease = self._leases.begins(lease, play.attempt)
        if self._gateway is not None:
            said = play.announced | ({} if lost is None else {"instead_of": lost.session})
            if (refused := announce(self._gateway, play.session, said)) is not None:
                if refused.final:  # its group was closed meanwhile: nothing that it did could be used
                    self._leases.score(lease, None, refused.why, {})
                    self._leases.posted(lease)
                else:  # nothing was played: the try is still to be had
                    self._leases.begins(lease, 0 if lost is None else lost.attempt)
                return Ended(play, None, None, note=refused.why, open=not refused.final)
        if is_last:
            self._leases.score(lease, None, CRASHED, {})
            return self._post(Ended(play, None, CRASHED), lease)
        return self._post(self._episode(play, lease), lease)

    def _episode(self, play: Play, lease: EnvironmentLease) -> Ended:
        """Play it and write down what came of it, before anybody else is told."""
        ended, steps = None, 0
        try:
            with self._host.environment(lease, play.task.environment) as held:
                worked = self._worked(play, held)
                if worked.fault is not None and not self._was_answered(play):
                    raise InfrastructureFailure(worked.fault)
                steps, outcome = worked.steps, _bounded(self._judged(held.score(), worked))
                cut_off, details = worked.cut_off or outcome.cut_off, {**outcome.details, **worked.details}
                self._leases.score(lease, outcome.reward, None, details, cut_off)
                ended = Ended(play, outcome.reward, None, steps, None, False, cut_off, details, outcome.trail)
        except (InfrastructureFailure, SandboxError) as e:
            if ended is None:  # else only the tidying failed
                ended = Ended(play, None, _plain(str(e))[:MOST_OF_A_FAILURE], steps)
                self._leases.score(lease, None, ended.failure, {"steps": steps})
        except (LeaseLost, JournalError):
            raise
        except Exception as e:  # whatever it is, it is of this rollout: the others go on
            log.error("the rollout %s ended with an error:\n%s", play.session, _plain(traceback.format_exc()))
            if ended is None:
                ended = Ended(play, None, f"{type(e).__name__}: {_plain(str(e))}"[:MOST_OF_A_FAILURE], steps)
                self._leases.score(lease, None, ended.failure, {"steps": steps})
        return ended

    def _judged(self, outcome: TaskOutcome, worked: Worked) -> TaskOutcome:
        """What a judge says of it, where the task leaves that to one. An episode that a limit ended is not asked about:
        it did not get to its answer."""
        if not outcome.asks or worked.cut_off is not None:
            return outcome
        if self._judge is None:
            raise InfrastructureFailure("the task has no verifier, and there is no judge to ask")
        return self._judge(outcome)

    def _was_answered(self, play: Play) -> bool:
        """Whether the model had a part in how it ended: from then on, what ends a program may be the policy's doing."""
        return self._gateway is not None and steps_answered(self._gateway, play.session, play.announced) > 0

    def _worked(self, play: Play, held: Held) -> Worked:
        player, first = self._player(play), held.reset(play.task)
        return player.work(held) if isinstance(player, ProgramPlayer) else _acts(player, first, held)

    def _post(self, ended: Ended, lease: EnvironmentLease) -> Ended:
        """Tell the gateway. What it was told already is told again as it was, which changes nothing."""
        if self._gateway is None:
            self._leases.posted(lease)
            return ended
        said: dict[str, object] = {"failure": ended.failure} if ended.failure is not None else {"outcome": ended.reward}
        if ended.cut_off is not None and ended.failure is None:
            said["cut_off"] = ended.cut_off
        refused, steps = post_outcome(self._gateway, ended.play.session, said)
        ended = replace(ended, steps=ended.steps or steps)
        if refused is None or refused.final:
            self._leases.posted(lease)
        return ended if refused is None else replace(ended, note=refused.why, open=not refused.final)


def _bounded(outcome: TaskOutcome) -> TaskOutcome:
    """The outcome, if the gateway takes one of that size. Raises InfrastructureFailure."""
    if outcome.reward is not None and not abs(outcome.reward) <= LARGEST_OUTCOME:
        raise InfrastructureFailure(f"the reward is {outcome.reward:g}, and not from -1e6 to 1e6")
    return outcome


def _plain(text: str) -> str:
    """A text that can be written down: what cannot be encoded is shown by its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def _acts(actor: Actor, observation: Observation, held: Held) -> Worked:
    """An actor plays: what it does is done, and what comes of that is shown to it, until one of both ends it."""
    steps, done = 0, False
    try:
        while not done and (action := actor.act(observation)) is not None:
            observation, done = held.step(str(steps), action)
            steps += 1
    except CutOff as e:
        return Worked(steps, str(e))
    return Worked(steps)
