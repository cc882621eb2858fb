"""The shell that lasts: what stays from one command to the next, and what is told where one ended it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.limits import Allowed, BoxLimits
from turnwise.sandbox.shell import Shell

LIMITS = BoxLimits(seconds=20, memory_mb=256, processes=32, file_mb=8, disk_mb=24, entries=600, output_kb=64)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))
    (tmp_path / "box").mkdir()
    made = Sandboxes().shell(GuestFolder(tmp_path / "box"), LIMITS)
    yield made
    made.close()


def said(shell: Shell, command: str) -> str:
    return shell.run(command).output.decode()


def test_folder_variables_functions_and_jobs_stay(shell: Shell) -> None:
    assert shell.run("mkdir -p a/b; cd a/b; x=5; export y=6; f() { echo f of $1; }; sleep 100 &").status == 0
    assert (
        said(shell, "pwd; echo $x; sh -c 'echo $y'; f 1; jobs | cut -c 1-14")
        == "/box/a/b\n5\n6\nf of 1\n[1]+  Running \n"
    )
    assert said(shell, "declare -i z=3; set -- one two") == "" and said(shell, "echo $z $2") == "3 two\n"


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("(exit 7)", 7, b""),
        ("cat", 0, b""),
        ("cat <<E\nhey\nE", 0, b"hey\n"),
        ("echo 'a'\"b\" # c", 0, b"ab\n"),
        ("printf 'no end of line'", 0, b"no end of line"),
        ("echo one; echo two >&2", 0, b"one\ntwo\n"),
        ("echo $(seq 3)\n\n\necho 4", 0, b"1 2 3\n4\n"),
        ("exec > /dev/null; echo lost", 0, b""),
        ("nosuchcommand 2>/dev/null", 127, b""),
        ("printf 'a\\0b\\377'", 0, b"a\0b\xff"),
        ("head -c 60000 /dev/zero | tr '\\0' a", 0, b"a" * 60_000),
        ("echo " + "a" * 30_000, 0, b"a" * 30_000 + b"\n"),
        ("kill -9 $BASHPID & wait $! 2>/dev/null", 137, b""),
    ],
)
def test_a_command_ends_with_its_status_and_all_of_its_output(
    shell: Shell, command: str, status: int, output: bytes
) -> None:
    for _ in range(2):
        ran = shell.run(command)
        assert (ran.status, ran.output, ran.stopped_by, ran.restarted) == (status, output, None, False)


@pytest.mark.parametrize("command", ["if", "echo 'a", "break", "return 3", "set -v; set -x; set +vx", "eval ')'", "}"])
def test_a_command_that_is_none_leaves_the_shell_alive(shell: Shell, command: str) -> None:
    shell.run("x=5")
    assert not shell.run(command).restarted
    assert said(shell, "echo $x") == "5\n"


@pytest.mark.parametrize("command", ["exit 3", "exec sh -c 'exit 3'", "set -e; (exit 3)"])
def test_a_shell_that_was_ended_is_told_and_another_begins(shell: Shell, command: str) -> None:
    shell.run("cd /tmp; x=5; echo kept > /box/kept; sleep 100 &")
    ran = shell.run(f"echo before; {command}")
    assert (ran.status, ran.output, ran.restarted) == (3, b"before\n", True)
    assert said(shell, "pwd; echo $x; jobs; cat kept") == "/box\n\nkept\n"


def test_a_command_that_overruns_its_time_leaves_the_folder(shell: Shell) -> None:
    shell.run("x=5; echo kept > kept")
    ran = shell.run("echo before; trap '' TERM INT; while true; do sleep 1; done", seconds=0.5)
    assert (ran.stopped_by, ran.restarted, ran.output) == ("time", True, b"before\n")
    assert said(shell, "cat kept; echo $x") == "kept\n\n"


def test_what_the_background_says_comes_with_the_next_command(shell: Shell) -> None:
    assert said(shell, "(sleep 0.2; echo later) & echo now") == "now\n"
    assert said(shell, "sleep 0.6; echo then") == "later\nthen\n"


def test_memory_of_the_background_counts_with_the_others(shell: Shell) -> None:
    """The kernel ends the greatest of them; where it does not count, the shell ends with all."""
    if shell.run("python3 -c 1").status:
        pytest.skip("there is no python3 in /usr/bin")
    hog = "python3 -c 'import time; x = b\"a\" * (140 << 20); print(1, flush=True); time.sleep(9)'"
    shell.run(f"{hog} & sleep 1")
    ran = shell.run(f"{hog} & wait", seconds=15)
    assert ran.stopped_by == "memory"
    assert said(shell, "echo still here").endswith("still here\n")


def test_a_shell_that_traces_its_commands_does_not_show_our_number(shell: Shell) -> None:
    shell.run("set -x")
    assert said(shell, "echo a") == "+ eval 'echo a'\n++ echo a\na\n"


def test_a_command_that_cannot_be_given_is_told(shell: Shell) -> None:
    for command in ("echo \0", "echo \ud800"):
        with pytest.raises(SandboxError, match="cannot be started"):
            shell.run(command)
    assert said(shell, "echo here") == "here\n"


def test_a_shell_does_not_end_with_the_thread_that_began_it(shell: Shell) -> None:
    """The kernel tells bubblewrap of the death of a thread, not of the process."""
    thread = threading.Thread(target=lambda: shell.run("x=5"))
    thread.start()
    thread.join()
    assert shell.lives and said(shell, "sleep 0.2; echo $x") == "5\n"


def test_a_shell_can_be_begun_before_its_first_command(shell: Shell) -> None:
    assert not shell.lives
    shell.begin()
    assert shell.lives and said(shell, "pwd") == "/box\n"
    shell.stop()
    assert not shell.lives


def test_a_way_out_lasts_as_long_as_the_shell(tmp_path: Path) -> None:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "box").mkdir()
    allowed = Allowed(hosts=("example.org",))
    shell = Sandboxes().shell(GuestFolder(tmp_path / "box"), LIMITS, allowed)
    ask = "exec 5<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT localhost:1 HTTP/1.1\\r\\n\\r\\n' >&5; head -n 1 <&5"
    for _ in range(2):
        assert "403 Forbidden" in said(shell, ask)
        shell.run("exit")
    shell.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 6, "an event loop stays, and nothing of the sandboxes"
