"""The desktop on a real display: real programs, a real mouse, and nothing of them left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.servers import wait_until
from turnwise.config import Config
from turnwise.environments.base import Action, Call, Environment, InfrastructureFailure, Observation, Preparable, Task
from turnwise.environments.desktop.desktop_task import desktop_task
from turnwise.environments.desktop.environment import FORMAT, DesktopEnvironment
from turnwise.environments.desktop.families.table import FAMILIES
from turnwise.environments.desktop.kind import KIND
from turnwise.errors import SandboxError

try:
    KIND.check_machine(Config())
    MISSING = ""
except SandboxError as e:
    MISSING = str(e)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is here")]

NOTE = {"files": {"note.txt": "hello\n"}, "expect": {"note.txt": "hello you\n"}, "opens": [["editor", "note.txt"]]}
TASK = Task("note", "desktop", "Add you to the line.", NOTE)
SHELL = Task("shell", "desktop", "Use the terminal.", {"made": ["a"], "opens": [["terminal", None]]})


def call(name: str, **arguments: object) -> Action:
    return Action((Call(name, arguments),))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "episode"


@pytest.fixture
def desktop(place: Path) -> Iterator[DesktopEnvironment]:
    made = DesktopEnvironment(place)
    yield made
    made.close()


def processes() -> list[psutil.Process]:
    """What runs in sandboxes of this process."""
    found: list[psutil.Process] = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "bwrap" in (each.name(), *each.cmdline()[:1]):
                found += [each, *each.children(recursive=True)]
    return found


def named(program: str) -> psutil.Process:
    return next(each for each in processes() if each.name() == program)


def said(seen: tuple[Observation, bool]) -> str:
    return seen[0].text


def test_the_contract_of_an_environment(place: Path) -> None:
    environment: Environment = DesktopEnvironment(place, pictures=True)
    for call_early in (lambda: environment.step(call("wait", seconds=0)), environment.score):
        with pytest.raises(InfrastructureFailure, match="reset"):
            call_early()
    environment.close()
    first = environment.reset(TASK)
    assert first.text.startswith(TASK.prompt) and 'note.txt - Mousepad" (in front)' in first.text
    assert "hello" in first.text and first.images[0].startswith(b"\x89PNG")
    assert processes()
    environment.step(call("key", keys="End"))
    typed, done = environment.step(call("type", text=" you"))
    assert '"hello you\\n"' in typed.text and typed.results == (typed.text,) and not done
    assert said(environment.step(call("key", keys="Shift_L"))).startswith("'Shift_L' is no combination")
    environment.step(call("key", keys="ctrl+s"))
    assert said(environment.step(call("wait", seconds=0))) == "Nothing changed."
    assert environment.step(call("submit"))[1]
    outcome = environment.score()
    assert outcome.reward == 1.0 and environment.score() == outcome
    with pytest.raises(InfrastructureFailure, match="reset"):
        environment.step(call("wait", seconds=0))
    assert "hello you" not in environment.reset(TASK).text, "nothing is left of the episode before"
    assert environment.score().reward == 0.0, "nothing was done"
    environment.close()
    environment.close()
    assert not place.exists() and processes() == []


def test_those_inside_reach_nothing_else(desktop: DesktopEnvironment, place: Path) -> None:
    desktop.reset(SHELL)
    tried = f"ls {place} /home /root; wc -l < /proc/net/dev; ps -A; ls -d /tmp/.X11-unix/*"
    desktop.step(call("type", text=f"clear; ({tried}) > /box/seen 2>&1\n"))
    desktop.step(call("type", text="touch /usr/x /etc/session.sh /run/x; ln -s /etc/passwd a; echo done >> seen\n"))
    desktop.step(call("wait", seconds=2))
    seen = (place / "files" / "seen").read_text()
    assert "screen" not in seen and "done" in seen, "the folder beside"
    assert "openbox" in seen and "Xvfb" not in seen and "python" not in seen, "processes of the session alone"
    assert "\n3\n" in seen, "loopback alone, and two lines of a heading"
    assert "/tmp/.X11-unix/X0" in seen
    assert desktop.score().reward == 0.0, "a link is no folder"


def test_an_agent_that_ends_its_session_is_told_and_scored(desktop: DesktopEnvironment) -> None:
    desktop.reset(SHELL)
    seen, done = desktop.step(call("type", text="mkdir a; kill -9 -1\n"))
    while not done:
        seen, done = desktop.step(call("wait", seconds=1))
    assert "The desktop is gone" in seen.text
    outcome = desktop.score()
    assert (outcome.reward, outcome.details["ended"]) == (1.0, "session")


def test_a_program_that_crashes_is_told(desktop: DesktopEnvironment) -> None:
    desktop.reset(TASK)
    named("mousepad").send_signal(signal.SIGSEGV)
    assert "No window is open." in said(desktop.step(call("wait", seconds=1)))
    assert "Mousepad" in said(desktop.step(call("open", program="editor")))


def test_a_display_that_crashes_is_a_failure_of_the_machine(desktop: DesktopEnvironment, place: Path) -> None:
    desktop.reset(TASK)
    os.kill(named("Xvfb").pid, signal.SIGKILL)
    with pytest.raises(InfrastructureFailure):
        for _ in range(20):
            desktop.step(call("wait", seconds=0.2))
    desktop.close()
    assert processes() == [] and not place.exists()


@pytest.mark.long
def test_a_program_that_hangs_is_told_and_bounded(desktop: DesktopEnvironment, place: Path) -> None:
    desktop.reset(TASK)
    hung = named("mousepad")
    hung.suspend()
    assert "does not answer" in said(desktop.step(call("wait", seconds=0)))
    hung.resume()
    assert "hello" in said(desktop.step(call("wait", seconds=1)))


@pytest.mark.long
def test_more_memory_or_processes_than_there_may_be(desktop: DesktopEnvironment, place: Path) -> None:
    desktop.reset(SHELL)
    desktop.step(call("type", text="sh -c 'f() { f | f & }; f' 2> /dev/null\n"))
    assert len(processes()) < 200
    os_bound = "python3 -c 'x = bytearray(3 << 30)'; echo $? > code\n"
    desktop.reset(SHELL)
    desktop.step(call("type", text=os_bound))
    for _ in range(10):
        if desktop.step(call("wait", seconds=1))[1] or (place / "files" / "code").exists():
            break
    assert not (place / "files" / "code").exists() or (place / "files" / "code").read_text().strip() != "0"


def test_one_that_was_made_ahead_is_used_once_and_while_it_is_fit(desktop: DesktopEnvironment) -> None:
    assert isinstance(desktop, Preparable) and not desktop.is_fit()
    desktop.prepare()
    display = named("Xvfb").pid
    assert desktop.is_fit()
    desktop.reset(SHELL)
    assert named("Xvfb").pid == display
    desktop.reset(SHELL)
    again = named("Xvfb").pid
    assert again != display
    desktop.prepare()
    os.kill(named("Xvfb").pid, signal.SIGKILL)
    wait_until(lambda: not desktop.is_fit())
    assert "bash" in desktop.reset(SHELL).text


def test_what_is_no_call_is_told_and_three_end_the_episode(desktop: DesktopEnvironment) -> None:
    desktop.reset(TASK)
    assert said(desktop.step(Action((), "I would click."))) == FORMAT
    assert "no element 999" in said(desktop.step(call("click", element=999)))
    assert not desktop.step(call("wait", seconds=0))[1]
    ends = [desktop.step(action) for action in (Action(), call("shell"), call("click", x=-1, y=0))]
    assert [done for _, done in ends] == [False, False, True]
    assert desktop.score().details == {
        "reason": "note.txt is not as expected",
        "steps": 6,
        "unreadable": 4,
        "ended": "format",
    }


def played(folder: Path, task: Task, actions: tuple[Action, ...]) -> tuple[str, float, str]:
    """Play one task to its end; gives its id, reward, and what was seen where that matters."""
    environment, told = DesktopEnvironment(folder), []
    try:
        environment.reset(task)
        for action in actions:
            told.append(environment.step(action)[0].text)
        return task.id, environment.score().reward, "\n".join(told)[-3000:]
    finally:
        environment.close()


@pytest.mark.long
def test_two_desktops_at_once_know_nothing_of_each_other(tmp_path: Path) -> None:
    tasks = [FAMILIES[name].task(7) for name in ("write-note", "sort-file")]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda t: played(tmp_path / t.id, t, desktop_task(t.data).oracle), tasks))
    assert [(name, reward) for name, reward, _ in ended] == [("write-note-7", 1.0), ("sort-file-7", 1.0)], ended


@pytest.mark.long
def test_a_text_opens_in_the_editor_by_a_double_click(tmp_path: Path) -> None:
    """Also where the machine has no list of which programs open what (`update-desktop-database` was never run)."""
    task = FAMILIES["leave-open"].task(7)
    assert played(tmp_path / task.id, task, desktop_task(task.data).oracle)[1] == 1.0


@pytest.mark.widest
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", ["oracle", "spoiler"])
def test_every_family_is_solved_by_its_oracle_and_not_by_its_spoiler(tmp_path: Path, plan: str) -> None:
    tasks = [family.task(11) for family in FAMILIES.values()]
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda t: played(tmp_path / t.id, t, getattr(desktop_task(t.data), plan)), tasks))
    wrong = [each for each in ended if each[1] != (1.0 if plan == "oracle" else 0.0)]
    assert not wrong and len(ended) == len(FAMILIES)
