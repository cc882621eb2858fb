"""Rollouts: each plays one task as an ordinary client of the gateway, and posts what came of it.

A run has a name, and each of its rollouts a session that is named after it. So a run that was killed goes on: what was
scored is posted, what was in the middle is told to the gateway as a failure of the machine, and the rest is played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from turnwise.environments.actors import Actor
from turnwise.environments.base import InfrastructureFailure, Task
from turnwise.environments.host import Host
from turnwise.errors import LeaseLost, SandboxError
from turnwise.journal.rollouts.leases import EnvironmentLease, EnvironmentLeases

UNDER_WAY_S = 120.0
"""Longest wait for an answer that is still under way when the outcome is posted."""
CRASHED = "the rollout ended in the middle of its episode"
MOST_OF_A_FAILURE = 1000


@dataclass(frozen=True, slots=True)
class GatewayAt:
    """A running gateway. ``person`` is the token that may post outcomes."""

    url: str
    agent: str
    person: str


@dataclass(frozen=True, slots=True)
class Play:
    """One rollout to be played."""

    run: str
    task: Task
    index: int
    group_size: int

    @property
    def group(self) -> str:
        return f"{self.run}.{self.task.id}"

    @property
    def session(self) -> str:
        return f"{self.group}.{self.index}"

    @property
    def headers(self) -> dict[str, str]:
        """What the gateway is told of it with each request."""
        named = {"X-Stream": self.task.environment, "X-Task-Id": self.task.id, "X-Group-Id": self.group}
        return named | {"X-Group-Size": str(self.group_size), "X-Session-Id": self.session, "X-Turn-Type": "main"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rollout ended: with a reward or a failure. ``note`` says why the gateway does not have it, or does not
    use it; ``open``: it is to be posted yet, or another has it in hand."""

    play: Play
    reward: float | None
    failure: str | None
    steps: int = 0
    note: str | None = None
    open: bool = False


class Rollouts:
    """Plays rollouts with actors that ``actor`` makes. Without a gateway nothing is posted."""

    def __init__(
        self, host: Host, leases: EnvironmentLeases, gateway: GatewayAt | None, actor: Callable[[Play], Actor]
    ) -> None:
        self._host, self._leases, self._gateway, self._actor = host, leases, gateway, actor

    def run(self, plays: Sequence[Play], parallel: int) -> Iterator[Ended]:
        """Play all of them, each once; gives each as it ends."""
        with ThreadPoolExecutor(parallel) as pool:
            waiting = [pool.submit(self.play, each) for each in plays]
            try:
                for done in as_completed(waiting):
                    yield done.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def play(self, play: Play) -> Ended:
        """Play a rollout to its end, or go on with one that was left."""
        with self._host.lease(play.run, play.session) as lease:
            if lease is None:
                return Ended(play, None, None, note="another process plays it", open=True)
            try:
                return self._play(play, lease)
            except LeaseLost as e:
                return Ended(play, None, None, note=str(e), open=True)

    def _play(self, play: Play, lease: EnvironmentLease) -> Ended:
        if lease.state in ("scored", "posted"):
            ended = Ended(play, lease.reward, lease.failure)
            return ended if lease.state == "posted" else self._post(ended, lease)
        if lease.state == "leased" and self._gateway is not None:  # an earlier holder began it
            posted = self._post(Ended(play, None, CRASHED), lease, mark=False)
            if posted.open:
                return posted
            if posted.note != NEVER_BEGAN:
                self._leases.score(lease, None, CRASHED, {})
                self._leases.posted(lease)
                return posted
        ended = self._episode(play, lease)
        return self._post(ended, lease)

    def _episode(self, play: Play, lease: EnvironmentLease) -> Ended:
        """Play it and write down what came of it, before anybody else is told."""
        steps, reward, failure, details = 0, None, None, {}
        try:
            with self._host.environment(lease, play.task.environment) as held:
                actor = self._actor(play)
                observation, done = held.reset(play.task), False
                while not done and (action := actor.act(observation)) is not None:
                    observation, done = held.step(str(steps), action)
                    steps += 1
                outcome = held.score()
                reward, details = outcome.reward, dict(outcome.details)
                self._leases.score(lease, reward, None, details)
        except (InfrastructureFailure, SandboxError) as e:
            if reward is None:  # else only the tidying failed
                failure = str(e)[:MOST_OF_A_FAILURE]
                self._leases.score(lease, None, failure, {"steps": steps})
        return Ended(play, reward, failure, steps)

    def _post(self, ended: Ended, lease: EnvironmentLease, mark: bool = True) -> Ended:
        """Tell the gateway. What it was told already is told again as it was, which changes nothing."""
        note, is_open = (None, False) if self._gateway is None else self._told(self._gateway, ended)
        if not is_open and mark:
            self._leases.posted(lease)
        return Ended(ended.play, ended.reward, ended.failure, ended.steps, note, is_open)

    def _told(self, gateway: GatewayAt, ended: Ended) -> tuple[str | None, bool]:
        said = {"failure": ended.failure} if ended.failure is not None else {"outcome": ended.reward}
        url = f"{gateway.url}/v1/sessions/{quote(ended.play.session, safe='')}/outcome"
        headers = {"Authorization": f"Bearer {gateway.person}"}
        until = time.monotonic() + UNDER_WAY_S
        while True:
            try:
                response = httpx.post(url, headers=headers, json=said, timeout=30.0, trust_env=False)
                told = response.json()
            except (httpx.HTTPError, ValueError) as e:
                return f"the gateway did not take the outcome ({type(e).__name__})", True
            if response.status_code == 200:
                return None, False
            fault = told.get("error", {}) if isinstance(told, dict) else {}
            if fault.get("code") == "answer_under_way" and time.monotonic() < until:
                time.sleep(0.2)
                continue
            if response.status_code == 404 and fault.get("code") == "session_not_found":
                return NEVER_BEGAN, False
            is_final = response.status_code == 409 and fault.get("code") in ("group_closed", "other_outcome")
            return str(fault.get("message", response.status_code))[:300], not is_final


NEVER_BEGAN = "it made no request"
