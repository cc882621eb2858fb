"""What a soak did and saw, in the order in which it happened. Times are seconds since the soak began."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Asked:
    """One request as its client saw it. ``key`` stands in its text and is the same for the retries of a request."""

    key: str
    wire: str
    streamed: bool
    sent_s: float
    retried: bool
    ended_s: float = 0.0
    status: int | None = None
    turn_id: str | None = None
    version: int | None = None
    text: str = ""
    whole: bool = False
    hung_up: bool = False
    late: bool = False
    error: str | None = None


@dataclass(slots=True)
class FaultPhase:
    """Something that was done to the program, until it had recovered. ``about`` is one loop, or empty."""

    kind: str
    about: str
    began_s: float
    ended_s: float | None = None


@dataclass(slots=True)
class Rollback:
    """A version made to serve again; ``newest`` was the highest number before and after. ``clear`` if they agree."""

    to: int
    newest: int
    clear: bool


@dataclass
class Ledger:
    """Written by the clients and by whoever makes the faults; read when both are done."""

    asked: list[Asked] = field(default_factory=list)
    phases: list[FaultPhase] = field(default_factory=list)
    rollbacks: list[Rollback] = field(default_factory=list)
    side: list[tuple[float, str, int | None]] = field(default_factory=list)  # closings and feedback, with their status
    not_done: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        return time.monotonic() - self._began

    def add(self, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)

    def answered(self) -> int:
        with self._lock:
            return sum(1 for asked in self.asked if asked.whole)

    def begin(self, kind: str, about: str = "") -> FaultPhase:
        phase = FaultPhase(kind, about, self.now())
        self.phases.append(phase)
        return phase

    def end(self, phase: FaultPhase) -> None:
        phase.ended_s = self.now()

    def phases_during(self, began_s: float, ended_s: float, after_s: float) -> list[FaultPhase]:
        """The phases that touch a stretch of time, each taken to last ``after_s`` longer than it did."""
        return [
            phase
            for phase in self.phases
            if phase.began_s <= ended_s and (phase.ended_s is None or phase.ended_s + after_s >= began_s)
        ]
