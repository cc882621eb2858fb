"""Memory and cores that a process may use: those of the machine, what it is tied to, and a container's limits.

The files of control groups are made up, in a folder of the test's own: a test cannot put itself into a container.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from turnwise import machine

TIED = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from turnwise import machine
from turnwise.config import TrainConfig
print(machine.cores(), TrainConfig().cpu_threads(alone=True), TrainConfig(threads=3).cpu_threads())
"""


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of limits, without any; we are in a group below it, and tied to eight cores."""
    own = tmp_path.parent / f"{tmp_path.name}-own"
    own.write_text("12:memory:/box/inner\n4:cpu,cpuacct:/box\n1:name=systemd:/x\n0::/box/inner\n", encoding="utf-8")
    monkeypatch.setattr(machine, "GROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu.max": "100000 0\n"}, 8),
        ({"cpu.max": ""}, 8),
        ({"cpu.max": "nonsense\n"}, 8),
        ({"cpu.max": "zwölf 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n"}, 8),
        # The least of our own group's and of those above it.
        ({"box/inner/cpu.max": "300000 100000\n", "box/cpu.max": "500000 100000\n", "cpu.max": "max 100000\n"}, 3),
        ({"box/inner/cpu.max": "500000 100000\n", "box/cpu.max": "300000 100000\n"}, 3),
        ({"other/cpu.max": "100000 100000\n"}, 8),
        ({"cpu/box/cpu.cfs_quota_us": "300000\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/box/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_a_containers_share_of_time_bounds_the_cores(limits: Path, files: dict[str, str], cores: int) -> None:
    write(limits, files)
    assert machine.cores() == cores


def test_without_a_word_of_our_group_the_root_counts(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(limits, {"cpu.max": "200000 100000\n", "box/cpu.max": "100000 100000\n"})
    monkeypatch.setattr(machine, "OWN", limits / "not there")
    assert machine.cores() == 2


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system ties no process to cores")
def test_a_trainer_that_is_tied_to_a_core_is_set_to_one_thread() -> None:
    done = subprocess.run([sys.executable, "-c", TIED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["1", "1", "3"]


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({"memory.max": "4000000000\n"}, 4.0),
        ({"memory/memory.limit_in_bytes": "3000000000\n"}, 3.0),
        ({"box/memory.max": "2000000000\n", "memory.max": "4000000000\n"}, 2.0),
        ({"memory/box/inner/memory.limit_in_bytes": "1000000000\n"}, 1.0),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_memory_is_all_there_is(limits: Path, files: dict[str, str], memory: float | None) -> None:
    write(limits, files)
    assert machine.memory_gb() == (memory if memory is not None else psutil.virtual_memory().total / 1e9)
