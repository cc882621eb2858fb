"""What is done to the program in a soak, one thing after the other and all by a seed.

First everything: loops are killed and made to hang for a while or for good, the clock is stepped, the disk is full, an
earlier version is made to serve. Then, in the calm second part, nothing is killed any more, so that memory can be seen.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from turnwise.bench.soak.clock import Clock
from turnwise.bench.soak.disk import Disk
from turnwise.bench.soak.ledger import FaultPhase, Ledger, Rollback
from turnwise.bench.soak.program import LOOPS, Program, wait_for
from turnwise.loops import watching

RECOVERY_LIMIT_S = 150.0
HOUR_S = 3600
OUTLASTED = {"judge": watching.JUDGE, "gateway": watching.GATEWAY, "engine": watching.ENGINE}
"""Loops that are made to hang until they are replaced. The trainer may be silent for too long to wait for it here."""
ROUGH_SHARE, QUICK_ROUGH_SHARE = 0.5, 0.75
"""The part of a soak in which loops are killed and made to hang."""


@dataclass
class Faults:
    """Makes the faults until the time is up. Gives up on nothing: what does not recover stands in the ledger."""

    program: Program
    ledger: Ledger
    disk: Disk | None
    clock: Clock
    seed: int
    quick: bool

    def __post_init__(self) -> None:
        self._rng = random.Random(f"faults/{self.seed}")
        if self.disk is None:
            self.ledger.not_done.append("a full disk: only root on Linux may mount the small disk that it needs")

    def play(self, until_s: float) -> float:
        """Everything, then the calm part; gives the second at which the calm part began."""
        rough_s = self.ledger.now() + (until_s - self.ledger.now()) * (QUICK_ROUGH_SHARE if self.quick else ROUGH_SHARE)
        some = [partial(self.kill, name) for name in (*LOOPS, "trainer")]
        some += [partial(self.hang, name) for name in LOOPS]
        rare = [self.step_clock, self.fill_disk] * (1 if self.quick else 2)
        dead = [] if self.quick else [partial(self.outlast, name) for name in OUTLASTED]
        pause_s = (0.5, 3.0) if self.quick else (1.0, 6.0)
        self._some_of(rough_s, [*some, self.roll_back], [*rare, *dead], pause_s)
        calm_s = self.ledger.now()
        self._some_of(until_s, [self.roll_back], [] if self.quick else rare, pause_s=(10.0, 25.0))
        return calm_s

    def _some_of(
        self,
        until_s: float,
        some: Sequence[Callable[[], None]],
        rare: Sequence[Callable[[], None]],
        pause_s: tuple[float, float],
    ) -> None:
        """Each of ``rare`` comes once, in between all of the others, again and again."""
        deck: list[Callable[[], None]] = []
        began = self.ledger.now()
        left = list(rare)
        due = [began + (until_s - began) * (i + 0.5) / len(left) for i in range(len(left))]
        while self.ledger.now() < until_s:
            if due and self.ledger.now() >= due[0]:
                due.pop(0)
                left.pop(0)()
            else:
                deck = deck or self._rng.sample(some, len(some))
                deck.pop()()
            pause = self._rng.uniform(*pause_s)
            next_due = due[0] if due else until_s
            time.sleep(max(0.0, min(pause, next_due - self.ledger.now())))

    # -- one fault each -------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """`kill -9` of one loop."""
        process = self.program.loop(name)
        if process is None:
            return
        phase = self.ledger.begin("kill", name)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        self._until_back(phase, process)

    def hang(self, name: str) -> None:
        """A loop that stands still for a while, and goes on then unless it was replaced."""
        process = self.program.loop(name)
        if process is None:
            return
        phase = self.ledger.begin("hang", name)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
        try:
            wait_for(lambda: not process.is_running(), self._rng.uniform(4, 10 if self.quick else 25))
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self._until_back(phase, None)

    def outlast(self, name: str) -> None:
        """A loop that stands still for longer than it may be silent, so that another has to take its place."""
        process = self.program.loop(name)
        if process is None:
            return
        phase = self.ledger.begin("hang for good", name)
        try:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
            wait_for(lambda: not process.is_running(), OUTLASTED[name].silent_s + RECOVERY_LIMIT_S)
            self._until_back(phase, process)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def step_clock(self) -> None:
        """An hour forth or back for the program, and then to the right time again."""
        for hours in self._rng.sample((1, -1), 2):
            phase = self.ledger.begin("clock", f"{hours:+d} h")
            try:
                self.clock.step(hours * HOUR_S)
                time.sleep(5 if self.quick else 25)
            finally:
                self.clock.step(0)
            time.sleep(2 if self.quick else 10)
            self._until_back(phase, None)

    def fill_disk(self) -> None:
        """A disk without room for a while; afterwards answers come again by themselves."""
        if self.disk is None:
            return
        phase = self.ledger.begin("disk", "full")
        try:
            if not self.disk.fill():
                self.ledger.not_done.append("a full disk: it could not be filled while the program wrote to it")
            time.sleep(8 if self.quick else 20)
        finally:
            self.disk.free()
        before = self.ledger.answered()
        wait_for(lambda: self.ledger.answered() > before, RECOVERY_LIMIT_S)
        self._until_back(phase, None)

    def roll_back(self) -> None:
        """One of the last versions, or the base model, serves again."""
        before = self.program.versions()
        if not before:
            return
        to = self._rng.choice([0, *before[-3:]])
        phase = self.ledger.begin("rollback", f"v{to}")
        done = self.program.command("versions", "rollback", str(to))
        if done is not None and done.returncode == 0:
            after = self.program.versions()
            newest = max(after, default=0)
            self.ledger.rollbacks.append(Rollback(to, newest, clear=newest == max(before)))
        elif done is not None:
            self.ledger.side.append((phase.began_s, f"rollback: {(done.stderr or done.stdout)[-300:]}", None))
        self.ledger.end(phase)

    def _until_back(self, phase: FaultPhase, gone: psutil.Process | None) -> None:
        """Wait until the program is ready again, with a new process in place of the one that is gone."""

        def back() -> bool:
            current = self.program.loop(phase.about) if gone is not None else None
            replaced = gone is None or (current is not None and current.pid != gone.pid)
            return replaced and self.program.ready()

        if wait_for(back, RECOVERY_LIMIT_S, every_s=0.2):
            self.ledger.end(phase)
