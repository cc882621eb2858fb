"""The terminal environment: the contract of every environment, hostile commands, and outputs that nobody could read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from turnwise.environments.base import Environment, InfrastructureFailure, Task
from turnwise.environments.terminal.environment import FORMAT, MOST_SHOWN, TerminalEnvironment
from turnwise.environments.terminal.files_task import FilesCheck, files_task
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

        def check(self, folder: Path) -> FilesCheck:
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


# None of these changes the machine where it succeeds: a setting is written as it stands.
ATTEMPTS = {
    "network": "curl -m 2 http://127.0.0.1 || (exec 3<>/dev/tcp/1.1.1.1/53)",
    "addresses": "test $(ls /sys/class/net 2>/dev/null | grep -vc '^lo$') -gt 0",
    "passwords": "cat /etc/shadow /etc/passwd",
    "home": "ls /root /home /work",
    "host processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 8",
    "kernel settings": "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
    "root of the first process": "cat /proc/1/root/etc/shadow",
    "programs": "touch /usr/bin/x",
    "mount": "mount -t tmpfs none /tmp",
    "namespaces": "unshare -Ur true",
    "become root": "su -c true || sudo true",
    "devices": "mknod /box/d b 8 0",
    "signals": "kill -9 -1; kill -9 2; false",
    "memory": "python3 -c 'x = bytearray(10**10)' || tail /dev/zero",
    "fork bomb": "f() { f | f & }; f; sleep 3; false",
    "disk": "head -c 900000000 /dev/zero > big; for i in 1 2 3 4 5; do head -c 15000000 /dev/zero > big$i; done; false",
    "files without end": "python3 -c \"import os; [open(f'f{i}','w') for i in range(30000)]\"; false",
}


@pytest.mark.attacks
@pytest.mark.parametrize("what", ATTEMPTS)
def test_an_attempt_to_get_out_or_to_use_everything_fails(terminal: TerminalEnvironment, what: str) -> None:
    terminal.reset(TASK)
    text = terminal.step(run(ATTEMPTS[what]))[0].text
    assert "(exit status 0)" not in text, text
    assert terminal.step(run("echo still here"))[0].text.startswith("still here") or "(ended: the folder" in text
    assert terminal.score().reward == 0.0


@pytest.mark.attacks
def test_another_sandbox_is_not_seen(tmp_path: Path, terminal: TerminalEnvironment) -> None:
    other = TerminalEnvironment(tmp_path / "other")
    other.reset(TASK)
    other.step(run("echo secret > mine"))
    terminal.reset(TASK)
    look = run("cat ../other/mine /*/mine /tmp/*; ls -R / 2>/dev/null | grep mine")
    assert "secret" not in terminal.step(look)[0].text
    other.close()


@pytest.mark.attacks
def test_nothing_lives_after_its_command(terminal: TerminalEnvironment) -> None:
    """A time bomb after the end, a daemon, and processes that nobody waits for."""
    terminal.reset(TASK)
    mark = "31.41592"
    bomb = f"(setsid nohup sh -c 'sleep {mark}; echo HELLO > out.txt' &) ; (sleep {mark} &); sleep {mark} & true"
    terminal.step(run(bomb))
    living = [p.pid for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]
    assert living == [] and terminal.score().reward == 0.0


@pytest.mark.attacks
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


@pytest.mark.attacks
def test_neither_verifier_nor_answer_can_be_read_or_changed(terminal: TerminalEnvironment) -> None:
    terminal.reset(TASK)
    look = "grep -rlx HELLO /box /tmp /etc /proc/self/environ 2>/dev/null"
    find = "find /box /tmp /etc /home /work /root -name 'files_task*' 2>/dev/null; true"
    assert terminal.step(run(f"{look}; {find}"))[0].text == "(exit status 0)"


def test_tasks_are_checked_where_they_are_read() -> None:
    assert files_task(UPPER).check(Path("/nowhere")).passed is False
