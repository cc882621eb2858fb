"""Environments that are made ahead, so that a rollout need not wait for one: a few of each kind that was asked for.

Only kinds that can be prepared without a task are kept (`base.Preparable`). One that is no longer fit when its turn
comes is thrown away and another made.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turnwise.environments.base import Environment, InfrastructureFailure, Maker, Preparable
from turnwise.sandbox.leftovers import named

log = logging.getLogger(__name__)


class Reserve:
    """``most`` of each kind wait, each in a folder of its own below ``folder``; 0: each is made when it is needed."""

    def __init__(self, make: Maker, folder: Path, most: int) -> None:
        self._make, self._folder, self._most = make, folder, most
        self._ready: defaultdict[str, deque[tuple[Path, Environment]]] = defaultdict(deque)
        self._lock = threading.Lock()
        self._filler = ThreadPoolExecutor(1, thread_name_prefix="makes environments") if most else None

    def take(self, kind: str) -> tuple[Path, Environment]:
        """An environment and its folder: one that waits and is fit, else a new one."""
        while (found := self._next(kind)) is not None:
            folder, environment = found
            if isinstance(environment, Preparable) and environment.is_fit():
                break
            log.warning("an environment that was made ahead is not fit any more, and is replaced: %s", folder.name)
            _close(environment)
        else:
            folder = self._folder / named()
            environment = self._make(kind, folder)
        if self._filler is not None and isinstance(environment, Preparable):
            self._filler.submit(self._fill, kind)
        return folder, environment

    def waiting(self, kind: str) -> int:
        """How many of a kind are ready."""
        with self._lock:
            return len(self._ready[kind])

    def close(self) -> None:
        """Close those that nobody took. May be called again; what is asked for later is made then."""
        if self._filler is not None:
            self._filler.shutdown(wait=True, cancel_futures=True)
            self._filler = None
        with self._lock:
            left = [environment for waiting in self._ready.values() for _, environment in waiting]
            self._ready.clear()
        for environment in left:
            _close(environment)

    def _next(self, kind: str) -> tuple[Path, Environment] | None:
        with self._lock:
            return self._ready[kind].popleft() if self._ready[kind] else None

    def _fill(self, kind: str) -> None:
        while self.waiting(kind) < self._most:
            folder = self._folder / named()
            environment = self._make(kind, folder)
            try:
                assert isinstance(environment, Preparable)
                environment.prepare()
            except Exception as e:  # whoever needs one will be told when it is made for them
                log.warning("no environment could be made ahead: %s", e)
                _close(environment)
                return
            with self._lock:
                self._ready[kind].append((folder, environment))


def _close(environment: Environment) -> None:
    try:
        environment.close()
    except InfrastructureFailure as e:
        log.warning("an environment that was made ahead could not be taken away: %s", e)
