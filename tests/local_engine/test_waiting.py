"""A request that waits in the engine's queue shows signs of life, so that its client does not take it for dead."""

from __future__ import annotations

import asyncio

import pytest

from turnwise.local_engine import server
from turnwise.local_engine.requests import Finish, Output


async def test_a_stream_with_nothing_to_say_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SIGN_OF_LIFE_S", 0.01)
    answer = server._Answer(request=None, queue=asyncio.Queue())  # type: ignore[arg-type]  # only its queue is read
    outputs = answer.outputs()
    assert [await anext(outputs), await anext(outputs)] == [None, None]
    last = Output([1], [-0.5], "x", Finish.STOP)
    answer.queue.put_nowait(last)
    assert [out async for out in outputs if out is not None] == [last]
