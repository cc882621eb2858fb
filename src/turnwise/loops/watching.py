"""When a loop counts as hung: it has given no sign of life for longer than its limit. Pure; time is given.

A loop that is busy is not hung, so limits are generous: they are the longest honest work between two signs, and more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HEARTBEAT = "gave no sign of life"
ANSWER = "did not answer when asked whether it lives"


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """Seconds. ``start_s``: from the start of the process to the first sign; ``silent_s``: between two signs."""

    start_s: float
    silent_s: float


ENGINE = SilenceLimits(start_s=900.0, silent_s=120.0)
"""A large model may be read from a slow disk for minutes. A sign comes with each layer of a pass, and each second
while there is nothing to do; a client is told after `server.engine_stall_s`, 60 s, that the engine is silent."""
GATEWAY = SilenceLimits(start_s=180.0, silent_s=60.0)
"""It computes nothing that takes more than a second. Ending it costs the answers under way, so a machine that swaps is
given time."""
JUDGE = SilenceLimits(start_s=180.0, silent_s=60.0)
"""Its event loop waits, for the journal and for votes; reading a reply takes milliseconds."""
EVOLVER = SilenceLimits(start_s=180.0, silent_s=60.0)
"""Its event loop waits, for the journal and for a model that writes skills."""
TRAINER = SilenceLimits(start_s=900.0, silent_s=600.0)
"""A sign comes with each layer and each micro-batch. It runs at the lowest priority beside a busy engine, and what has
no sign (writing a version to a slow disk, one layer of a large model over a long turn) may take minutes there."""


class Watch:
    """One process: when it began, and when each kind of sign last came, by a clock that never jumps."""

    def __init__(self, limits: SilenceLimits, kinds: Iterable[str], now: float) -> None:
        self._limits = limits
        self._due = dict.fromkeys(kinds, now + limits.start_s)
        self.seen: set[str] = set()

    @property
    def living(self) -> bool:
        """Whether it has given every kind of sign at least once."""
        return self.seen == self._due.keys()

    def sign(self, kind: str, now: float) -> None:
        self.seen.add(kind)
        self._due[kind] = now + self._limits.silent_s

    def excuse(self, seconds: float) -> None:
        """For this long nobody could have given a sign: the machine slept, or the watcher was held up itself."""
        self._due = {kind: due + seconds for kind, due in self._due.items()}

    def fault(self, now: float) -> str | None:
        """Why it counts as hung, or None."""
        for kind, due in self._due.items():
            if now > due:
                limit = self._limits.silent_s if kind in self.seen else self._limits.start_s
                return f"{kind} for {now - due + limit:.0f} s"
        return None
