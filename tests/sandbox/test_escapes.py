"""Twenty-six attempts to get out of the sandbox, to use all of the machine, or to be given a reward for nothing.

Each is played by the shell that agents get, in the real sandbox: with a root of its own that can be written where we
are root, and with the machine's programs read-only. What would change the machine
writes what stands there.
"""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.servers import wait_until
from turnwise.environments.base import Task
from turnwise.environments.terminal.checks import Checked
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.environments.terminal.kind import run
from turnwise.errors import FolderFault, SandboxError
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.groups import GROUPS
from turnwise.sandbox.guest import BubblewrapLodging
from turnwise.sandbox.leftovers import mounts_below
from turnwise.sandbox.limits import BoxLimits
from turnwise.sandbox.overlay import can_lay_roots
from turnwise.sandbox.shell import Shell

LIMITS = BoxLimits(seconds=20, memory_mb=256, processes=32, file_mb=8, disk_mb=24, entries=600, output_kb=64)
MARK = "the-answer-is-4217"
Opens = Callable[..., Shell]


@pytest.fixture(params=["root", "plain"])
def layered(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))
    if request.param == "root" and not can_lay_roots(tmp_path):
        pytest.skip("overlays cannot be mounted here")
    return request.param == "root"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "box").mkdir(mode=0o700)
    return tmp_path / "box"


@pytest.fixture
def opens(layered: bool) -> Iterator[Opens]:
    shells: list[Shell] = []

    def opened(folder: Path, limits: BoxLimits = LIMITS) -> Shell:
        shells.append(Shell(BubblewrapLodging(GuestFolder(folder), limits, layered=layered), limits))
        return shells[-1]

    yield opened
    for shell in shells:
        shell.close()


@pytest.fixture
def shell(opens: Opens, folder: Path) -> Shell:
    return opens(folder)


def said(shell: Shell, command: str) -> str:
    return shell.run(command).output.decode(errors="replace")


def python(code: str) -> str:
    return f"python3 - <<'PROGRAM'\n{code}\nPROGRAM"


def succeeded(shell: Shell, *attempts: str) -> list[str]:
    """Those of some commands that ended well."""
    return [attempt for attempt in attempts if shell.run(attempt).status == 0]


def living(mark: str) -> list[int]:
    """Processes of the whole machine whose command line has a text in it."""
    return [p.pid for p in psutil.process_iter(["cmdline"]) if any(mark in word for word in p.info["cmdline"] or [])]


def test_01_network(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = said(shell, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
        told += said(
            shell, "exec 3<>/dev/tcp/192.0.2.1/80 && echo connected; exec 3<>/dev/udp/192.0.2.1/53 && echo connected"
        )
    assert "connected" not in told and "refused" in told
    assert said(shell, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo\n"


def test_02_files_of_the_machine(shell: Shell, folder: Path) -> None:
    secret = folder.parent / "secret.txt"
    secret.write_text(MARK)
    ways = [
        str(secret),
        "../secret.txt",
        f"/proc/1/root{secret}",
        f"/proc/self/root{secret}",
        f"/proc/self/cwd/../{secret.name}",
    ]
    told = said(
        shell,
        f"cat {' '.join(ways)} /etc/shadow; ls -R {Path.home()} {Path(__file__).parent}; cat /proc/self/mountinfo",
    )
    assert MARK not in told and "test_escapes" not in told and not [line for line in told.splitlines() if "$" in line]


def test_03_proc_of_others(shell: Shell) -> None:
    look = "cat /proc/*/environ /proc/*/cmdline /proc/PID/environ | tr '\\0' '\\n'"
    with subprocess.Popen(["sleep", "60"], env={"SECRET": MARK}) as other:
        told = said(shell, look.replace("PID", str(other.pid)))
        other.kill()
    assert MARK not in told and "pytest" not in told and str(other.pid) not in said(shell, "ls /proc").split()
    assert int(said(shell, "ls -d /proc/[0-9]* | wc -l")) < 8


def test_04_other_sandboxes(opens: Opens, folder: Path) -> None:
    (folder.parent / "other").mkdir()
    other, shell = opens(folder.parent / "other"), opens(folder)
    other.run(f"echo {MARK} > mine; echo {MARK} > /tmp/mine; sleep 31.4159 &")
    told = said(
        shell,
        "cat ../other/mine /*/mine /tmp/*; grep -rl 4217 / --include=mine 2>/dev/null; cat /proc/*/cmdline; kill -9 -1",
    )
    assert MARK not in told and "31.4159" not in told
    assert said(other, "cat mine; jobs").startswith(MARK) and living("31.4159")


def test_05_fork_bomb(shell: Shell) -> None:
    before = len(psutil.pids())
    ran = shell.run("bomb() { bomb | bomb & }; bomb; sleep 0.5; ls", seconds=4)
    assert ran.stopped_by or b"Resource temporarily unavailable" in ran.output
    assert len(psutil.pids()) < before + 200
    shell.run("true", seconds=1)
    shell.stop()
    assert said(shell, "echo still here") == "still here\n"


def test_06_memory(shell: Shell) -> None:
    ran = shell.run("for n in 1 2 3; do tail /dev/zero & done; wait; tail /dev/zero; tail -n 1 /dev/zero", seconds=15)
    assert ran.stopped_by == "memory" or ran.status != 0
    assert said(shell, "echo still here") == "still here\n"


@pytest.mark.parametrize("place", ["/box", "/tmp", "/usr/lib", "/var/tmp", "/dev/shm", "/run"])
def test_07_disk(shell: Shell, place: str) -> None:
    shell.run(f"cd {place} && for n in $(seq 9); do head -c 7M /dev/zero > big$n; done")
    ran = shell.run(f"ls {place}/big*")
    assert ran.stopped_by == "disk" or ran.status != 0, "it was ended, or could not write there"
    shell.run(f"rm -f {place}/big*")
    assert shell.run("true").stopped_by is None


@pytest.mark.parametrize("place", ["/box", "/tmp", "/usr", "/etc"])
def test_08_many_small_files(shell: Shell, place: str) -> None:
    ran = shell.run(f"mkdir {place}/many && cd {place}/many && touch $(seq 900)")
    assert ran.stopped_by == "disk" or ran.status != 0


def test_09_zombies(shell: Shell, folder: Path) -> None:
    code = "import os, time\nfor n in range(20):\n    if os.fork() == 0: os._exit(0)\n"
    code += "print('made', flush=True)\ntime.sleep(60)"
    shell.run(f"({python(code)}\n) > made & sleep 0.5")
    assert (folder / "made").read_text() == "made\n"
    inside = [
        p for p in psutil.process_iter(["status"]) if p.info["status"] == psutil.STATUS_ZOMBIE and p.name() == "python3"
    ]
    shell.stop()
    assert not [p for p in inside if p.is_running() and p.status() == psutil.STATUS_ZOMBIE and p.name() == "python3"]


def test_10_signals_to_others(shell: Shell) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        shell.run(f"kill -9 {other.pid} {os.getpid()} {os.getppid()}; kill -9 -{os.getpgid(0)}; kill -STOP {other.pid}")
        shell.run("kill -9 -1; kill -9 0")
        assert other.poll() is None
        other.kill()
    assert said(shell, "echo still here") == "still here\n"


@pytest.mark.parametrize(
    "trick",
    ["ln -s {secret}", "ln -s /box/../secret.txt", "mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /proc/self/environ"],
)
def test_11_links_out_of_the_folder(shell: Shell, folder: Path, trick: str) -> None:
    secret = folder.parent / "secret.txt"
    secret.write_text(MARK)
    shell.run(f"{trick.format(secret=secret)} out.txt; echo mine > out.txt", seconds=1)
    shell.stop()
    for use in (lambda: GuestFolder(folder).read("out.txt"), lambda: GuestFolder(folder).write("out.txt", b"mine")):
        with pytest.raises((FolderFault, FileNotFoundError)):
            use()
    assert secret.read_text() == MARK


class Graded:
    """A task whose tests and grader lie outside, where their place is known to the agent."""

    def __init__(self, beside: Path) -> None:
        self.beside = beside

    def set_up(self, folder: Path) -> None:
        (folder / "program.sh").write_text("echo wrong\n")

    def check(self, folder: Path) -> Checked:
        tests = (self.beside / "tests.txt").read_text()
        found = GuestFolder(folder).read("program.sh").decode()
        return Checked(tests.strip() in found, "compared")


@pytest.fixture
def graded(tmp_path: Path, layered: bool) -> Iterator[TerminalEnvironment]:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "tests.txt").write_text(MARK)

    def make(data: Mapping[str, object]) -> Graded:
        return Graded(tmp_path / "hidden")

    environment = TerminalEnvironment(tmp_path / "episode", make, LIMITS)
    environment.reset(Task("t", "terminal", "Do it."))
    yield environment
    environment.close()


def test_12_tampering_with_grader_and_tests(graded: TerminalEnvironment, tmp_path: Path) -> None:
    hidden, here = tmp_path / "hidden" / "tests.txt", Path(__file__)
    change = f"mkdir -p {hidden.parent}; echo wrong > {hidden}; echo wrong > /proc/1/root{hidden}; "
    graded.step(run(f"{change} ln -s {hidden} tests.txt; echo wrong > tests.txt"))
    change = f"mkdir -p {here.parent}; echo 'raise SystemExit' > {here}; "
    graded.step(run(f"{change} echo 'import os' > /usr/lib/python3/sitecustomize.py"))
    assert graded.score().reward == 0.0
    assert hidden.read_text() == MARK and not here.read_text().startswith("raise")
    assert not Path("/usr/lib/python3/sitecustomize.py").exists()


def test_13_reading_hidden_tests(graded: TerminalEnvironment, tmp_path: Path) -> None:
    look = (
        f"cat {tmp_path}/hidden/tests.txt; grep -rs the-answer / --include=*.txt --exclude-dir=proc --exclude-dir=usr; "
    )
    look += "find / -name tests.txt -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null; "
    look += "cat /proc/*/cmdline /proc/*/environ"
    text = graded.step(run(look))[0].text
    assert MARK not in text and "/hidden/" not in text.replace(f"{tmp_path}/hidden/tests.txt: No such", "")
    assert graded.score().reward == 0.0


def test_14_time_bombs(graded: TerminalEnvironment, tmp_path: Path) -> None:
    """Whoever waits until the verifier looks finds that nothing of theirs lives any more."""
    bomb = f"while true; do echo {MARK} >> /box/program.sh; sleep 0.01; done"
    late = f"(trap '' TERM HUP INT; setsid nohup sh -c 'sleep 31.42; {bomb}' > /dev/null 2>&1 &)"
    graded.step(run(f"{late}; at now < /dev/null; crontab -l"))
    wait_until(lambda: bool(living("31.42")))
    assert graded.score().reward == 0.0
    assert living("31.42") == []


INJECT = """
import fcntl, glob, os, termios
places = ["/dev/tty", "/dev/console", *glob.glob("/dev/pts/*"), *glob.glob("/dev/tty*"), *glob.glob("/proc/*/fd/*")]
for place in [0, 1, 2, *places]:
    try:
        at = place if isinstance(place, int) else os.open(place, os.O_RDWR | os.O_NONBLOCK)
        for sign in b"rm -rf\\n":
            fcntl.ioctl(at, termios.TIOCSTI, bytes([sign]))
        print("typed into", place)
    except OSError:
        pass
"""
TYPED_AT = """
import fcntl, sys, termios
from tests.sandbox.test_escapes import *
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
folder = Path(sys.argv[1]) / "box"
folder.mkdir()
shell = Shell(BubblewrapLodging(GuestFolder(folder), LIMITS), LIMITS)
told = said(shell, python(INJECT))
shell.close()
(Path(sys.argv[1]) / "told").write_text(told or "nothing")
"""


@pytest.mark.usefixtures("layered")
def test_15_typing_into_a_terminal(tmp_path: Path) -> None:
    """The host has a terminal here, as where somebody types `turnwise rollout`."""
    ours, theirs = pty.openpty()
    try:
        command, root = [sys.executable, "-c", TYPED_AT, str(tmp_path)], Path(__file__).parents[2]
        done = subprocess.run(command, stdin=theirs, start_new_session=True, timeout=60, cwd=root)
        assert done.returncode == 0 and (tmp_path / "told").read_text() == "nothing"
        os.set_blocking(theirs, False)
        with contextlib.suppress(BlockingIOError):
            assert os.read(theirs, 100) == b""
    finally:
        os.close(ours)
        os.close(theirs)


ENTER = """
import ctypes, os
libc = ctypes.CDLL(None)
for flag in (0x10000000, 0x20000, 0x40000000):
    if libc.unshare(flag) == 0:
        print("opened", flag)
for name in os.listdir("/proc/1/ns"):
    try:
        if libc.setns(os.open(f"/proc/1/ns/{name}", 0), 0) == 0:
            print("entered", name)
    except OSError:
        pass
"""


def test_16_new_namespaces(shell: Shell) -> None:
    ways = [f"unshare {flags} true" for flags in ("-U", "-Ur", "-n", "-m", "-p --fork")]
    assert succeeded(shell, *ways, "nsenter -t 1 -a true", "chroot / true") == []
    assert said(shell, python(ENTER)) == ""
    assert said(shell, "grep -h CapEff /proc/self/status /proc/$$/status | sort -u") == "CapEff:\t0000000000000000\n"


def test_17_devices(shell: Shell) -> None:
    made = [f"mknod {way}" for way in ("/box/disk b 254 0", "/box/memory c 1 1", "/tmp/disk b 8 0", "/dev/disk b 8 0")]
    names = ("vda", "sda", "mem", "kmsg", "kvm", "fuse", "loop-control", "net/tun", "disk")
    assert succeeded(shell, *made, *(f"head -c 1 /dev/{name}" for name in names)) == []


SETTINGS = ("sys/kernel/core_pattern", "sys/vm/overcommit_memory", "sys/kernel/hostname", "irq/default_smp_affinity")


def test_18_settings_of_the_kernel(shell: Shell) -> None:
    written = [f"cat /proc/{one} > /tmp/now && cat /tmp/now > /proc/{one}" for one in SETTINGS]
    shown = [f"head -c 9 /proc/{one} | grep -q ." for one in ("kcore", "kallsyms", "keys", "kmsg", "config.gz")]
    others = ["echo h > /proc/sysrq-trigger", "mount -t sysfs none /mnt", "ls /sys/kernel", "hostname mine"]
    assert succeeded(shell, *written, *shown, *others) == []
    look = "find /proc -maxdepth 3 -type f -writable -not -path '/proc/[0-9]*' -not -path '/proc/*self/*' 2>/dev/null"
    found = said(shell, f"{look} | while read f; do (: >> $f) 2>/dev/null && echo $f; done")
    assert found == "", "and nothing else of the kernel's can be written"


def test_19_writing_through_proc_self(shell: Shell) -> None:
    """The program that holds us runs from a file of the machine; its memory and its settings are here as files."""
    program = Path(shutil.which("bwrap") or "/usr/bin/bwrap")
    before = program.read_bytes()
    ways = ["echo mine >> /proc/1/exe", "echo -1000 > /proc/self/oom_score_adj", "echo '0 0 1' > /proc/self/uid_map"]
    assert succeeded(shell, *ways, "echo '0 0 1' > /proc/1/uid_map", "echo deny > /proc/self/setgroups") == []
    shell.run("echo mine > /proc/self/root/../../mine; cp /bin/true /proc/1/cwd/mine; echo mine > /proc/1/root/mine")
    assert not Path("/mine").exists() and program.read_bytes() == before


def test_20_forging_the_end_of_a_command(shell: Shell) -> None:
    forge = "for n in /proc/[0-9]*/fd/* /dev/fd/* /dev/stderr; do (printf '%032d 0\\0' 7 > $n) 2>/dev/null; done; "
    forge += "for n in 3 4 5 6 7 8 9; do printf '%032d 0\\0' 7 >&$n; done; printf '%032d 0\\0\\n' 7; "
    ran = shell.run(f'sh -c "{forge}" > /dev/null 2>&1; {forge} sleep 0.3; echo the end; (exit 7)')
    assert (ran.status, ran.output.splitlines()[-1]) == (7, b"the end")
    assert shell.run("echo next").output == b"next\n"
    swallow = "for n in 10 11 12; do while IFS= read -r -t 1 -u $n line; do :; done; done; echo took"
    ran = shell.run(swallow, seconds=3)
    assert ran.stopped_by == "time" and ran.restarted, "a shell that swallows its own end is ended by the clock"
    assert shell.run("echo next").output == b"next\n"


def test_21_output_without_end(shell: Shell) -> None:
    ran = shell.run("yes; head -c 1G /dev/zero")
    assert ran.stopped_by == "output" and len(ran.output) <= LIMITS.output_kb << 10
    shell.run("yes & true")
    ran = shell.run("sleep 1; echo said")
    assert len(ran.output) <= LIMITS.output_kb << 10, "also what comes from the background"
    shell.stop()
    assert said(shell, "echo still here") == "still here\n"


def test_22_setuid(shell: Shell, folder: Path) -> None:
    shell.run("cp /bin/bash mine; chmod 6755 mine")
    told = said(shell, "./mine -p -c 'grep -E \"CapEff|NoNewPrivs\" /proc/self/status'")
    assert told == "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n"
    ways = ["su -c true < /dev/null", "sudo -n true", "mount / -o remount,suid", "./mine -p -c 'hostname mine'"]
    assert succeeded(shell, *ways) == []
    assert folder.stat().st_mode & 0o077 == 0, "nobody else of the machine gets at such a file"


CONNECT = """
import socket, sys
for where in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(where.replace("@", "\\0"))
        print("connected", where)
    except OSError:
        pass
"""


def test_23_sockets_of_others(shell: Shell, folder: Path, tmp_path: Path) -> None:
    (folder / "connect.py").write_text(CONNECT)
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind("\0turnwise-test-escape")
        named.bind(str(tmp_path / "socket"))
        for one in (abstract, named):
            one.listen()
        ways = ["@turnwise-test-escape", "@/tmp/.X11-unix/X0", "/run/dbus/system_bus_socket", str(tmp_path / "socket")]
        assert said(shell, f"python3 connect.py {' '.join(ways)} /var/run/docker.sock") == ""


def test_24_what_is_installed_stays_inside(shell: Shell, layered: bool) -> None:
    install = "echo 'echo mine' > /usr/bin/mine && chmod +x /usr/bin/mine && mine"
    ran = shell.run(f"{install} && echo x >> /etc/os-release && rm /usr/bin/yes")
    assert (ran.status == 0) == layered
    assert not Path("/usr/bin/mine").exists() and Path("/usr/bin/yes").exists()
    shell.stop()
    assert (shell.run("mine").status == 0) == layered, "and stays over a shell that ended"


def test_25_nothing_is_left(opens: Opens, folder: Path) -> None:
    shell = opens(folder)
    shell.run("(setsid nohup sleep 31.43 &); sleep 31.43 & mkdir -p /tmp/deep/deep; chmod 0 /tmp/deep; echo x > kept")
    assert living("31.43")
    shell.close()
    assert living("31.43") == [] and mounts_below(folder.parent) == []
    assert list(folder.parent.iterdir()) == [folder] and list(folder.iterdir()) == [folder / "kept"]
    assert list(GROUPS.rglob(f"turnwise-*-{os.getpid()}-*")) == []


STAYS = """
import os, signal, time
for n in range(1, 65):
    try:
        signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
    time.sleep(0.05)
"""


def test_26_a_process_that_will_not_end(shell: Shell) -> None:
    ran = shell.run(python(STAYS), seconds=1.5)
    assert ran.stopped_by == "time" and ran.restarted
    assert int(said(shell, "ls -d /proc/[0-9]* | wc -l")) < 8
