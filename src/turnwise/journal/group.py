"""Group commit: the writes of concurrent requests share one transaction, and so one wait for the disk.

While one group is being written the next one gathers; nobody waits for company. Each caller's future is done only once
its own write is durable. A write that fails takes nothing with it: its group is rolled back and written one by one, so
only the one that fails is told so. A write must therefore do all its work on the connection and bear being run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sqlalchemy import Connection

from turnwise.errors import JournalError

T = TypeVar("T")
MAX_GROUP = 256


class GroupCommit:
    """Runs writes in the order they came, in one thread, many to a `transaction`."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._transaction = transaction
        self._waiting: deque[tuple[Callable[[Connection], Any], Future[Any]]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def submit(self, write: Callable[[Connection], T]) -> Future[T]:
        """Write with the next group. The future cannot be cancelled: what was submitted is written."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._waiting.append((write, future))
        try:
            self._thread.submit(self._commit)
        except RuntimeError:
            raise JournalError("the journal is closed") from None
        return future

    def close(self) -> None:
        """Write what is waiting, then end the thread."""
        self._thread.shutdown(wait=True)

    def _commit(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
        if not group:
            return  # an earlier group took it along
        try:
            with self._transaction() as c:
                results = [write(c) for write, _ in group]
        except Exception as e:
            if len(group) == 1:
                group[0][1].set_exception(e)
            else:
                self._commit_singly(group)
            return
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)

    def _commit_singly(self, group: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
        for write, future in group:
            try:
                with self._transaction() as c:
                    result = write(c)
            except Exception as e:
                future.set_exception(e)
            else:
                future.set_result(result)
