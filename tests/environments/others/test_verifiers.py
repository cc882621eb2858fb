"""Tasksets of the real `verifiers`, in an environment of its own (`make verifiers`) and in the sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import Running
from tests.environments.test_rollout import at, outcomes
from tests.environments.test_terminal import HOLDS
from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, Call, InfrastructureFailure, Task
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.rollout import Play, Rollouts
from turnwise.environments.tasks import read_tasks
from turnwise.environments.transcript import instructions_of
from turnwise.environments.verified import child
from turnwise.environments.verified.child import TasksetRefused, verifiers_python
from turnwise.environments.verified.environment import BEYOND, VerifiersEnvironment
from turnwise.environments.verified.task import taskset_task
from turnwise.errors import ConfigError, DataError
from turnwise.types import MODEL_NAME

try:
    verifiers_python()
    MISSING = ""
except ConfigError as e:
    MISSING = str(e)
needs_all = pytest.mark.skipif(bool(MISSING) or not HOLDS, reason=MISSING or "no bubblewrap here (make sandbox)")
KIND = kind_of("verifiers")
SUMS = """
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)

    @vf.reward(weight=0.1)
    async def brief(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 20)

    @vf.metric
    async def answers(self, trace: vf.Trace) -> float:
        return trace.num_turns


class SumConfig(vf.TasksetConfig):
    number: int = 3


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self):
        print("what a taskset prints is no answer")
        for n in range(self.config.number):
            prompt = f"What is {n} + {n}?"
            yield SumTask(SumData(prompt=prompt, system_prompt="Answer with a number.", answer=str(2 * n)))


__all__ = ["SumTaskset"]
"""
SHELF = '''
import verifiers.v1 as vf


class ShelfState(vf.State):
    taken: list[str] = []


class Shelf(vf.Toolset[vf.ToolsetConfig, ShelfState]):
    @vf.tool
    async def take(self, thing: str) -> str:
        """Take a thing from the shelf."""
        if thing == "air":
            raise ValueError("there is no air on the shelf")
        if thing == "time":
            while True:
                pass
        self.state.taken.append(thing)
        return f"you have {len(self.state.taken)} things"


class ShelfTask(vf.Task[vf.TaskData, ShelfState]):
    @classmethod
    def toolsets(cls, config):
        return [Shelf(vf.ToolsetConfig())]

    @vf.reward
    async def both(self, trace: vf.Trace) -> float:
        return len({"cup", "book"} & set(trace.state.taken)) / 2 + (0.0 if trace.tool_messages else -1.0)


class ShelfTaskset(vf.Taskset[ShelfTask]):
    def load(self):
        yield ShelfTask(vf.TaskData(prompt="Take the cup and the book."))


__all__ = ["ShelfTaskset"]
'''
HOSTILE = """
import asyncio, socket
import verifiers.v1 as vf


class OddTask(vf.Task):
    @vf.reward
    async def odd(self, trace: vf.Trace) -> float:
        said = trace.last_reply
        if said == "crash":
            raise ValueError("a rubric with a fault")
        if said == "nan":
            return float("nan")
        if said == "hang":
            while True:
                pass
        if said == "net":
            socket.create_connection(("127.0.0.1", 8377), timeout=5)
        return float(open("/etc/hostname").read() != "")


class OddTaskset(vf.Taskset[OddTask]):
    def load(self):
        yield OddTask(vf.TaskData(prompt="Say something."))
        yield OddTask(vf.TaskData(prompt="Play in a container.", image="debian"))
        yield OddTask(vf.TaskData(prompt=None))


__all__ = ["OddTaskset"]
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf") / "tasksets"
    folder.mkdir()
    for name, text in {"sums": SUMS, "shelf_things": SHELF, "odd": HOSTILE}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def made(shelf: Path, name: str, *more: str) -> tuple[list[Task], str]:
    """The tasks of a taskset, and what the command said."""
    file = shelf.parent / f"{name}.jsonl"
    done = CliRunner().invoke(app, ["tasks", "verifiers", name, "--folder", str(shelf), "--out", str(file), *more])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return read_tasks(file), done.output


def answered(answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]


@pytest.fixture(scope="module")
def things(shelf: Path) -> Task:
    return made(shelf, "shelf_things")[0][0]


@needs_all
def test_answers_are_scored_by_the_rubric(shelf: Path, tmp_path: Path) -> None:
    tasks, _ = made(shelf, "sums", "--config", '{"number": 4}', "--answer", "answer")
    assert [task.prompt for task in tasks] == [f"What is {n} + {n}?" for n in range(4)]
    [action] = KIND.oracle(tasks[2])
    assert action.text == "4"
    environment = VerifiersEnvironment(tmp_path / "at", 10)
    environment.reset(tasks[2])
    assert environment.step(action)[1] is True
    outcome = environment.score()
    assert outcome.reward == pytest.approx(1.1) and outcome.details["metrics"] == {"answers": 1.0}
    assert environment.score() == outcome
    with pytest.raises(InfrastructureFailure, match="no episode under way"):
        environment.step(action)
    process = environment._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    others = [process.ask("score", messages=answered(said))["reward"] for said in ("5", "four, that is two and two")]
    assert others == pytest.approx([0.1, 0.0])
    environment.close()
    environment.close()
    assert not (tmp_path / "at").exists()


@needs_all
def test_tools_keep_their_state_and_the_rubric_sees_it(things: Task, tmp_path: Path) -> None:
    [tool] = instructions_of(KIND, things, "calls").tools
    assert tool["function"]["name"] == "shelf_take"
    environment = VerifiersEnvironment(tmp_path / "at", 10)
    environment.reset(things)
    seen, ended = environment.step(Action((Call("shelf_take", {"thing": "cup"}), Call("shelf_drop", {}))))
    assert seen.results[0] == "you have 1 things" and "no tool 'shelf_drop'" in seen.results[1] and not ended
    assert "no air" in environment.step(Action((Call("shelf_take", {"thing": "air"}),)))[0].text
    assert "Error" in environment.step(Action((Call("shelf_take", {"ting": 1}),)))[0].text
    assert environment.step(Action((Call("shelf_take", {"thing": "book"}),)))[0].text == "you have 2 things"
    assert environment.step(Action((), "Done."))[1] is True
    assert environment.score().reward == 1.0
    environment.close()


@needs_all
def test_a_call_without_end_is_the_agents_and_masks_nothing(
    things: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = VerifiersEnvironment(tmp_path / "at", 10)
    environment.reset(things)
    monkeypatch.setattr(child, "ANSWER_S", 2.0)
    taken = [Call("shelf_take", {"thing": thing}) for thing in ("cup", "time", "book")]
    seen, ended = environment.step(Action(tuple(taken)))
    assert seen.results == ("you have 1 things", BEYOND, BEYOND) and ended
    outcome = environment.score()
    assert outcome.reward == 0.0 and outcome.details["ended"] == "tool limit"
    environment.close()


@needs_all
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_rubric_that_fails_is_no_reward(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [task], said = made(shelf, "odd")
    assert "left out task 1" in said and "container" in said and "left out task 2" in said
    environment = VerifiersEnvironment(tmp_path / "at", 10)
    environment.reset(task)
    environment.step(Action((), "crash"))
    with pytest.raises(InfrastructureFailure, match="a rubric with a fault"):
        environment.score()
    process = environment._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    for answer, why in {"nan": "no number", "net": "Error", "host": "No such file"}.items():
        with pytest.raises(TasksetRefused, match=why):
            process.ask("score", messages=answered(answer))
    monkeypatch.setattr("turnwise.environments.verified.child.ANSWER_S", 3.0)
    with pytest.raises(InfrastructureFailure, match="limit of time"):
        process.ask("score", messages=answered("hang"))
    environment.close()


@needs_all
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_taskset_that_changed_or_is_not_there_is_not_played(shelf: Path, tmp_path: Path) -> None:
    tasks, _ = made(shelf, "sums")
    (tmp_path / "sums.py").write_text(SUMS.replace("What is", "How much is"))
    other = Task("t", "verifiers", tasks[1].prompt, {**tasks[1].data, "folder": str(tmp_path)})
    environment = VerifiersEnvironment(tmp_path / "at", 10)
    with pytest.raises(InfrastructureFailure, match="make the file of tasks anew"):
        environment.reset(other)
    environment.close()
    missing = CliRunner().invoke(app, ["tasks", "verifiers", "nothing_here", "--folder", str(shelf)])
    assert isinstance(missing.exception, ConfigError) and "nothing_here" in str(missing.exception)


@needs_all
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_model_plays_one_through_the_gateway(things: Task, gateway: Running, config: Config, tmp_path: Path) -> None:
    calls = [json.dumps({"name": "shelf_take", "arguments": {"thing": thing}}) for thing in ("cup", "book")]
    answers = iter([*(f"```json\n{call}\n```" for call in calls), "All is taken."])
    gateway.stub.reply = lambda prompt: next(answers)
    host = Host(gateway.journal.environments, lambda kind, at: kind_of(kind).make(at, config), tmp_path / "at", 1)

    def actor(play: Play) -> ModelActor:
        url, told = f"{gateway.url}/s/{play.session}/v1", instructions_of(KIND, play.task, "blocks")
        return ModelActor(url, gateway.token, MODEL_NAME, play.headers, told, KIND.read)

    ended = Rollouts(host, gateway.journal.environments, at(gateway), actor).play(Play("r", things, 0, 1))
    assert (ended.reward, ended.steps, ended.failure) == (1.0, 3, None)
    assert outcomes(gateway) == {"r.shelf_things-0.0": (1.0, None)}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "which task"),
        ({"taskset": "t", "index": 0, "hash": "h", "more": 1}, "no 'more'"),
        ({"taskset": "t", "index": 0, "hash": "h", "config": []}, "'config'"),
        ({"taskset": "t", "index": 0, "hash": "h", "tools": [{}]}, "'tools'"),
        ({"taskset": "t", "index": -1, "hash": "h"}, "which task"),
    ],
)
def test_a_task_that_is_wrong_is_told(data: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        taskset_task(data)


def test_without_verifiers_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="make verifiers"):
        verifiers_python()
