"""A hundred thousand hostile requests on the real gateway: none makes it fail, hang, or keep memory.

`make test` sends three thousand of them. What a number makes is always the same: `shots.shot(NUMBER, TOKEN)`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.attacks.shooting import fire
from tests.attacks.shots import KINDS, shot
from tests.attacks.target import target
from tests.support.servers import wait_until
from turnwise.journal import Journal
from turnwise.types import TurnState

SHORT, FULL = 3_000, 100_000
GROWTH, SLACK_MB = 1.25, 60.0
"""How much more memory the server may have after the second half of a full run than after the first."""
SHORT_GROWTH_MB = 400.0
"""What a short run may add: its caches are still being filled."""


@pytest.mark.timeout(3600)
def test_no_request_breaks_the_gateway(tmp_path: Path, qwen3_dir: Path, full: bool) -> None:
    count = FULL if full else SHORT
    first = 0 if full else FULL  # others than in the full form
    with target(tmp_path / "home", qwen3_dir) as attacked:
        memory = [attacked.memory_mb()]
        for part in (range(first, first + count // 2), range(first + count // 2, first + count)):
            seen = asyncio.run(fire(attacked.port, ((n, shot(n, attacked.token)) for n in part)))
            assert seen.faults == [], "\n".join(seen.faults) + f"\n{attacked.logged('Traceback')[:2]}"
            assert attacked.answers(), "it serves on"
            memory.append(attacked.memory_mb())
            print(f"\n{seen.fired} requests: {seen.summary()}; memory {memory[-1]:.0f} MB", flush=True)
        assert {kind for kind, _ in seen.statuses} == {make_kind(make) for make, _ in KINDS} or not full
        assert attacked.logged("Traceback") == []
        if full:
            assert memory[2] <= memory[1] * GROWTH + SLACK_MB, f"memory grows: {memory}"
        else:
            assert memory[2] <= memory[0] + SHORT_GROWTH_MB, f"memory grows: {memory}"
        wait_until(lambda: attacked.connections() == 0, 30)
        journal = Journal.open(attacked.config)
        wait_until(lambda: journal.status.figures()["turns"].get(TurnState.SERVED, 0) == 0, 60)
        journal.close()


def make_kind(make: object) -> str:
    """The name of a kind of shot."""
    import random

    return make("x", random.Random(0)).kind  # type: ignore[operator]
