"""Calls as answers: read from the leaderboard's files, compared by its rules, and nothing is carried out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.environments.base import Action, Call
from turnwise.environments.tasks import read_tasks
from turnwise.environments.tools.calls import wanted_calls
from turnwise.environments.tools.environment import ToolsEnvironment
from turnwise.environments.tools.kind import KIND
from turnwise.errors import DataError

PLAY = {
    "name": "spotify.play",
    "description": "Play tracks.",
    "parameters": {
        "type": "dict",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "integer"},
            "loud": {"type": "float"},
            "shuffle": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "dict"},
        },
        "required": ["artist", "minutes"],
    },
}
OPTIONAL: dict[str, list[Any]] = {
    "loud": ["", 0.5], "shuffle": ["", True], "tags": ["", ["a", "b"]], "more": ["", {"k": [1, 2], "l": [""]}],
}  # fmt: skip
WANTED = [
    {"spotify.play": {"artist": ["Maroon 5", "Maroon Five"], "minutes": [15], **OPTIONAL}},
    {"spotify.play": {"artist": ["Taylor Swift"], "minutes": [20], **OPTIONAL}},
]
RIGHT = [{"artist": "taylor-swift", "minutes": 20}, {"artist": "Maroon five", "minutes": 15}]
DATA: dict[str, object] = {"functions": [PLAY], "calls": WANTED}


def calls(*arguments: dict[str, Any], name: str = "spotify_play") -> tuple[Call, ...]:
    return tuple(Call(name, each) for each in arguments)


@pytest.mark.parametrize("more", [{}, {"loud": 0.5}, {"shuffle": True}, {"tags": ["A", "b"]}, {"more": {"k": 2}}])
def test_right_calls_are_right_in_any_order(more: dict[str, Any]) -> None:
    wanted = wanted_calls(DATA)
    assert wanted.are_right(calls(RIGHT[0] | more, RIGHT[1])) and wanted.are_right(calls(RIGHT[1], RIGHT[0] | more))


@pytest.mark.parametrize(
    "given",
    [
        calls(),
        calls(RIGHT[0]),
        calls(*RIGHT, RIGHT[0]),
        calls(RIGHT[0], RIGHT[0]),
        calls(*RIGHT, name="spotify_stop"),
        *[calls(RIGHT[0] | {key: value}, RIGHT[1]) for key, value in [
            ("minutes", 21), ("minutes", "20"), ("minutes", 20.0), ("minutes", True), ("artist", ["Taylor Swift"]),
            ("volume", 3), ("shuffle", 1), ("shuffle", False), ("loud", True), ("loud", 1), ("tags", ["a"]),
            ("tags", ["b", "a"]), ("more", {"k": 3}), ("more", {"k": 1, "z": 1}), ("more", {}), ("artist", None),
        ]],
        calls({"artist": "Taylor Swift"}, RIGHT[1]),
    ],
)  # fmt: skip
def test_other_calls_are_wrong(given: tuple[Call, ...]) -> None:
    assert not wanted_calls(DATA).are_right(given)


def test_a_task_ends_with_its_first_answer(tmp_path: Path) -> None:
    (tmp_path / "possible_answer").mkdir()
    name = "BFCL_v4_parallel.json"
    asked = {"id": "parallel_0", "question": [[{"role": "user", "content": "Play."}]], "function": [PLAY]}
    (tmp_path / name).write_text(json.dumps(asked))
    (tmp_path / "possible_answer" / name).write_text(json.dumps({"id": "parallel_0", "ground_truth": WANTED}))
    made = ["tasks", "calls", str(tmp_path), "--categories", "parallel", "--out", str(tmp_path / "tasks")]
    done = CliRunner().invoke(app, made)
    assert done.exit_code == 0, (done.output, done.exception)
    (task,) = read_tasks(tmp_path / "tasks")
    assert (task.id, task.prompt, dict(task.data)) == ("parallel_0", "Play.", DATA)
    (tool,) = KIND.instructions(task).tools
    assert tool["function"]["name"] == "spotify_play"
    assert [tool["function"]["parameters"][key] for key in ("type", "required")] == ["object", ["artist", "minutes"]]
    (oracle,) = KIND.oracle(task)
    environment = ToolsEnvironment(tmp_path / "episode")
    for action, reward in ((oracle, 1.0), (KIND.read(KIND.in_block(oracle)), 1.0), (Action(text="Playing."), 0.0)):
        environment.reset(task)
        assert environment.step(action)[1] and environment.score().reward == reward
    environment.reset(task)
    assert environment.score().reward == 0.0
    environment.close()


@pytest.mark.parametrize(
    "change",
    [{"functions": []}, {"calls": []}, {"calls": [{}]}, {"calls": [{"f": {"a": 1}}]}, {"functions": [{"name": "f"}]},
     {"answer": "1"}],
)  # fmt: skip
def test_a_task_that_is_none_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError):
        KIND.check_task(DATA | change)


def test_files_that_are_none_are_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tasks", "calls", str(tmp_path), "--out", str(tmp_path / "t")])
    assert isinstance(done.exception, DataError) and "leaderboard" in str(done.exception)
