"""Group commit: the writes of concurrent requests share one transaction, and so one wait for the disk.

While one group is being written the next one gathers; nobody waits for company. Each caller's future is done only once
its own write is durable. A write that fails takes nothing with it: its group is rolled back and written one by one, so
only the one that fails is told so. A write must therefore do all its work on the connection and bear being run again.

A fault of the whole database is none of a write's: a locked journal or a full disk fails the group at once, and with it
whatever has waited in the queue for as long as a lock is waited for. No write waits longer than two such times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

from turnwise.errors import JournalError, JournalUnavailable

T = TypeVar("T")
MAX_GROUP = 256
MAX_WAITING = 4096
"""Writes that may wait. A journal that keeps up never has more than one for each request under way."""

Write = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A write, whom to tell of it, and since when it waits (monotonic)."""

    write: Write
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


class GroupCommit:
    """Runs writes in the order they came, in one thread, many to a `transaction`.

    A transaction waits for other writers for up to `patience_s` before it fails.
    """

    def __init__(self, transaction: Callable[[], AbstractContextManager[Connection]], patience_s: float) -> None:
        self._transaction = transaction
        self._patience_s = patience_s
        self._waiting: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def submit(self, write: Callable[[Connection], T]) -> Future[T]:
        """Write with the next group. The future cannot be cancelled: what was submitted is written.

        Raises JournalError when the journal is closed, and JournalUnavailable when too much waits already.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise JournalUnavailable(
                f"{MAX_WAITING} writes wait for the journal already; another program holds it, or its disk is too slow"
            )
        waiting = _Waiting(write)
        waiting.future.set_running_or_notify_cancel()
        self._waiting.append(waiting)
        try:
            self._thread.submit(self._commit)
        except RuntimeError:
            raise JournalError("the journal is closed") from None
        return waiting.future

    def close(self) -> None:
        """Write what is waiting, then end the thread."""
        self._thread.shutdown(wait=True)

    def _commit(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
        if not group:
            return  # an earlier group took it along
        try:
            with self._transaction() as c:
                results = [each.write(c) for each in group]
        except JournalUnavailable as e:
            self._fail(group, e)
        except Exception as e:
            if len(group) == 1:
                group[0].future.set_exception(e)
            else:
                self._commit_singly(group)
        else:
            for each, result in zip(group, results, strict=True):
                each.future.set_result(result)

    def _commit_singly(self, group: list[_Waiting]) -> None:
        for at, each in enumerate(group):
            try:
                with self._transaction() as c:
                    result = each.write(c)
            except JournalUnavailable as e:
                self._fail(group[at:], e)
                return
            except Exception as e:
                each.future.set_exception(e)
            else:
                each.future.set_result(result)

    def _fail(self, group: list[_Waiting], error: JournalUnavailable) -> None:
        """Tell a group that the database is not to be had, and those who have waited for it just as long."""
        long_ago = time.monotonic() - self._patience_s
        while self._waiting and self._waiting[0].since <= long_ago:
            group.append(self._waiting.popleft())
        for each in group:
            each.future.set_exception(error)
