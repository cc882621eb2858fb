"""Terminal environments made, played and taken away, a number at once; and a step beside a plain subprocess.

All of a number are begun before the first plays, so that they really are there at once. A step is a command that starts
two programs.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.environments.base import Task
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.environments.terminal.kind import run
from turnwise.errors import SandboxError
from turnwise.sandbox.box import Box
from turnwise.sandbox.choice import CONTAINERS, Sandboxes
from turnwise.sandbox.containers import ContainerLodging, check_containers
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.groups import held_kinds
from turnwise.sandbox.leftovers import named
from turnwise.sandbox.limits import Allowed, BoxLimits
from turnwise.sandbox.overlay import can_lay_roots
from turnwise.sandbox.shell import Shell

STEP = "echo x >> log; wc -l log | cut -d ' ' -f 1"
TASK = Task("bench", "terminal", "Write.", {"files": {"in.txt": "x\n"}, "expect": {"log": "x\n"}})
THREADS = 32
"""Of ours that play; those who do not play wait in their sandboxes."""
ALONE = 100
"""Steps of each way to run a command, one after the other."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """A number of environments at once. Times in seconds, memory in bytes of one; ``living``: how many were there."""

    number: int
    living: int
    begin_s: float
    play_s: float
    end_s: float
    steps: int
    step_p50: float
    step_p95: float
    memory: float


def bench_environments(
    sandboxes: Sandboxes, numbers: Sequence[int], steps: int, say: Callable[[str], None]
) -> BenchReport:
    """Raises SandboxError where there is no sandbox, InfrastructureFailure where an environment fails."""
    name = sandboxes.check()
    with tempfile.TemporaryDirectory(prefix="turnwise-bench-") as place:
        folder = Path(place)
        layered = name == "bubblewrap" and can_lay_roots(folder)
        crowds = []
        for number in numbers:
            crowds.append(_crowd(sandboxes, folder, number, steps))
            say(f"{number} at once: {crowds[-1].living} lived, {number * steps / crowds[-1].play_s:.0f} steps/s")
        alone, notes = _alone(sandboxes, folder)
    header = ["at once", "lived together", "begun/s", "steps/s", "step p50 · p95 (ms)", "ended/s", "memory each"]
    held = ", ".join(held_kinds()) or "nothing"
    return BenchReport(
        "turnwise bench environments",
        alone,
        [
            f"{name}, {'with a root of their own' if layered else 'on the read-only programs of the machine'}, control "
            f"groups hold {held}. A step is `{STEP}`, {steps} in each environment, at most {THREADS} at a time.",
            "Memory is the proportional share (PSS) of all processes of the sandboxes, divided by their number.",
            *notes,
        ],
        [Grid("Environments at once", header, [_row(each) for each in crowds])],
    )


def _crowd(sandboxes: Sandboxes, folder: Path, number: int, steps: int) -> Crowd:
    made = [TerminalEnvironment(folder / named(), most_steps=steps + 2, sandboxes=sandboxes) for _ in range(number)]
    times: list[float] = []

    def play(one: TerminalEnvironment) -> None:
        for at in range(steps):
            started = time.perf_counter()
            observation, _ = one.step(run(STEP))
            times.append(time.perf_counter() - started)
            if not observation.text.startswith(f"{at + 1}\n"):
                raise SandboxError(f"step {at} said {observation.text[:200]!r}")

    try:
        with ThreadPoolExecutor(min(number, THREADS)) as pool:
            begin_s = _timed(lambda: list(pool.map(_begin, made)))
            living, memory = _living()
            play_s = _timed(lambda: list(pool.map(play, made)))
            end_s = _timed(lambda: list(pool.map(TerminalEnvironment.close, made)))
    finally:
        for one in made:
            one.close()
    times.sort()
    return Crowd(
        number,
        living,
        begin_s,
        play_s,
        end_s,
        steps,
        times[len(times) // 2],
        times[int(len(times) * 0.95)],
        memory / number,
    )


def _begin(one: TerminalEnvironment) -> None:
    one.reset(TASK)
    one.step(run("true"))


def _living() -> tuple[int, int]:
    """How many shells of sandboxes live below us, and the memory of all that belongs to them."""
    living = memory = 0
    for process in psutil.Process().children(recursive=True):
        try:
            memory += process.memory_full_info().pss
            living += process.name() in ("bash", "sh")
        except psutil.Error:  # it has just ended
            continue
    return living, memory


def _alone(sandboxes: Sandboxes, folder: Path) -> tuple[list[Figure], list[str]]:
    """What a step costs in each way to run one, one after the other."""
    limits, work = BoxLimits(), folder / "alone"
    work.mkdir()
    plain = _median(
        lambda: subprocess.run(["/bin/bash", "-c", STEP], cwd=work, capture_output=True, timeout=60, check=True)
    )
    beside = f"subprocess {plain * 1000:.1f} ms"
    ways: list[tuple[str, float]] = []
    shell = sandboxes.shell(GuestFolder(work), limits)
    try:
        shell.run("true")
        ways.append(("step in the shell that lasts", _median(lambda: shell.run(STEP))))
    finally:
        shell.close()
    notes: list[str] = []
    if sandboxes.check() == "bubblewrap":
        box = Box(GuestFolder(work), limits)
        ways.append(("step in a sandbox of its own", _median(lambda: box.run(STEP))))
    for program in CONTAINERS:
        try:
            check_containers(program, sandboxes.settings.image)
        except SandboxError:
            notes.append(f"No figure of {program}: it does not run here.")
            continue
        contained = Shell(
            ContainerLodging(program, sandboxes.settings.image, GuestFolder(work), limits, Allowed()), limits
        )
        try:
            contained.run("true")
            ways.append((f"step in a container of {program}", _median(lambda shell=contained: shell.run(STEP))))
        finally:
            contained.close()
    return [Figure(f"{what}, p50", f"{s * 1000:.1f} ms", beside, f"{s / plain:.2f}") for what, s in ways], notes


def _median(work: Callable[[], object]) -> float:
    return statistics.median(_timed(work) for _ in range(ALONE))


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _row(crowd: Crowd) -> list[str]:
    steps = crowd.number * crowd.steps / crowd.play_s
    return [
        str(crowd.number),
        str(crowd.living),
        f"{crowd.number / crowd.begin_s:.1f}",
        f"{steps:.0f}",
        f"{crowd.step_p50 * 1000:.1f} · {crowd.step_p95 * 1000:.1f}",
        f"{crowd.number / crowd.end_s:.1f}",
        f"{crowd.memory / 1e6:.1f} MB",
    ]
