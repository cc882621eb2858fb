"""Docker and Podman, played by a stand-in that runs the shell with no container around it: what is asked of them, and
that a shell lasts through their two lines. It shows nothing of how well a container holds."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.config.environments import EnvironmentsConfig
from turnwise.environments.base import InfrastructureFailure, Task
from turnwise.environments.kinds import kind_of
from turnwise.environments.terminal.kind import KIND
from turnwise.errors import SandboxError
from turnwise.sandbox import choice
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.containers import clean_containers
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.leftovers import named
from turnwise.sandbox.limits import Allowed, BoxLimits

LIMITS = BoxLimits(seconds=10)
STAND_IN = """#!{python}
import os, signal, subprocess, sys
words, place = sys.argv[1:], {place!r}
open(os.path.join(place, "asked"), "a").write(" ".join(words) + "\\n")
if words[0] == "run":
    name = words[words.index("--name") + 1]
    folder = words[words.index("--volume") + 1].split(":")[0]
    open(os.path.join(place, name), "w").write(str(os.getpid()))
    os.chdir(folder)
    os.execv("/bin/sh", words[words.index("/bin/sh"):])
elif words[0] == "rm":
    os.kill(int(open(os.path.join(place, words[-1])).read()), signal.SIGKILL)
elif words[0] == "ps":
    print(open(os.path.join(place, "names")).read())
elif words[0] == "image" and words[-1] != "here":
    sys.exit("no such image")
"""


@pytest.fixture(params=["docker", "podman"])
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / request.param
    stand_in.write_text(STAND_IN.format(python=sys.executable, place=str(tmp_path / "bin")))
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    choice.chosen.cache_clear()
    yield request.param
    choice.chosen.cache_clear()


def sandboxes(program: str, image: str = "here") -> Sandboxes:
    return Sandboxes(EnvironmentsConfig.model_validate({"sandbox": program, "image": image}))


def test_a_shell_lasts_in_a_container(program: str, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    shell = sandboxes(program).shell(GuestFolder(tmp_path / "box"), LIMITS)
    assert shell.run("mkdir a; cd a; x=5; echo to >&2").output == b"to\n"
    assert shell.run("pwd; echo $x; (exit 3)").status == 3
    ran = shell.run("sleep 60", seconds=0.5)
    assert (ran.stopped_by, ran.restarted) == ("time", True)
    assert shell.run("echo $x; ls").output == b"\na\n"
    shell.close()
    asked = (tmp_path / "bin" / "asked").read_text()
    for word in ("--network none", "--cap-drop ALL", "--memory 512m", "--pids-limit 64", "--read-only", "--pull never"):
        assert word in asked
    assert f"{tmp_path / 'box'}:/box" in asked and ("keep-id" in asked) == (program == "podman")


def test_a_command_alone_runs_in_the_sandbox_of_the_settings(program: str, tmp_path: Path) -> None:
    """As those of a verifier do, whatever they see of the machine."""
    (tmp_path / "box").mkdir()
    (tmp_path / "given").mkdir()
    allowed = Allowed(sees={"/given": tmp_path / "given"})
    ran = sandboxes(program).run(GuestFolder(tmp_path / "box"), "echo hello > a; exit 3", LIMITS, allowed)
    assert (ran.status, ran.stopped_by, (tmp_path / "box" / "a").read_text()) == (3, None, "hello\n")
    assert f"--volume {tmp_path / 'given'}:/given:ro" in (tmp_path / "bin" / "asked").read_text()
    assert (
        sandboxes(program).run(GuestFolder(tmp_path / "box"), "sleep 60", BoxLimits(seconds=0.5)).stopped_by == "time"
    )


def test_the_verifiers_of_git_and_of_a_harbor_folder_run_there(program: str, tmp_path: Path) -> None:
    settings = Config.model_validate({"environments": {"sandbox": program, "image": "here"}})
    KIND.check_machine(settings)
    tests = {"test.sh": "test -e /box/done || test -e done; echo $((1 - $?)) > LOGS/verifier/reward.txt"}
    harbor = {"files": {}, "tests": tests, "setup": ["touch begun"], "seconds": 20}
    (tmp_path / "bin" / "asked").unlink(missing_ok=True)
    made = KIND.make(tmp_path / "episode", settings)
    made.reset(Task("h", "terminal", "p", {"harbor": harbor}))
    assert (tmp_path / "episode" / "begun").exists()
    with contextlib.suppress(InfrastructureFailure):  # no container stands around the stand-in, nor its paths
        made.score()
    asked = (tmp_path / "bin" / "asked").read_text().splitlines()
    assert len([line for line in asked if line.startswith("run ")]) >= 3, "the shell, a command before, the verifier"
    assert any(":/verifier-" in line for line in asked)
    made.close()


@pytest.mark.parametrize("name", ["desktop", "swe", "tools", "verifiers"])
def test_what_runs_in_bubblewrap_alone_is_refused_by_name(program: str, name: str) -> None:
    settings = Config.model_validate({"environments": {"sandbox": program, "image": "here"}})
    with pytest.raises(SandboxError, match=f"the environment '{name}' runs in bubblewrap alone.*'{program}'"):
        kind_of(name).check_machine(settings)


def test_a_program_is_refused_where_no_way_to_the_gateway_can_be_opened(program: str, tmp_path: Path) -> None:
    task = {"id": "t", "prompt": "p", "expect": {"a": "b"}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    for name in ("mini-swe-agent",):
        (tmp_path / "cache" / "clients" / name).mkdir(parents=True)
        (tmp_path / "cache" / "clients" / name / "complete").touch()
    asked = ["rollout", str(tmp_path / "tasks.jsonl"), "--agent", "mini-swe-agent", "--home", str(tmp_path / "home")]
    asked += ["--set", f"environments.sandbox={program}", "--set", "environments.image=here"]
    done = CliRunner(env={"TURNWISE_CACHE": str(tmp_path / "cache")}).invoke(app, asked)
    assert "the agent mini-swe-agent runs in bubblewrap alone" in str(done.exception)


def test_what_is_missing_is_said(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxError, match=f"has no image none.*{program} pull none"):
        sandboxes(program, "none").check()
    with pytest.raises(SandboxError, match="opens no way out"):
        sandboxes(program).shell(GuestFolder(tmp_path), LIMITS, Allowed(hosts=("example.org",)))
    monkeypatch.setenv("PATH", str(tmp_path))
    choice.chosen.cache_clear()
    with pytest.raises(SandboxError, match=f"{program} is not here"):
        sandboxes(program).check()


def test_without_bubblewrap_a_container_is_used(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise SandboxError("no bubblewrap")

    monkeypatch.setattr(choice, "check_machine", fails)
    assert sandboxes("auto").check() == program
    choice.chosen.cache_clear()
    with pytest.raises(SandboxError, match="no bubblewrap"):
        sandboxes("auto", "none").check()
    with pytest.raises(SandboxError, match="no bubblewrap"):
        sandboxes("bubblewrap").check()


def test_containers_that_were_left_are_taken_away(program: str, tmp_path: Path) -> None:
    left = f"turnwise-00000000n{Path('/proc/self/ns/pid').stat().st_ino}-1-2-3"
    (tmp_path / "bin" / "names").write_text(f"{named()}\nother\n{left}")
    (tmp_path / "bin" / left).write_text("999999999")
    clean_containers(program)
    removed = [line for line in (tmp_path / "bin" / "asked").read_text().splitlines() if line.startswith("rm")]
    assert removed == [f"rm --force {left}"]
