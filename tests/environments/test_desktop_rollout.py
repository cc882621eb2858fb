"""A group of rollouts on desktops through the real gateway: recorded as the stream `desktop`, each step with votes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from tests.conftest import Running
from tests.environments.test_desktop_display import MISSING
from tests.environments.test_rollout import at, outcomes
from tests.judges.test_model import serving
from turnwise.config import load_config
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, Task
from turnwise.environments.desktop.desktop_task import desktop_task
from turnwise.environments.desktop.families.table import FAMILIES
from turnwise.environments.desktop.kind import KIND
from turnwise.environments.host import Host
from turnwise.environments.rollout import Play, Rollouts
from turnwise.journal import Journal
from turnwise.judges.model import ModelJudge
from turnwise.judges.worker import Worker
from turnwise.types import MODEL_NAME

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is here")]

TASK: Task = FAMILIES["append-line"].task(3)
VOTES = ("1", "1", "-1")


def answers(actions: tuple[Action, ...]) -> list[str]:
    """As a model without tools gives them."""
    return [KIND.in_block(action) for action in actions]


def middling() -> list[list[str]]:
    """What a model of middling skill says in the four rollouts of a group: two of them right."""
    task = desktop_task(TASK.data)
    lost = [
        '```json\n{"name": "click", "arguments": {"element": "Nothing"}}\n```',
        "I am done.",
        *answers(task.spoiler[-1:]),
    ]
    return [answers(task.oracle), answers(task.spoiler), lost, ["Let me think.", *answers(task.oracle)]]


@pytest.fixture
def played(gateway: Running, tmp_path: Path) -> list[int]:
    """Play the group; gives the steps of each rollout."""
    said = [text for rollout in middling() for text in rollout]
    rest = iter(said)
    gateway.stub.reply = lambda prompt: next(rest)

    def actor(play: Play) -> ModelActor:
        url, told = f"{gateway.url}/s/{play.session}/v1", KIND.instructions_in_blocks(play.task)
        return ModelActor(url, gateway.token, MODEL_NAME, play.headers, told, KIND.read)

    leases = gateway.journal.environments
    host = Host(leases, lambda kind, place: KIND.make(place, gateway.config), tmp_path / "at", 1)
    plays = [Play("d", TASK, index, 4) for index in range(4)]
    ended = list(Rollouts(host, leases, at(gateway), actor).run(plays, 1))
    assert [(each.reward, each.failure, each.note) for each in ended] == [
        (reward, None, None) for reward in (1.0, 0.0, 0.0, 1.0)
    ]
    assert list((tmp_path / "at").iterdir()) == []
    return [each.steps for each in ended]


async def judged(config_home: Path) -> list[str]:
    """Judge every step by a model that votes 1, 1 and -1; gives what it was asked."""
    async with serving(lambda body, number: f"So: \\boxed{{{VOTES[number % 3]}}}") as endpoint:
        judge = {"judge.kind": "model", "judge.url": endpoint.url, "judge.model": "m", "judge.concurrency": 1}
        config = load_config(overrides={"home": config_home, "gate.unmeasured": "pass", **judge})
        with contextlib.closing(Journal.open(config)) as journal:
            stop = asyncio.Event()
            working = asyncio.create_task(Worker(config, journal, ModelJudge.from_config(config)).run(stop))
            async with asyncio.timeout(60):
                while waiting(journal):  # noqa: ASYNC110  what is waited for has no event
                    await asyncio.sleep(0.05)
            stop.set()
            await working
        return [json.dumps(body) for body in endpoint.bodies]


def waiting(journal: Journal) -> int:
    with journal.store.reading() as c:
        return int(c.exec_driver_sql("SELECT count(*) FROM turns WHERE state IN ('waiting', 'judging')").scalar_one())


def test_a_group_is_recorded_and_each_step_has_the_mean_of_three_votes(gateway: Running, played: list[int]) -> None:
    task = desktop_task(TASK.data)
    assert played == [len(task.oracle), len(task.spoiler), 3, len(task.oracle) + 1]
    assert set(outcomes(gateway).values()) == {(1.0, None), (0.0, None)}
    with gateway.journal.store.reading() as c:
        rows = c.exec_driver_sql("SELECT stream, task_id, size FROM task_groups").all()
    assert [tuple(row) for row in rows] == [("desktop", TASK.id, 4)]
    asked = asyncio.run(judged(gateway.config.home))
    config = load_config(
        overrides={"home": gateway.config.home, "gate.unmeasured": "pass", "streams.desktop.groups": 1}
    )
    with contextlib.closing(Journal.open(config)) as journal:
        batch = journal.batches.claim("trainer", 60, True)
    assert batch is not None and {sample.stream for sample in batch.samples} == {"desktop"}
    assert len(batch.samples) == sum(played)
    judged_steps = sum(played) - 4  # the last step of each has no next state
    assert len(asked) == 3 * judged_steps and any("The window" in body for body in asked), "it sees what came back"
    rewards = sorted({round(sample.reward, 6) for sample in batch.samples})
    assert rewards == [0.0, round(1 / 3, 6), 1.0, round(4 / 3, 6)]
