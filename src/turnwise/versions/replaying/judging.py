"""Judges a copy's turns once more, with the judge's own loop, until none waits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from turnwise.capabilities import CAPABILITIES
from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.judges.child import Child
from turnwise.judges.choice import make_judge
from turnwise.judges.model import JudgeUnavailable
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.worker import Worker

POLL_S = 0.5
STILL_S = 900.0
"""Seconds without a new verdict after which nobody waits any longer."""
Say = Callable[[str], None]


def judge_all(config: Config, original: Config, journal: Journal, say: Say) -> None:
    """Judge every turn that waits. ``original``: the home whose gateway a model judge asks where no other is named.

    Raises TurnwiseError where no verdict comes.
    """
    with contextlib.ExitStack() as stack:
        url = None
        if config.judge.kind != "model" and CAPABILITIES[config.engine.kind].pooling:
            say("starting an engine, by which replies are read")
            url = stack.enter_context(own_engine(config))
        asyncio.run(_judge(config, original, journal, url, say))


async def _judge(config: Config, original: Config, journal: Journal, url: str | None, say: Say) -> None:
    child = Child(config.judge.deadline_s)
    asks = original.model_copy(update={"judge": config.judge, "engine": config.engine})
    try:
        judge = make_judge(asks, child, url)
    except JudgeUnavailable as e:
        raise TurnwiseError(f"the judge cannot be asked: {e}; start `turnwise serve`, or set judge.url") from e
    stop = asyncio.Event()
    worker = asyncio.create_task(Worker(config, journal, judge, child).run(stop))
    try:
        await _until_judged(journal, worker, say)
    finally:
        stop.set()
        await asyncio.gather(worker, return_exceptions=True)
        await judge.close()
        await child.close()


async def _until_judged(journal: Journal, worker: asyncio.Task[None], say: Say) -> None:
    left, since, said = -1, time.monotonic(), time.monotonic()
    while True:
        figures = await asyncio.to_thread(journal.status.figures)
        now = figures["turns"]["judging"]
        if not now:
            return
        if worker.done():
            worker.result()
            raise TurnwiseError("the judge ended before all was judged")
        if now != left:
            left, since = now, time.monotonic()
        if time.monotonic() - since > STILL_S:
            told = (figures["loops"].get("judge") or {}).get("error")
            raise TurnwiseError(f"no verdict came for {STILL_S / 60:.0f} minutes: {told or 'the judge says nothing'}")
        if time.monotonic() - said > 5:
            said = time.monotonic()
            say(f"{now} turns left to judge")
        await asyncio.sleep(POLL_S)
