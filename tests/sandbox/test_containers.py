"""Docker and Podman, played by a stand-in that runs the shell with no container around it: what is asked of them, and
that a shell lasts through their two lines. It shows nothing of how well a container holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.config.environments import EnvironmentsConfig
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
