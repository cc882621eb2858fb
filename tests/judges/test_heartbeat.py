"""What the judge says of itself, for `turnwise status` and `turnwise doctor`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.test_worker import Scripted, add_turn, down, good, settings, state, until
from turnwise.journal import Journal
from turnwise.judges import worker as module
from turnwise.judges.worker import Worker, run
from turnwise.types import TurnState


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def said(journal: Journal) -> dict[str, Any]:
    return journal.status.figures()["loops"].get("judge", {})


async def test_a_judge_says_what_went_wrong_last_and_that_it_is_over(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)
    turn = add_turn(journal, "aaa", "hm")
    judge = Scripted(lambda task: down(task) if task.attempts == 1 else good(task))
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path, retry_s=1.0), journal, judge).run(stop))
    await until(lambda: said(journal).get("error") == "the endpoint is down")
    await until(lambda: state(journal, turn) is TurnState.READY)
    await until(lambda: said(journal) | {"error": None} == said(journal))
    assert said(journal)["state"] in ("waiting", "judging")
    stop.set()
    await asyncio.wait_for(running, 10)
    assert said(journal)["state"] == "stopped"


async def test_a_judge_that_waits_for_its_endpoint_says_so(journal: Journal, tmp_path: Path) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run(settings(tmp_path, kind="model"), stop))
    await until(lambda: "token" in str(said(journal).get("error")))
    assert said(journal)["state"] == "waiting"
    stop.set()
    await asyncio.wait_for(running, 10)
