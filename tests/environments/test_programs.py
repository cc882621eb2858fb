"""Agents that are programs: what is known of each, and how one that is not there, fails or takes too long ends.

The real ones play in tests/clients; here a shell script stands in for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from tests.conftest import Running
from tests.environments.test_rollout import at, group, host, needs_box, outcomes, plays
from turnwise.access_tokens import rollout_token
from turnwise.agents.endpoint import Endpoint
from turnwise.cli.main import app
from turnwise.config.hosts import host_and_port
from turnwise.environments.programs.player import ProgramPlayer
from turnwise.environments.programs.table import HOME, PROGRAMS, AgentProgram
from turnwise.environments.rollout import Ended, Rollouts
from turnwise.errors import ConfigError
from turnwise.types import MODEL_NAME

ENDPOINT = Endpoint("http://127.0.0.1:8377/s/run.task.0", "tw-token", MODEL_NAME, 8192)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_told_its_session_and_its_token_in_its_own_home(name: str) -> None:
    program = PROGRAMS[name]
    [(way, text)] = program.files(ENDPOINT).items()
    assert not way.startswith(("/", "..")) and HOME.startswith("/tmp/")
    assert ENDPOINT.v1 in text and "tw-token" in text
    assert "the task" in program.command("the task")


def test_a_program_that_is_not_installed_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="make agents"):
        PROGRAMS["mini-swe-agent"].places()


@dataclass(frozen=True, slots=True)
class Script(AgentProgram):
    """A program that is a few lines of bash; its task is an argument that it does not read."""

    lines: str = ""

    def places(self) -> list[Path]:
        return []

    def files(self, endpoint: Endpoint) -> Mapping[str, str]:
        body = json.dumps({"model": endpoint.model, "messages": [{"role": "user", "content": "go"}]})
        at = urlsplit(endpoint.v1)
        head = f"POST {at.path}/chat/completions HTTP/1.1\r\nHost: {at.hostname}\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {endpoint.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{at.port}\ncat {HOME}/request >&3\nhead -1 <&3 | grep -q 200 || exit 9\n"
        return {"request": head + body, "ask": ask, "work": self.lines}


def played(gateway: Running, folder: Path, lines: str, limit_s: float = 60.0, host_name: str = "127.0.0.1") -> Ended:
    program = Script("mini-swe-agent", (), ("bash", f"{HOME}/work"), lines=lines)
    url = f"{gateway.url}/s/r.upper.0".replace("127.0.0.1", host_name)
    player = ProgramPlayer(program, "the task", url, gateway.token, MODEL_NAME, None, folder / "agents", limit_s)
    leases = gateway.journal.environments
    ended = Rollouts(host(gateway.journal, folder / "at"), leases, at(gateway), lambda play: player).play(plays(1)[0])
    assert list((folder / "agents").iterdir()) == [] and list((folder / "at").iterdir()) == []
    return ended


@needs_box
def test_what_a_program_did_is_scored_and_its_turns_are_steps(gateway: Running, tmp_path: Path) -> None:
    ended = played(gateway, tmp_path, "bash $HOME/ask && tr a-z A-Z < in.txt > out.txt && test ! -e work")
    assert (ended.reward, ended.failure, ended.steps) == (1.0, None, 1)
    assert outcomes(gateway) == {"r.upper.0": (1.0, None)}


@needs_box
def test_a_program_that_fails_has_no_reward_and_does_not_hold_up_its_group(gateway: Running, tmp_path: Path) -> None:
    ended = played(gateway, tmp_path, "echo no model here; exit 3")
    assert ended.reward is None and ended.failure == "mini-swe-agent ended with status 3: no model here"
    assert group(gateway, "r.upper")[0] == "dropped"


@needs_box
def test_a_program_that_ends_badly_after_an_answer_is_scored(gateway: Running, tmp_path: Path) -> None:
    """A policy that kills its own harness does not escape its reward."""
    ended = played(gateway, tmp_path, "bash $HOME/ask; kill -9 $$")
    assert (ended.reward, ended.failure, ended.steps) == (0.0, None, 1)
    assert outcomes(gateway) == {"r.upper.0": (0.0, None)}


@needs_box
def test_a_program_is_told_the_address_at_which_the_gateway_is_inside(gateway: Running, tmp_path: Path) -> None:
    ended = played(
        gateway, tmp_path, "bash $HOME/ask && grep -q 'Host: 127.0.0.1' $HOME/request", host_name="localhost"
    )
    assert (ended.failure, ended.steps) == (None, 1)


def test_an_address_of_the_newer_kind_is_reached_as_well() -> None:
    of = (PROGRAMS["mini-swe-agent"], "t", "http://[::1]:8377/s/x", "tw-token", MODEL_NAME, None, Path("x"))
    assert ProgramPlayer(*of).inside() == "http://127.0.0.1:8377/s/x"
    assert ProgramPlayer(*of).behind() == "[::1]:8377"
    assert host_and_port(ProgramPlayer(*of).behind()) == ("::1", 8377)


@needs_box
def test_a_program_that_takes_too_long_is_cut_off(gateway: Running, tmp_path: Path) -> None:
    ended = played(gateway, tmp_path, "sleep 60", limit_s=1.0)
    assert (ended.reward, ended.cut_off) == (0.0, "the limit of time")
    assert outcomes(gateway)["r.upper.0"] == (None, "cut off: the limit of time")


@needs_box
def test_a_program_reaches_the_gateway_and_nothing_else_of_this_machine(gateway: Running, tmp_path: Path) -> None:
    port = int(gateway.url.rsplit(":", 1)[1])
    other = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port + 1}' 2>/dev/null && exit 9"
    home = f"ls {gateway.config.home} 2>/dev/null && exit 8"
    ended = played(gateway, tmp_path, f"{other}; {home}; bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' || exit 7")
    assert ended.failure is None, ended.failure


@needs_box
def test_no_program_plays_at_a_server_that_asks_for_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentProgram, "places", lambda self: [])
    task = {"id": "t", "prompt": "p", "expect": {"a": "b"}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    asked = ["rollout", str(tmp_path / "tasks.jsonl"), "--agent", "mini-swe-agent", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, [*asked, "--set", "server.auth=false"])
    assert isinstance(done.exception, ConfigError) and "set server.auth = true" in str(done.exception)


@needs_box
def test_a_program_opens_its_own_session_and_no_other(gateway: Running, tmp_path: Path) -> None:
    """With the token that it has, from where it is."""
    person = gateway.person["Authorization"].removeprefix("Bearer ")
    other = "sed 's,/s/r.upper.0/,/s/r.upper.1/,' $HOME/request > $HOME/other"
    tell = 'exec 3<>/dev/tcp/127.0.0.1/PORT; cat $HOME/other >&3; head -1 <&3 | cut -d" " -f2 > out.txt'
    tell = tell.replace("PORT", gateway.url.rsplit(":", 1)[1])
    lines = f"bash $HOME/ask && {other}; {tell}; test $(cat out.txt) = 403 || exit 9"
    program = Script("mini-swe-agent", (), ("bash", f"{HOME}/work"), lines=lines)
    own = rollout_token(person, "r.upper.0")
    url = f"{gateway.url}/s/r.upper.0"
    player = ProgramPlayer(program, "the task", url, own, MODEL_NAME, None, tmp_path / "agents", 60.0)
    leases = gateway.journal.environments
    ended = Rollouts(host(gateway.journal, tmp_path / "at"), leases, at(gateway), lambda play: player).play(plays(1)[0])
    assert (ended.steps, ended.failure) == (1, None)
    reasons = [json.loads(row.details) for row in details(gateway)]
    assert reasons and "status" not in reasons[0], "it was refused, as it says itself"


def details(gateway: Running) -> list[Any]:
    with gateway.journal.store.reading() as c:
        return list(c.exec_driver_sql("SELECT details FROM environment_leases").all())
