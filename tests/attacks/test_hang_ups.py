"""Clients that go away at any moment are no failure: nothing is logged as one, counted as one, or left open."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

import httpx

from tests.attacks.shooting import fire
from tests.attacks.shots import gone_early
from tests.attacks.target import target
from tests.support.servers import wait_until
from turnwise.journal import Journal
from turnwise.types import TurnState


def test_clients_that_hang_up_are_no_failures(tmp_path: Path, qwen3_dir: Path, full: bool) -> None:
    with target(tmp_path / "home", qwen3_dir) as attacked:
        made = ((n, gone_early(attacked.token, random.Random(n))) for n in itertools.count())
        seen = asyncio.run(fire(attacked.port, itertools.islice(made, 5_000 if full else 200)))
        assert seen.faults == []
        wait_until(lambda: attacked.connections() == 0, 30)
        journal = Journal.open(attacked.config)
        wait_until(lambda: journal.status.figures()["turns"].get(TurnState.SERVED, 0) == 0, 60)
        journal.close()
        url, headers = f"http://127.0.0.1:{attacked.port}/v1/status", {"Authorization": f"Bearer {attacked.token}"}
        assert httpx.get(url, headers=headers, timeout=20).json()["failed_requests"] == 0
        assert attacked.logged("Traceback") == []
