"""Breaks off the answers that are still under way when the gateway has to end, so that their clients are told why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise.gateway.errors import ApiError


class Leaving:
    """Knows the tasks that wait for an answer. Each is cancelled once the time for it is up, and says so instead."""

    def __init__(self) -> None:
        self.over = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """What this task waits for within the block may be broken off; asked for after that it is as well."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.over:
                task.cancel()
            yield
        finally:
            self._tasks.discard(task)

    def break_off(self) -> None:
        """End every wait for an answer. Called once, in the event loop."""
        self.over = True
        for task in list(self._tasks):
            task.cancel()

    def excuse(self) -> ApiError | None:
        """For who was cancelled: what to tell the client, and the task goes on; None where it has to end."""
        task = asyncio.current_task()
        if not self.over or task is None:
            return None
        task.uncancel()
        return ApiError(
            503,
            "the server stops before the answer was complete; ask again once it is back",
            code="server_stopping",
            headers={"Retry-After": "5"},
        )
