"""The host: leases environments to rollouts, a bounded number at a time, and cleans up what a crashed one left.

What it has to know after a kill stands in the journal: who holds which rollout, where its files lie, and what came of
it. A holder whose lease ran out is refused at its next call.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from turnwise.environments.base import (
    Action,
    Environment,
    InfrastructureFailure,
    Maker,
    Observation,
    Task,
    TaskOutcome,
    Workplace,
)
from turnwise.environments.reserve import Reserve
from turnwise.errors import JournalError, LeaseLost
from turnwise.journal.rollouts.leases import LEASE_S, EnvironmentLease, EnvironmentLeases
from turnwise.sandbox.choice import clean_up
from turnwise.sandbox.folder import delete_folder
from turnwise.sandbox.limits import Allowed, BoxLimits, Ran

log = logging.getLogger(__name__)


class Held:
    """An environment in the hands of one rollout. Each call has a key; the same key again gives the same answer."""

    def __init__(self, environment: Environment, lease: EnvironmentLease, lost: threading.Event) -> None:
        self._environment, self.lease, self._lost = environment, lease, lost
        self._answered: dict[str, tuple[Observation, bool]] = {}

    def reset(self, task: Task) -> Observation:
        self._check()
        return self._environment.reset(task)

    def step(self, key: str, action: Action) -> tuple[Observation, bool]:
        """Do an action once, however often it is asked for under this key. Raises LeaseLost."""
        self._check()
        if key not in self._answered:
            self._answered[key] = self._environment.step(action)
        return self._answered[key]

    def work(self, command: str, limits: BoxLimits, allowed: Allowed) -> Ran:
        """Let a program work in the environment. Raises LeaseLost, and InfrastructureFailure where it is no place for
        programs."""
        self._check()
        if not isinstance(self._environment, Workplace):
            raise InfrastructureFailure("no program can work in this kind of environment; play it with --agent minimal")
        return self._environment.work(command, limits, allowed)

    def score(self) -> TaskOutcome:
        self._check()
        return self._environment.score()

    def _check(self) -> None:
        if self._lost.is_set():
            raise LeaseLost(f"the rollout {self.lease.session_id} is another's by now; drop the work")


class Host:
    """Environments made by ``make``, each in a folder of its own below ``folder``; at most ``most`` at a time, and
    ``warm`` of each kind made ahead. What hosts that were killed left there is taken away at the start."""

    def __init__(
        self,
        leases: EnvironmentLeases,
        make: Maker,
        folder: Path,
        most: int,
        keep_every_s: float = LEASE_S / 4,
        warm: int = 0,
    ) -> None:
        self._leases, self._folder = leases, folder
        if left := clean_up(folder):
            log.warning("%d things were taken away that a host left which was killed", left)
        self._reserve = Reserve(make, folder, warm)
        self._places = threading.BoundedSemaphore(most)
        self._lost: dict[tuple[str, int], threading.Event] = {}
        self._keep_every_s = keep_every_s

    @contextlib.contextmanager
    def lease(self, run: str, session_id: str) -> Iterator[EnvironmentLease | None]:
        """Hold a rollout while the block runs, however long that waits for something; None where another holds it.
        Nothing is left of it afterwards."""
        lease = self._leases.take(run, session_id)
        if lease is None:
            yield None
            return
        lost, ended = threading.Event(), threading.Event()
        keeper = threading.Thread(target=self._keep, args=(lease, lost, ended), daemon=True)
        self._lost[lease.session_id, lease.token] = lost
        keeper.start()
        try:
            if lease.left_folder is not None:
                self._delete(Path(lease.left_folder))
            yield lease
        finally:
            ended.set()
            keeper.join()
            del self._lost[lease.session_id, lease.token]
            self._leases.give_back(lease)

    @contextlib.contextmanager
    def environment(self, lease: EnvironmentLease, kind: str) -> Iterator[Held]:
        """An environment of this kind for a rollout that this host has leased; waits for a place."""
        with self._places:
            folder, environment = self._reserve.take(kind)
            try:
                self._leases.lies_in(lease, str(folder))
                yield Held(environment, lease, self._lost[lease.session_id, lease.token])
            finally:
                environment.close()

    def close(self) -> None:
        """Take away the environments that nobody took."""
        self._reserve.close()

    def _keep(self, lease: EnvironmentLease, lost: threading.Event, ended: threading.Event) -> None:
        while not ended.wait(self._keep_every_s):
            try:
                self._leases.keep(lease)
            except LeaseLost:
                return lost.set()
            except JournalError as e:  # the next try may succeed, and the journal itself decides who holds it
                log.warning("the lease of %s could not be kept: %s", lease.session_id, e)
        return None

    def _delete(self, folder: Path) -> None:
        """Delete what an earlier holder left, if it is a folder of this host."""
        if folder.parent != self._folder:
            raise InfrastructureFailure(f"{folder} is no folder of this host; delete it by hand")
        delete_folder(folder)
