"""What is made of the times at which tokens came. The server is left out: the times are made up."""

from __future__ import annotations

import asyncio
import time

import pytest

from turnwise.bench import engine_speed


@pytest.mark.parametrize(("gaps", "longest"), [([], 0.0), ([1.0, 3.0, 2.0], 3.0)])
def test_the_longest_gap_is_between_tokens_and_there_is_none_of_one_token(
    monkeypatch: pytest.MonkeyPatch, gaps: list[float], longest: float
) -> None:
    async def stream(*_: object) -> list[float]:
        times = [time.perf_counter()]
        for gap in gaps:
            times.append(times[-1] + gap)
        return times

    monkeypatch.setattr(engine_speed, "_stream", stream)
    found = asyncio.run(engine_speed.measure("http://127.0.0.1:1", 2, new_tokens=1 + len(gaps)))
    assert found.longest_gap == pytest.approx(longest)
