"""The terminal environment: the contract of every environment, hostile commands, and outputs that nobody could read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from turnwise.environments.base import Environment, InfrastructureFailure, Task
from turnwise.environments.terminal.checks import Checked
from turnwise.environments.terminal.environment import ANEW, FORMAT, MOST_SHOWN, TerminalEnvironment
from turnwise.environments.terminal.files_task import files_task
from turnwise.environments.terminal.kind import run
from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.limits import BoxLimits

try:
    check_machine()
    HOLDS = True
except SandboxError:
    HOLDS = False
pytestmark = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")

UPPER = {"files": {"in.txt": "hello\n"}, "expect": {"out.txt": "HELLO\n"}}
SOLVE = "tr a-z A-Z < in.txt > out.txt"
TASK = Task("upper", "terminal", "Write in.txt in capitals to out.txt.", UPPER)
LIMITS = BoxLimits(seconds=5, memory_mb=256, processes=32, disk_mb=32, file_mb=16)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "episode"


@pytest.fixture
def terminal(place: Path) -> Iterator[TerminalEnvironment]:
    made = TerminalEnvironment(place, limits=LIMITS)
    yield made
    made.close()


def test_the_contract_of_an_environment(terminal: TerminalEnvironment, place: Path) -> None:
    environment: Environment = terminal
    with pytest.raises(InfrastructureFailure, match="reset"):
        environment.step(run("true"))
    with pytest.raises(InfrastructureFailure, match="reset"):
        environment.score()
    environment.close()
    assert environment.reset(TASK).text == TASK.prompt
    observation, done = environment.step(run(SOLVE))
    assert (observation.text, done) == ("(exit status 0)", False)
    outcome = environment.score()
    assert outcome.reward == 1.0 and environment.score() == outcome, "scored again it says the same"
    with pytest.raises(InfrastructureFailure, match="reset"):
        environment.step(run("true"))
    assert environment.reset(TASK).text and not (place / "out.txt").exists(), "nothing is left of the episode before"
    assert environment.score().reward == 0.0, "nothing was done"
    environment.close()
    environment.close()
    assert not place.exists()


def test_three_actions_without_a_command_end_the_episode(terminal: TerminalEnvironment) -> None:
    terminal.reset(TASK)
    assert [terminal.step(run(said))[1] for said in ("", " ")] == [False, False]
    assert not terminal.step(run("true"))[1], "a command in between"
    ends = [terminal.step(run(action)) for action in ("", "a\0b", "\ud800")]
    assert [done for _, done in ends] == [False, False, True] and ends[0][0].text == FORMAT
    assert terminal.score().details["ended"] == "format" and terminal.score().details["unreadable"] == 5


def test_ten_steps_are_the_limit(terminal: TerminalEnvironment) -> None:
    terminal.reset(TASK)
    assert [terminal.step(run("true"))[1] for _ in range(10)] == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("cat", "exit status 0"),
        ("read x; echo got $?", "got 1"),
        ("sleep 1000", "waits for input"),
        ("yes | head -c 100000000", "printed more than"),
        ("head -c 5000 /dev/urandom", "bytes of binary output"),
        (f"yes | head -c {MOST_SHOWN * 3}", "characters are left out here"),
        ("printf 'a\\033[2Jb'", "a\ufffd[2Jb"),
    ],
)
def test_outputs_that_nobody_could_read(terminal: TerminalEnvironment, command: str, told: str) -> None:
    terminal.reset(TASK)
    text = terminal.step(run(command))[0].text
    assert told in text and len(text) < MOST_SHOWN + 300


def test_a_verifier_that_crashes_gives_no_reward(place: Path) -> None:
    class Broken:
        def set_up(self, folder: Path) -> None:
            pass

        def check(self, folder: Path) -> Checked:
            raise ZeroDivisionError("verifier")

    def make(data: Mapping[str, object]) -> Broken:
        return Broken()

    environment = TerminalEnvironment(place, make)
    environment.reset(TASK)
    with pytest.raises(InfrastructureFailure, match="the verifier crashed: ZeroDivisionError"):
        environment.score()
    environment.close()


def test_a_task_that_cannot_be_set_up_is_no_reward(place: Path) -> None:
    with pytest.raises(InfrastructureFailure, match="cannot be set up"):
        TerminalEnvironment(place).reset(Task("x", "terminal", "p", {"expect": {}}))
    with pytest.raises(InfrastructureFailure, match="leads out of the folder"):
        TerminalEnvironment(place).reset(Task("x", "terminal", "p", UPPER | {"files": {"../x": "y"}}))


def test_the_shell_stays_from_one_command_to_the_next(terminal: TerminalEnvironment) -> None:
    terminal.reset(TASK)
    terminal.step(run("mkdir sub; cd sub; x=5"))
    assert terminal.step(run("pwd; echo $x"))[0].text == "/box/sub\n5\n(exit status 0)"
    assert terminal.step(run("exit 3"))[0].text == f"(exit status 3)\n{ANEW}"
    assert terminal.step(run("pwd; echo $x; ls"))[0].text == "/box\n\nin.txt\nsub\n(exit status 0)"


def test_nothing_lives_when_the_verifier_looks(terminal: TerminalEnvironment) -> None:
    """A time bomb after the end, a daemon, and processes that nobody waits for."""
    terminal.reset(TASK)
    mark = "31.41592"
    bomb = f"(setsid nohup sh -c 'sleep {mark}; echo HELLO > out.txt' &) ; (sleep {mark} &); sleep {mark} & true"
    terminal.step(run(bomb))
    assert terminal.score().reward == 0.0
    living = [p.pid for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]
    assert living == []


def test_what_is_prepared_is_used_and_what_died_is_made_anew(terminal: TerminalEnvironment, place: Path) -> None:
    terminal.prepare()
    assert terminal.is_fit() and list(place.iterdir()) == []
    terminal.reset(TASK)
    assert not terminal.is_fit(), "its episode has begun"
    terminal.prepare()
    shell = terminal._shell  # pyright: ignore[reportPrivateUsage]
    assert shell is not None
    shell.stop()
    assert not terminal.is_fit()
    terminal.reset(TASK)
    assert terminal.step(run(SOLVE))[0].text == "(exit status 0)" and terminal.score().reward == 1.0


@pytest.mark.parametrize(
    "trick", ["ln -s {secret} out.txt", "mkfifo out.txt", "mkdir out.txt", "ln -s /dev/zero out.txt"]
)
def test_what_stands_in_place_of_the_file_is_not_followed(
    tmp_path: Path, terminal: TerminalEnvironment, trick: str
) -> None:
    """The answer lies outside, and the agent knows where: its link must not be worth anything."""
    secret = tmp_path / "answer"
    secret.write_text("HELLO\n")
    terminal.reset(TASK)
    terminal.step(run(f"{trick.format(secret=secret)} out.txt"))
    assert terminal.score().reward == 0.0
    assert secret.read_text() == "HELLO\n"


def test_neither_verifier_nor_answer_can_be_read_or_changed(terminal: TerminalEnvironment) -> None:
    terminal.reset(TASK)
    look = "grep -rlx HELLO /box /tmp /etc /proc/self/environ 2>/dev/null"
    find = "find /box /tmp /etc /home /work /root -name 'files_task*' 2>/dev/null; true"
    assert terminal.step(run(f"{look}; {find}"))[0].text == "(exit status 0)"


def test_tasks_are_checked_where_they_are_read() -> None:
    assert files_task(UPPER).check(Path("/nowhere")).passed is False
