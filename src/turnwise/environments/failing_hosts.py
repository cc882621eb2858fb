"""Hosts that fail again and again are left out for a while, so that no more rollouts are lost to them.

A host failed a rollout when its page did not open, or hung or was cut off in the middle; one rollout in which it did
not clears it. What is known is of this process alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from turnwise.config.hosts import is_named

log = logging.getLogger(__name__)
MOST_KNOWN = 10_000
"""Hosts that are remembered."""


@dataclass(slots=True)
class _Failures:
    in_a_row: int
    last: str
    until: float | None = None


class FailingHosts:
    """``most`` rollouts that a host fails one after the other leave it out for ``rest_s``; 0: none ever is.

    After that it has one more chance before it is left out again. Those in ``never`` (`host`, `host:port`, `*.host`)
    always are. Safe in several threads.
    """

    def __init__(
        self,
        most: int,
        rest_s: float,
        clock: Callable[[], float] = time.monotonic,
        never: Iterable[str] = (),
    ) -> None:
        self._never = tuple(never)
        self._most, self._rest_s, self._clock = most, rest_s, clock
        self._lock = threading.Lock()
        self._known: dict[str, _Failures] = {}

    def why_never(self, url: str) -> str | None:
        """Why no rollout ever begins at this address; None where one may."""
        if is_named(url, self._never):
            return f"the host {urlsplit(url).hostname} is left out (environments.left_out_hosts)"
        return None

    def failed(self, host: str, why: str) -> None:
        """A rollout met a failure of this host."""
        if not self._most:
            return
        with self._lock:
            if host not in self._known and len(self._known) >= MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            known = self._known.setdefault(host, _Failures(0, ""))
            known.in_a_row, known.last = known.in_a_row + 1, why[:200]
            if known.in_a_row < self._most or known.until is not None:
                return
            known.until = self._clock() + self._rest_s
        log.warning(
            "the host %s is left out for %.0f minutes: it failed %d rollouts in a row, the last with: %s",
            host, self._rest_s / 60, known.in_a_row, known.last,
        )  # fmt: skip

    def worked(self, host: str) -> None:
        """A rollout met no failure of this host."""
        with self._lock:
            self._known.pop(host, None)

    def why_left_out(self, host: str) -> str | None:
        """Why no rollout begins at this host now; None where one may."""
        with self._lock:
            known = self._known.get(host)
            if known is None or known.until is None:
                return None
            left = known.until - self._clock()
            if left <= 0:
                known.until, known.in_a_row = None, self._most - 1
                return None
            return (
                f"the host {host} is left out: it failed {known.in_a_row} rollouts in a row, the last with: "
                f"{known.last}; it is tried again in {left / 60:.0f} minutes (environments.failing_hosts)"
            )


@cache
def failing_hosts(most: int, rest_s: float, never: tuple[str, ...] = ()) -> FailingHosts:
    """What this process knows."""
    return FailingHosts(most, rest_s, never=never)
