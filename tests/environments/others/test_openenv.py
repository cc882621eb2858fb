"""Environments of a real OpenEnv server, in an environment of its own (`make openenv`), over its WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.conftest import Running
from tests.environments.test_rollout import at, outcomes
from tests.support.child_server import ChildServer, ready
from turnwise.cli.main import app
from turnwise.config import Config, cache_dir
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, Call, InfrastructureFailure, Task
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.openenv import wire
from turnwise.environments.openenv.environment import OpenEnvEnvironment
from turnwise.environments.openenv.task import as_tools, openenv_task
from turnwise.environments.openenv.wire import ActionRefused, OpenEnvSession, Shown, action_schema
from turnwise.environments.rollout import Play, Rollouts
from turnwise.environments.tasks import read_tasks
from turnwise.environments.transcript import instructions_of
from turnwise.errors import DataError
from turnwise.types import MODEL_NAME

OPENENV = cache_dir() / "openenv-0.10.0"
pytestmark = pytest.mark.skipif(
    not (OPENENV / ".installed").exists(), reason="OpenEnv's server is not installed (make openenv)"
)
KIND = kind_of("openenv")
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


class OpenEnvServer(ChildServer):
    def __init__(self, kind: str, log: Path, places: int = 4) -> None:
        super().__init__("/health", 120, log, {"OMP_NUM_THREADS": "1"})
        self._words = [kind, str(self.port), str(places)]

    def command(self) -> Sequence[str]:
        program = Path(__file__).with_name("openenv_server.py")
        return [str(OPENENV / "bin" / "python"), str(program), *self._words]


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenEnvServer]:
    with ready(OpenEnvServer("guess", tmp_path_factory.mktemp("openenv") / "log", places=2)) as server:
        yield server


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenEnvServer]:
    with ready(OpenEnvServer("tools", tmp_path_factory.mktemp("openenv") / "log")) as server:
        yield server


def task(server: OpenEnvServer, seed: int, **more: Any) -> Task:
    data = {"server": server.url, "reset": {"seed": seed}, "action": SCHEMA, **more}
    return Task(f"guess-{seed}", "openenv", "Find the number.", data)


def guess(number: object) -> Action:
    return Action((Call("act", {"number": number}),))


def test_an_episode_is_played_and_its_rewards_are_the_outcome(guessing: OpenEnvServer) -> None:
    environment = OpenEnvEnvironment(30)
    assert environment.reset(task(guessing, 4)).text == "Find the number.\n\nGuess a number from 0 to 9."
    assert environment.step(guess(2))[0].results == ("Higher.",)
    assert environment.step(guess(2))[1] is False
    assert environment.step(guess(9))[0].results == ("Lower.",)
    assert environment.step(guess(4))[1] is True
    outcome = environment.score()
    assert outcome.reward == pytest.approx(0.7) and outcome.details["ended"] == "environment"
    assert environment.score() == outcome and outcome.cut_off is None
    environment.reset(task(guessing, 7, reward="last"))
    environment.step(guess(1))
    environment.step(guess(7))
    assert environment.score().reward == 1.0, "a new episode begins anew, and its last reward counts"
    environment.close()
    environment.close()


def test_what_is_no_action_is_told_counted_and_ends_after_three(guessing: OpenEnvServer) -> None:
    environment = OpenEnvEnvironment(30)
    environment.reset(task(guessing, 4))
    assert "number" in environment.step(guess("four"))[0].text
    environment.reset(task(guessing, 4))
    said, ended = environment.step(Action((), "four"))
    assert "No action was found" in said.text and not ended
    assert environment.step(guess(99))[0].text == "there is no such number here"
    assert environment.step(guess(1))[0].text == "Higher.", "the episode goes on"
    assert [environment.step(guess("x"))[1] for _ in range(3)] == [False, False, True]
    assert environment.score().details == {"rewards": [-0.1], "steps": 6, "unreadable": 5, "ended": "format"}
    environment.close()


def test_a_limit_of_steps_cuts_it_off(guessing: OpenEnvServer) -> None:
    environment = OpenEnvEnvironment(2)
    environment.reset(task(guessing, 4))
    assert [environment.step(guess(1))[1] for _ in range(2)] == [False, True]
    assert environment.score().cut_off == "the limit of steps"
    environment.close()


def test_a_full_server_is_waited_for_and_named(guessing: OpenEnvServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.environments.openenv.wire.PLACES_S", 0.0)
    held = [OpenEnvSession(guessing.url) for _ in range(2)]
    for each in held:
        each.reset({})
    with pytest.raises(InfrastructureFailure, match="max_concurrent_envs"):
        OpenEnvSession(guessing.url).reset({})
    held[0].close()
    monkeypatch.setattr("turnwise.environments.openenv.wire.PLACES_S", 20.0)
    late = OpenEnvSession(guessing.url)
    assert late.reset({"seed": 1}).observation["said"].startswith("Guess")
    for each in (held[1], late):
        each.close()


def test_a_server_that_goes_away_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    with ready(OpenEnvServer("guess", tmp_path / "log")) as server:
        environment = OpenEnvEnvironment(30)
        environment.reset(task(server, 4))
        server.kill()
        with pytest.raises(InfrastructureFailure, match="in the middle of an episode"):
            environment.step(guess(1))
        with pytest.raises(InfrastructureFailure, match="no OpenEnv server answers"):
            environment.reset(task(server, 4))


def test_tools_of_a_server_are_the_models(counting: OpenEnvServer, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    asked = ["tasks", "openenv", counting.url, "--prompt", "Count.", "--seeds", "0", "--last", "--out", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    [made] = read_tasks(file)
    [tool] = instructions_of(KIND, made, "calls").tools
    assert tool["function"]["name"] == "add" and "amount" in tool["function"]["parameters"]["properties"]
    environment = OpenEnvEnvironment(30)
    environment.reset(made)
    assert "the count is 2" in environment.step(Action((Call("add", {"amount": 2}),)))[0].text
    assert environment.step(Action((Call("subtract", {}),)))[0].text.startswith("No action was found")
    assert environment.step(Action((Call("add", {"amount": 3}),)))[1] is True
    assert environment.score().reward == 1.0
    environment.close()


def test_a_model_plays_it_through_the_gateway(
    guessing: OpenEnvServer, gateway: Running, config: Config, tmp_path: Path
) -> None:
    answers = iter(["no call here", *(_block(number) for number in (2, 6))])
    gateway.stub.reply = lambda prompt: next(answers)
    host = Host(gateway.journal.environments, lambda kind, at: kind_of(kind).make(at, config), tmp_path / "at", 1)

    def actor(play: Play) -> ModelActor:
        url, told = f"{gateway.url}/s/{play.session}/v1", instructions_of(KIND, play.task, "blocks")
        return ModelActor(url, gateway.token, MODEL_NAME, play.headers, told, KIND.read)

    rollouts = Rollouts(host, gateway.journal.environments, at(gateway), actor)
    ended = rollouts.play(Play("r", task(guessing, 6, reward="last"), 0, 1))
    assert (ended.reward, ended.steps, ended.failure) == (1.0, 3, None)
    assert outcomes(gateway) == {"r.guess-6.0": (1.0, None)}


def _block(number: int) -> str:
    return f"```json\n{json.dumps({'name': 'act', 'arguments': {'number': number}})}\n```"


def test_the_command_writes_tasks_that_the_oracle_solves(guessing: OpenEnvServer, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    asked = ["tasks", "openenv", guessing.url, "--prompt", "Guess.", "--seeds", "3-4", "--out", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and "2 tasks" in done.output, f"{done.output} {done.exception}"
    made = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(each | {"oracle": [{"number": each["reset"]["seed"]}]}) + "\n" for each in made))
    played = [CliRunner().invoke(app, ["rollout", str(file), "--agent", who, "--group", "1", "--home", str(tmp_path)])
              for who in ("oracle", "nothing")]  # fmt: skip
    assert [each.exit_code for each in played] == [0, 0], played[0].output
    assert "mean reward 1.000 of 2" in played[0].output and "mean reward 0.000 of 2" in played[1].output


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"server": "file:///etc"}, "'server'"),
        ({"server": "http://[abc", "action": SCHEMA}, "'server'"),
        ({"server": "http://127.0.0.1:abc", "action": SCHEMA}, "'server'"),
        ({"server": "http://h", "action": SCHEMA, "more": 1}, "no 'more'"),
        ({"server": "http://h", "action": {"type": "array"}}, "'action'"),
        ({"server": "http://h", "action": SCHEMA, "reward": "mean"}, "'reward'"),
        ({"server": "http://h", "tools": [{"name": "x"}]}, "'tools'"),
        ({"server": "http://h", "action": SCHEMA, "oracle": ["x"]}, "oracle"),
    ],
)
def test_a_task_that_is_wrong_is_told(data: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        openenv_task(data)


@pytest.mark.parametrize("server", ["http://127.0.0.1:abc", "http://[abc", "nowhere"])
def test_an_address_that_is_none_is_told(server: str) -> None:
    with pytest.raises(DataError, match="no OpenEnv server"):
        action_schema(server)


def test_a_description_without_end_is_not_read(guessing: OpenEnvServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert action_schema(guessing.url)[0]["type"] == "object"
    monkeypatch.setattr(wire, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="too long"):
        action_schema(guessing.url)


def test_what_is_no_openenv_server_is_said(gateway: Running) -> None:
    assert httpx.get(f"{gateway.url}/healthz", timeout=20).status_code == 200
    done = CliRunner().invoke(app, ["tasks", "openenv", gateway.url, "--prompt", "x"])
    assert isinstance(done.exception, DataError) and "no OpenEnv server" in str(done.exception)
    with pytest.raises(InfrastructureFailure, match="no OpenEnv server answers"):
        OpenEnvEnvironment(3).reset(Task("t", "openenv", "p", {"server": gateway.url, "action": SCHEMA}))


def test_tools_that_are_no_objects_are_said() -> None:
    for listed in ["add"], [None], [{"name": "add", "inputSchema": 3}]:
        with pytest.raises(DataError, match="the server lists a tool"):
            as_tools(listed)


def test_what_a_server_says_of_a_refused_action_can_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is a stand-in: no server that we start says a half of a character."""

    class Refusing(OpenEnvSession):
        def reset(self, asked: object) -> Shown:
            return Shown({"said": "go"}, None, False)

        def step(self, action: object) -> Shown:
            raise ActionRefused("no such \ud800")

    monkeypatch.setattr("turnwise.environments.openenv.environment.OpenEnvSession", Refusing)
    data = {"server": "http://127.0.0.1:1", "action": {"type": "object"}}
    environment = OpenEnvEnvironment(3)
    environment.reset(Task("t", "openenv", "Play.", data))
    observation, done = environment.step(Action((Call("act", {}),)))
    assert observation.text.encode() == b"no such ?" and not done
