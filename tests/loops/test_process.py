"""What every loop does the same way: here, that it lives as long as its supervisor and no longer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's alone")

LOOP = "from turnwise.loops.process import die_with_parent; die_with_parent(); print('the loop lives')"
SUPERVISOR = f"""
import asyncio, os, sys
from pathlib import Path
from turnwise.config import Config
from turnwise.loops.supervisor import Loop, Supervisor

async def main():
    supervisor = Supervisor(Config(home=Path({{home!r}})), [])
    loop = Loop("loop", [sys.executable, "-c", {LOOP!r}])
    running = asyncio.create_task(supervisor._keep_running(loop))
    while not loop.last_lines and loop.starts < 2:
        await asyncio.sleep(0.05)
    await supervisor.stop_all()
    await running
    print("pid", os.getpid(), loop.last_lines)

asyncio.run(main())
"""


def supervise(home: Path, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", SUPERVISOR.format(home=str(home))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loop_under(supervisor_pid: str | None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TURNWISE_SUPERVISOR_PID"}
    if supervisor_pid is not None:
        environment["TURNWISE_SUPERVISOR_PID"] = supervisor_pid
    return subprocess.run(
        [sys.executable, "-c", LOOP], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_a_loop_lives_under_its_supervisor(tmp_path: Path) -> None:
    assert "the loop lives" in supervise(tmp_path)


def test_a_supervisor_may_be_process_1(tmp_path: Path) -> None:
    namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a process namespace")
    said = supervise(tmp_path, *namespace)
    assert "pid 1 " in said
    assert "the loop lives" in said


def test_a_loop_whose_supervisor_is_gone_ends() -> None:
    assert loop_under(str(os.getpid())) == "the loop lives\n"
    assert loop_under(str(os.getppid())) == ""  # somebody else is the parent by now
    assert loop_under(None) == "the loop lives\n"  # started alone
