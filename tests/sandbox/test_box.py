"""Commands that want out of the sandbox, and such that do not end. Real ones, in the real one."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox import bubblewrap as bubblewrap_module
from turnwise.sandbox import groups as groups_module
from turnwise.sandbox.box import Box
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.limits import BoxLimits

LIMITS = BoxLimits(seconds=20.0, memory_mb=256, processes=24, file_mb=8, disk_mb=24, entries=500, output_kb=64)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "box").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "box"


@pytest.fixture
def box(inside: Path) -> Box:
    try:
        return Box(GuestFolder(inside), LIMITS)
    except SandboxError as e:
        pytest.skip(str(e))


def test_a_command_works_in_its_folder(box: Box, inside: Path) -> None:
    ran = box.run("pwd; echo $HOME; mkdir -p day01; echo hello > day01/a.txt; cat day01/a.txt; exit 3")
    assert (ran.status, ran.output, ran.stopped_by) == (3, b"/box\n/box\nhello\n", None)
    assert (inside / "day01/a.txt").read_text() == "hello\n"


def test_nothing_of_the_machine_is_seen(box: Box, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person")
    said = box.run(
        f"env; cat /etc/passwd /etc/shadow {inside.parent}/secret.txt; ls / /root /home {Path.home()} {inside.parent}; "
        "cat /proc/1/environ; ls -l /proc/1/root/; ls /sys; id -u"
    ).output
    assert b"sk-of-the-person" not in said and b"secret\n" not in said and b"root:" not in said
    assert said.rstrip().endswith(b"1000")
    assert b"No such file or directory" in said


def test_a_setting_of_the_kernel_is_not_written(box: Box) -> None:
    """Root's files there ask for no right but to be root's. The value is written as it stands, so nothing changes."""
    place = "/proc/sys/kernel/core_pattern"
    ran = box.run(f"cat {place} > {place}")
    assert ran.status != 0 and b"Read-only" in ran.output


def test_there_is_no_network_not_even_this_machine(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = box.run(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected; ls /sys/class/net; cat /proc/net/dev")
    assert b"connected" not in ran.output and b"refused" in ran.output.lower()
    assert b"eth" not in ran.output


def test_nothing_is_written_outside(box: Box, inside: Path) -> None:
    ran = box.run(
        "echo mine > /usr/bin/mine; echo mine > /etc/passwd; echo mine > ../secret.txt; "
        f"echo mine > /proc/sysrq-trigger; ln -s {inside.parent}/secret.txt link; echo mine > link; "
        "mount -t tmpfs none /usr; echo done"
    )
    assert ran.output.endswith(b"done\n")
    assert (inside.parent / "secret.txt").read_text() == "secret"
    assert not Path("/usr/bin/mine").exists()
    assert sorted(path.name for path in inside.parent.iterdir()) == ["box", "secret.txt"]


def test_nothing_is_written_where_nobody_counts_it(box: Box) -> None:
    """A file system in the machine's memory is filled with no process growing."""
    ran = box.run("for place in / /dev /dev/shm /proc /usr /etc; do echo mine > $place/mine && echo wrote $place; done")
    assert b"wrote" not in ran.output
    assert box.run("for n in 1 2 3 4 5; do head -c 7M /dev/zero > /tmp/$n; done").stopped_by == "disk"
    assert box.run("mkdir /tmp/many; cd /tmp/many; touch $(seq 600)").stopped_by == "disk"
    assert box.run("echo mine > /tmp/a; cat /tmp/a; echo $(true) > /dev/null").output == b"mine\n"
    assert box.run("ls /tmp").output == b"", "and it is gone afterwards"


def test_no_further_namespace_is_opened(box: Box) -> None:
    ran = box.run("unshare -Ur id; unshare -n true && echo opened; grep CapEff /proc/self/status")
    assert b"uid=0" not in ran.output and b"opened" not in ran.output
    assert b"CapEff:\t0000000000000000" in ran.output


def test_no_process_of_the_machine_is_seen_or_ended(box: Box) -> None:
    ran = box.run(f"kill -9 {os.getpid()}; ls /proc | grep -c '^[0-9]'")
    assert int(ran.output.splitlines()[-1]) < 8


def test_a_fork_bomb_ends(box: Box) -> None:
    before = len(psutil.pids())
    ran = box.run("bomb() { bomb | bomb & }; bomb; for n in $(seq 40); do sleep 9 & done; wait", seconds=5)
    assert ran.stopped_by or b"Resource temporarily unavailable" in ran.output
    assert len(psutil.pids()) < before + 200, "it never had many, and they are gone"
    assert box.run("echo still here").output == b"still here\n"


def test_root_is_held_too(box: Box) -> None:
    """The kernel lets root start as many processes as it likes, whatever `prlimit` says."""
    ran = box.run("for n in $(seq 60); do sleep 3 & done 2>&1; ls -d /proc/[0-9]* | wc -l; exit 0", seconds=9)
    assert b"Resource temporarily unavailable" in ran.output


@pytest.mark.skipif(os.geteuid() != 0, reason="this is about root")
def test_root_without_control_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS", tmp_path)
    groups_module.parents.cache_clear()
    with pytest.raises(SandboxError, match="run turnwise as another user"):
        groups_module.make_group(LIMITS)
    groups_module.parents.cache_clear()
    assert list(tmp_path.iterdir()) == [], "and nothing is left there"


def test_output_without_end_ends(box: Box) -> None:
    ran = box.run("yes")
    assert ran.stopped_by == "output" and len(ran.output) == LIMITS.output_kb << 10


def test_a_command_that_waits_for_ever_ends(box: Box) -> None:
    ran = box.run("trap '' TERM INT HUP; while true; do sleep 1; done", seconds=0.5)
    assert ran.stopped_by == "time" and ran.status != 0


def test_what_is_left_in_the_background_does_not_live_on(box: Box, inside: Path) -> None:
    ran = box.run("(while true; do date > beat; sleep 0.05; done) & sleep 0.3; (setsid sleep 300 &) ; echo over")
    assert ran.stopped_by is None and ran.output == b"over\n"
    beat = (inside / "beat").stat().st_mtime_ns
    box.run("sleep 0.3")
    assert (inside / "beat").stat().st_mtime_ns == beat


def test_memory_is_limited_for_one_and_for_all_of_its_processes(box: Box) -> None:
    one = "python3 -c 'x = b\"a\" * (400 << 20)'"
    if box.run("python3 -c 1").status:
        pytest.skip("there is no python3 in /usr/bin")
    ran = box.run(one)
    assert ran.stopped_by == "memory" or b"MemoryError" in ran.output, "by a control group, or by prlimit"
    many = "for n in 1 2 3 4; do python3 -c 'import time; x = b\"a\" * (120 << 20); time.sleep(2)' & done; wait"
    assert box.run(many).stopped_by == "memory"


HOLDS_A_FILE = """
import os, time
for n in range(8):
    at = os.open("file", os.O_RDWR | os.O_CREAT)
    os.remove("file")
    os.write(at, b"x" * (7 << 20))
time.sleep(10)
"""
HOLDS_MEMORY = """
import os, time
at = os.memfd_create("hoard")
for _ in range(24):
    os.write(at, b"x" * (7 << 20))
time.sleep(10)
"""


def test_a_file_without_a_name_is_weighed_as_long_as_it_is_open(box: Box, inside: Path) -> None:
    if box.run("python3 -c 1").status:
        pytest.skip("there is no python3 in /usr/bin")
    (inside / "hold.py").write_text(HOLDS_A_FILE)
    assert box.run("exec python3 hold.py").stopped_by == "disk"
    (inside / "small.py").write_text(HOLDS_A_FILE.replace("range(8)", "range(2)").replace("10", "1"))
    assert box.run("exec python3 small.py").stopped_by is None


def test_a_file_in_memory_counts_where_no_group_holds_memory(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        box = Box(GuestFolder(inside), dataclasses.replace(LIMITS, memory_mb=128, file_mb=256))
    except SandboxError as e:
        pytest.skip(str(e))
    if box.run("python3 -c 1").status:
        pytest.skip("there is no python3 in /usr/bin")
    others = {kind: place for kind, place in groups_module.parents().items() if kind != "memory"}
    monkeypatch.setattr(groups_module, "parents", lambda: others)
    (inside / "hold.py").write_text(HOLDS_MEMORY)
    ran = box.run("exec python3 hold.py")
    assert ran.stopped_by == "memory", ran.output


def test_files_and_the_folder_are_limited(box: Box, inside: Path) -> None:
    box.run("head -c 20M /dev/zero > one")
    assert (inside / "one").stat().st_size <= LIMITS.file_mb << 20
    assert box.run("for n in 1 2 3 4 5; do head -c 7M /dev/zero > f$n; done").stopped_by == "disk"
    assert box.run("rm -f *; mkdir many; cd many; touch $(seq 600)").stopped_by == "disk"


def test_a_gigabyte_that_is_none_and_folders_without_end(box: Box, inside: Path) -> None:
    box.run("truncate -s 1G sparse")
    assert not (inside / "sparse").exists() or (inside / "sparse").stat().st_size <= LIMITS.file_mb << 20
    assert box.run("for n in $(seq 200); do mkdir d; cd d; done").stopped_by == "disk"


def test_a_signal_that_we_ignore_is_heard_inside(box: Box) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        ran = box.run("trap 'echo heard; exit 4' HUP; kill -HUP $$; echo not heard")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ran.status, ran.output) == (4, b"heard\n")


def test_a_command_that_cannot_be_given_is_told(box: Box) -> None:
    with pytest.raises(SandboxError, match="cannot be started"):
        box.run("echo \0")
    with pytest.raises(SandboxError, match="cannot be started"):
        box.run("echo " + "a" * (1 << 20))


@pytest.fixture
def fresh() -> Iterator[None]:
    check_machine.cache_clear()
    yield
    check_machine.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_machine_without_the_program_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap_module, "PROGRAMS", (str(tmp_path),))
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(SandboxError, match=r"install it .*bubblewrap"):
        Box(GuestFolder(tmp_path))


@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_allows_no_namespaces_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for bwrap, which fails as the real one does there."""
    for name, does in (("bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"), ("prlimit", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(bubblewrap_module, "PROGRAMS", (str(tmp_path),))
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(SandboxError, match=r"No permissions .*user namespaces"):
        Box(GuestFolder(tmp_path))


@pytest.mark.usefixtures("fresh")
def test_another_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="use a Linux machine"):
        Box(GuestFolder(tmp_path))


def test_the_room_is_fit_for_other_programs_of_agents() -> None:
    """It imports no torch and nothing of the journal."""
    code = "import sys, turnwise.sandbox.box; print([m for m in sys.modules if m.startswith(('torch', 'turnwise.j'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
