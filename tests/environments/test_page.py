"""The examples of docs/environments.md do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.environments.test_terminal import HOLDS
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.environments.actors import ScriptedActor
from turnwise.environments.base import Action, InfrastructureFailure, Task
from turnwise.environments.host import Host
from turnwise.environments.rollout import Play, Rollouts
from turnwise.journal import Journal

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_environment_of_the_page_is_hosted_and_played(journal: Journal, tmp_path: Path) -> None:
    code = block("python")
    assert len(code.splitlines()) < 60
    names: dict[str, Any] = {}
    exec(code, names)
    host = Host(journal.environments, lambda kind, folder: names["GuessANumber"](), tmp_path, 2)
    rollouts = Rollouts(
        host,
        journal.environments,
        None,
        lambda play: ScriptedActor([Action(text=each) for each in ("50", "x", "75", "60")]),
    )
    tasks = [Task("found", "guess", "Guess.", {"number": 60}), Task("missed", "guess", "Guess.", {"number": 61})]
    ended = [rollouts.play(Play("r", task, 0, 1)) for task in tasks]
    assert [(each.reward, each.steps) for each in ended] == [(1.0, 4), (0.0, 4)]
    with pytest.raises(InfrastructureFailure):
        names["GuessANumber"]().reset(Task("broken", "guess", "Guess."))


@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
@pytest.mark.parametrize(
    ("agent", "said"), [("oracle", "mean reward 1.000 of 3"), ("nothing", "mean reward 0.000 of 3")]
)
def test_the_tasks_of_the_page_are_sound(tmp_path: Path, agent: str, said: str) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(json.loads(block("json"))))
    asked = [
        "rollout",
        str(tmp_path / "tasks.jsonl"),
        "--agent",
        agent,
        "--group",
        "3",
        "--home",
        str(tmp_path / "home"),
    ]
    done = CliRunner().invoke(app, [*asked, "--run", "one"])
    assert done.exit_code == 0 and said in done.output, (done.output, done.exception)
    with_a_journal = load_config(None, {"home": tmp_path / "home"})
    journal = Journal.open(with_a_journal)
    assert {row.state for row in journal.environments.of_run("one")} == {"posted"}
    journal.close()
