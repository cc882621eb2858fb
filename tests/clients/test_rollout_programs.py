"""Real agents play terminal tasks in the sandbox as rollouts, are scored from outside, and what they did is trained."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.clients.conftest import need
from tests.conftest import GatewayThread
from tests.environments.test_terminal import HOLDS
from tests.support.models import make_tiny_model
from tests.support.scripted_agent import Chain
from tests.support.servers import running
from tests.training.homes import Bench, settings
from turnwise.access_tokens import rollout_token
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config
from turnwise.environments.base import Task
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.programs.player import ProgramPlayer
from turnwise.environments.programs.table import PROGRAMS
from turnwise.environments.rollout import Ended, GatewayAt, Play, Rollouts
from turnwise.environments.swe.building import build
from turnwise.environments.swe.packages import package_named
from turnwise.environments.swe.task import swe_task
from turnwise.errors import DataError, SandboxError
from turnwise.journal import Journal
from turnwise.types import MODEL_NAME

pytestmark = [pytest.mark.clients, pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")]

TASKS = 10
WRONG = (3, 7)
"""Tasks on which the scripted model does something else than it is asked."""
DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
TOOLS = {"mini-swe-agent": "bash", "openclaw": "exec", "opencode": "bash"}
BESIDE: dict[str, dict[str, str]] = {"opencode": {"description": "Does the task"}}
"""What else a tool asks for."""


def task(number: int) -> Task:
    data = {"files": {"in.txt": f"hello {number}\n"}, "expect": {"out.txt": f"HELLO {number}\n"}}
    return Task(f"upper{number}", "terminal", f"[step {number}] Write in.txt in capitals to out.txt.", data)


def scripted(agent: str, prompt: str) -> str:
    """A model of good skill: one right command and its end, but for some tasks."""
    number = int((re.findall(r"\[step (\d+)\]", prompt) or ["0"])[0])
    work = "cp in.txt out.txt" if number in WRONG else "tr a-z A-Z < in.txt > out.txt"
    return commands(agent, [f"{work}; echo result-0"])(prompt)


def commands(agent: str, lines: list[str]) -> Chain:
    """Gives these commands, each of which prints its number, and ends."""
    last = [DONE] if agent == "mini-swe-agent" else []
    calls = [(TOOLS[agent], {"command": line} | BESIDE.get(agent, {})) for line in [*lines, *last]]
    return Chain(calls, "All is done.", re.compile(r"result-\d"))


@dataclass
class Playground:
    """A gateway over a scripted engine, whose home's model is a tiny one that can be trained."""

    agent: str
    url: str
    config: Config
    journal: Journal
    stub: StubEngine

    def play(self, folder: Path, tasks: Sequence[Task]) -> list[Ended]:
        """All tasks in groups of one task each, two programs at a time, each with its rollout's own token."""
        tokens = [(self.config.home / name).read_text().strip() for name in ("token", "token.person")]
        gateway = GatewayAt(self.url, tokens[0], tokens[1])

        def player(play: Play) -> ProgramPlayer:
            own = rollout_token(tokens[1], play.session)
            of = (PROGRAMS[self.agent], play.task.prompt, f"{self.url}/s/{play.session}", own, MODEL_NAME)
            return ProgramPlayer(*of, context=16_000, folder=folder / "agents")

        host = Host(self.journal.environments, lambda kind, at: kind_of(kind).make(at, self.config), folder / "at", 2)
        plays = [Play("r", each, 0, 1) for each in tasks]
        return list(Rollouts(host, self.journal.environments, gateway, player).run(plays, 2))


@pytest.fixture
def playground(
    request: pytest.FixtureRequest, tmp_path: Path, model_dir: Path, tokenizer: Tokenizer
) -> Iterator[Playground]:
    agent = request.param
    need(agent)
    model = make_tiny_model(tmp_path / "model", model_dir)
    told = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(told | {"max_position_embeddings": 16_384}))
    of = {
        "judge.enabled": False,
        "streams.terminal.groups": TASKS,
        "streams.swe.groups": 2,
        "gate.enabled": False,
        "server.port": 0,
    }
    config = settings(tmp_path / "home", model, **of)
    stub = StubEngine(tokenizer, lambda prompt: scripted(agent, prompt), max_model_len=16_000)
    with running(stub.app()) as engine:
        thread = GatewayThread(config, engine)
        thread.start(config)
        journal = Journal.open(config)
        yield Playground(agent, thread.url, config, journal, stub)
        journal.close()
        thread.stop()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("playground", ["mini-swe-agent", "openclaw", "opencode"], indirect=True)
def test_an_agent_plays_ten_tasks_and_what_it_did_is_trained_on(playground: Playground, tmp_path: Path) -> None:
    ended = playground.play(tmp_path, [task(number) for number in range(TASKS)])
    wanted = {f"r.upper{number}.0": float(number not in WRONG) for number in range(TASKS)}
    assert {each.play.session: each.reward for each in ended} == wanted, [each.failure for each in ended]
    assert all(each.steps == 2 and each.note is None and each.cut_off is None for each in ended)
    assert list((tmp_path / "at").iterdir()) == list((tmp_path / "agents").iterdir()) == []
    trainer = Bench(playground.config)
    assert trainer.claim_and_work()
    learned = playground.journal.versions.learned_from(1)["terminal"]["groups"]
    found = {name: each for group in learned.values() for name, each in group["trajectories"].items()}
    assert {name: each["outcome"] for name, each in found.items()} == wanted
    assert {each["steps"] for each in found.values()} == {2}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("playground", ["mini-swe-agent"], indirect=True)
def test_a_fault_in_a_real_package_is_mended_by_mini_swe_agent(playground: Playground, tmp_path: Path) -> None:
    """Of two faults a scripted policy mends one, and makes the visible tests pass on the other by deleting them."""
    try:
        made = list(build([package_named("inflection")], [0, 1], 1, tmp_path / "built", lambda _: None))
    except (DataError, SandboxError) as e:
        pytest.skip(f"{e} (make swe)")
    mended, spoiled = (each for each in made if isinstance(each, Task))
    looks = ["ls; git status 2>/dev/null; echo result-0", "sh .tools/tests -q 2>&1 | tail -3; echo result-1"]
    mends = [f"{line}; echo result-2" for line in swe_task(mended.data).mending()]
    spoils = ["rm -rf test* tests; echo result-2"]

    def policy(prompt: str) -> str:
        return commands("mini-swe-agent", [*looks, *(spoils if "[step 1]" in prompt else mends)])(prompt)

    playground.stub.reply = policy
    tasks = [dataclasses.replace(each, prompt=f"[step {n}] {each.prompt}") for n, each in enumerate((mended, spoiled))]
    ended = {each.play.task.id: each for each in playground.play(tmp_path, tasks)}
    assert [each.failure for each in ended.values()] == [None, None]
    assert ended[mended.id].reward == 1.0 and ended[mended.id].steps == len(looks) + len(mends) + 1
    assert ended[spoiled.id].reward == 0.0
    trainer = Bench(playground.config)
    assert trainer.claim_and_work()
    assert len(playground.journal.versions.learned_from(1)["swe"]["groups"]) == 2
