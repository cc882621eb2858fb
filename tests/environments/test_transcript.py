"""What is recorded for a fine-tuning is what a model at the gateway is sent, and what it would have answered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import Running
from tests.environments.test_rollout import at, host
from tests.environments.test_terminal import HOLDS, SOLVE, TASK
from turnwise.cli.main import app
from turnwise.environments.actors import ModelActor, RecordedActor, ScriptedActor
from turnwise.environments.base import Action, Call, Observation
from turnwise.environments.rollout import Play, Rollouts
from turnwise.environments.tasks import written
from turnwise.environments.terminal.kind import KIND, run
from turnwise.environments.transcript import Form, RolloutTranscript, instructions_of
from turnwise.errors import ConfigError
from turnwise.messages import LEFT_OUT
from turnwise.training.sft.conversations import read_data
from turnwise.types import MODEL_NAME

needs_box = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
ANSWERS = {
    "blocks": [f"```bash\n{SOLVE}\n```", "```bash\nsubmit\n```"],
    "calls": [
        f"<tool_call>{json.dumps({'name': 'run', 'arguments': {'command': command}})}</tool_call>"
        for command in (SOLVE, "submit")
    ],
}


def without_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the ids of calls, which the gateway makes up, and with arguments as values."""
    told = json.loads(json.dumps(messages))
    for message in told:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", []):
            del call["id"]
            call["function"] = {
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
            }
    return told


@needs_box
@pytest.mark.parametrize("form", ["blocks", "calls"])
def test_a_script_is_recorded_as_the_model_would_have_played(gateway: Running, tmp_path: Path, form: Form) -> None:
    answers = iter(ANSWERS[form])
    gateway.stub.reply = lambda prompt: next(answers)
    actors: list[ModelActor | RecordedActor] = []

    def model(play: Play) -> ModelActor:
        url, instructions = f"{gateway.url}/s/{play.session}/v1", instructions_of(KIND, play.task, form)
        actors.append(ModelActor(url, gateway.token, MODEL_NAME, play.headers, instructions, KIND.read))
        return actors[-1]  # pyright: ignore[reportReturnType]

    def script(play: Play) -> RecordedActor:
        actors.append(RecordedActor(ScriptedActor([run(SOLVE), run("submit")]), KIND, play.task, form))
        return actors[-1]  # pyright: ignore[reportReturnType]

    for index, make in enumerate((model, script)):
        playing = Rollouts(host(gateway.journal, tmp_path / "at"), gateway.journal.environments, at(gateway), make)
        assert playing.play(Play("r", TASK, index, 2)).reward == 1.0
    one, two = (actor.transcript for actor in actors)
    assert without_ids(one.messages) == without_ids(two.messages) and one.tools == two.tools
    (tmp_path / "data.jsonl").write_text(f"{one.line()}\n{two.line()}\n")
    assert len(read_data(tmp_path / "data.jsonl", skip_broken=False).conversations) == 2


@needs_box
def test_the_command_records_what_is_solved(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text(written(replace(TASK, data={**TASK.data, "oracle": [SOLVE]})))
    asked = ["rollout", str(tmp_path / "tasks"), "--group", "2", "--home", str(tmp_path / "home")]
    record = ["--record", str(tmp_path / "data.jsonl"), "--set", "model.path=smollm2-135m-instruct"]
    assert CliRunner().invoke(app, [*asked, "--agent", "nothing", *record]).exit_code == 0
    assert not (tmp_path / "data.jsonl").exists(), "nothing was solved"
    assert CliRunner().invoke(app, [*asked, "--agent", "oracle", *record]).exit_code == 0
    assert CliRunner().invoke(app, [*asked, "--agent", "oracle", "--form", "calls", *record]).exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    assert [len(line["messages"]) for line in lines] == [5] * 4
    few = [*asked, "--agent", "oracle", "--record", str(tmp_path / "few.jsonl"), "--keep", "task=1"]
    told = CliRunner().invoke(app, few)
    assert "1 of 2 rollouts kept" in told.output and len((tmp_path / "few.jsonl").read_text().splitlines()) == 1
    assert ["tools" in line for line in lines] == [False, False, True, True], "the small model calls no tools"


def test_in_blocks_what_came_of_each_call_is_told_before_what_is_seen() -> None:
    told = RolloutTranscript(KIND.instructions_in_blocks(TASK))
    told.hear(Observation("task"))
    told.say("click 1 2")
    told.hear(Observation("the page", ("Succeeded: one.", "Failed: two.")))
    told.say("again")
    told.hear(Observation("the output", ("the output",)))
    heard = [message["content"] for message in told.messages if message["role"] == "user"]
    assert heard == ["task", "Succeeded: one.\nFailed: two.\n\nthe page", "the output"]


def test_the_command_keeps_a_few_of_what_is_solved(tmp_path: Path) -> None:
    asked = ["rollout", str(tmp_path / "tasks"), "--home", str(tmp_path / "home")]
    told = CliRunner().invoke(app, [*asked, "--keep", "task=1"])
    assert told.exit_code != 0 and "--record" in str(told.exception)
    told = CliRunner().invoke(app, [*asked, "--keep", "task", "--record", str(tmp_path / "data.jsonl")])
    assert told.exit_code != 0 and "--keep takes" in str(told.exception)


def test_an_action_is_written_so_that_it_is_read_back() -> None:
    for command in ("ls -l", "printf '%s\\n' a > b", "for f in *; do\n  cat $f\ndone"):
        assert KIND.read(KIND.in_block(run(command))).calls == run(command).calls


def test_a_kind_without_blocks_says_so() -> None:
    class CallsAlone:
        name = "other"

    with pytest.raises(ConfigError, match="calls of tools alone"):
        instructions_of(CallsAlone(), TASK, "blocks")  # pyright: ignore[reportArgumentType]


def test_each_call_gets_its_result_and_what_is_said_beside_is_the_users() -> None:
    told = RolloutTranscript(KIND.instructions(TASK))
    told.hear(Observation("task"))
    told.act(KIND, Action((Call("run", {"command": "a"}), Call("run", {"command": "b"})), "so"), "calls")
    told.hear(Observation("more", ("one", "two")))
    kinds = [(message["role"], message["content"]) for message in told.messages[1:]]
    assert kinds == [("user", "task"), ("assistant", "so"), ("tool", "one"), ("tool", "two"), ("user", "more")]
    assert len(json.loads(told.line())["messages"]) == 3, "it ends with an answer"


def pictures_in(told: RolloutTranscript) -> list[int]:
    """How many pictures each of the user's messages has."""
    users = [message["content"] for message in told.messages if message["role"] == "user"]
    return [0 if isinstance(said, str) else sum(part["type"] == "image_url" for part in said) for said in users]


@pytest.mark.parametrize(("keep", "left"), [(1, [0, 0, 0, 1]), (2, [0, 0, 2, 1]), (9, [1, 0, 2, 1])])
def test_the_latest_pictures_are_kept_and_words_stand_for_the_others(keep: int, left: list[int]) -> None:
    told = RolloutTranscript(KIND.instructions(TASK), keep)
    for n, images in enumerate(((b"first",), (), (b"a", b"b"), (b"last",))):
        told.hear(Observation(f"text {n}", images=images))
        told.say(f"answer {n}", thought=f"thought {n}")
    assert pictures_in(told) == left
    assert (told.pictures, told.left_out) == (4, 4 - sum(left))
    assert str(told.messages).count(LEFT_OUT) == told.left_out
    for n in range(4):
        assert all(f"{what} {n}" in str(told.messages) for what in ("text", "answer", "thought")), "all else is kept"


def test_a_picture_is_sent_as_what_it_is() -> None:
    told = RolloutTranscript(KIND.instructions(TASK))
    told.hear(Observation("", images=(b"\x89PNG", b"\xff\xd8\xff")))
    urls = [part["image_url"]["url"].partition(";")[0] for part in told.messages[-1]["content"]]
    assert urls == ["data:image/png", "data:image/jpeg"]


def test_what_is_told_of_each_call_is_told_to_a_model_that_calls_no_tools() -> None:
    told = RolloutTranscript(KIND.instructions(TASK))
    told.say("a block with two lines")
    told.hear(Observation("the page", ("first done", "second failed")))
    told.say("a block")
    told.hear(Observation("the result", ("the result",)))
    assert [m["content"] for m in told.messages if m["role"] == "user"] == [
        "first done\nsecond failed\n\nthe page",
        "the result",
    ], "a result that is all there is to tell is told once"
