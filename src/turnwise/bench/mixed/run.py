"""`turnwise bench mixed`: one server, a person who talks to it, and rollouts that come and go in turns.

The blocks with and without rollouts alternate, so that what else the machine does meanwhile is in both. Nothing is
trained while the person is there, as is the default; behind it the streams are, and each version says from what.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.bench.mixed import streams
from turnwise.bench.mixed.person import Waits, talk
from turnwise.bench.report import BenchReport, Figure
from turnwise.config import Config, load_config
from turnwise.demo.server import running_server
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.methods import PERSONAL

BLOCKS = 3
"""Of each kind."""
UNDER_WAY_S = 120.0
"""Longest wait until rollouts are under way."""
TRAINED_S = 900.0
"""Longest time for runs behind it, until each stream was learned from."""


def bench_mixed(settings: Config, minutes: float, parallel: int, seed: int) -> BenchReport:
    """The person's waits with and without rollouts, and what was learned of each stream."""
    rng = random.Random(seed)
    alone, beside = Waits(), Waits()
    short: list[str] = []
    with tempfile.TemporaryDirectory(prefix="turnwise-mixed-") as place:
        folder, home = Path(place), Path(place) / "home"
        tasks = streams.written_tasks(folder, streams.TRIED, rng)
        with running_server(home, _settings(settings)) as server:
            shown = streams.warm_start(home, folder)
            block = minutes * 60 / (2 * BLOCKS)
            talk(server, min(block, 20.0), rng, Waits())  # the first answers warm the engine up
            for number in range(BLOCKS):
                talk(server, block, rng, alone)
                with _rollouts(home, tasks, number, parallel) as playing:
                    _until_under_way(home, playing)
                    talk(server, block, rng, beside)
                    if playing.poll() is not None:
                        short.append(str(number + 1))
            ended = _finish(home, folder, rng, parallel)
            if short:
                ended.append(f"the rollouts of block {', '.join(short)} ended before it did")
            versions = _learned(home)
    return _report(settings, minutes, parallel, seed, alone, beside, ended, versions, shown)


def _settings(settings: Config) -> dict[str, dict[str, object]]:
    return {
        "model": {"path": settings.model.path},
        "train": {"when": "idle", "min_batch": 4},
        "skills": {"enabled": False},
        "gate": {"enabled": False},  # it holds a policy near the base model, which the warm start has left on purpose
        **{f"streams.{name}": streams.SETTINGS for name in streams.STREAMS},
    }


@contextlib.contextmanager
def _rollouts(home: Path, tasks: Path, number: int, parallel: int) -> Iterator[subprocess.Popen[bytes]]:
    """Rollouts in a process of their own until the block ends, more than the block has time for."""
    words = ["rollout", str(tasks), "--group", "4", "--parallel", str(parallel), "--run", f"block{number}"]
    command = [sys.executable, "-P", "-m", "turnwise", *words, "--home", str(home)]
    with (home / "rollout.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until_under_way(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a step of this block's rollouts was asked for."""
    until, before = time.monotonic() + UNDER_WAY_S, _steps(home)
    while _steps(home) == before:
        if process.poll() is not None or time.monotonic() > until:
            raise TurnwiseError(f"no rollout is under way: {(home / 'rollout.log').read_text()[-500:]}")
        time.sleep(0.2)


def _steps(home: Path) -> int:
    with contextlib.closing(Journal.open(load_config(None, {"home": home}))) as journal, journal.store.reading() as c:
        return int(c.exec_driver_sql("SELECT count(*) FROM turns WHERE step IS NOT NULL").scalar_one())


def _finish(home: Path, folder: Path, rng: random.Random, parallel: int) -> list[str]:
    """The person is gone: what there is is trained on, and runs of new tasks are played whole, until each stream was
    learned from. Gives what the runs said, and what failed: that is no reason to lose what was measured before."""
    notes: list[str] = []
    until = time.monotonic() + TRAINED_S
    for number in itertools.count():
        failed = _train(home)
        if not (missing := sorted({PERSONAL, *streams.STREAMS} - set().union(*_learned(home).values()))):
            break
        if time.monotonic() > until:
            notes.append(f"nothing of {', '.join(missing)} was learned from in {TRAINED_S:.0f} s {failed}".rstrip())
            break
        try:
            tasks = streams.written_tasks(folder, str(streams.FIRST_LAST + number), rng)
            words = ["rollout", str(tasks), "--group", "4", "--parallel", str(parallel), "--run", f"behind{number}"]
            said = streams.command(*words, home=home).strip().splitlines()
        except TurnwiseError as e:
            notes.append(f"what was played behind it failed ({e})")
            break
        notes.append(
            f"a run of new tasks: {next((line for line in said if line.startswith('mean reward')), 'it said nothing')}"
        )
    return notes


def _train(home: Path) -> str:
    """Train on what is ready; gives why nothing was, where there is nothing: more may be after the next run."""
    try:
        streams.command("train", "now", "--wait", "--limit-min", "10", home=home)
    except TurnwiseError as e:
        return f"({e})"
    return ""


def _learned(home: Path) -> dict[int, dict[str, Any]]:
    with contextlib.closing(Journal.open(load_config(None, {"home": home}))) as journal:
        return {v.number: journal.versions.learned_from(v.number) for v in journal.versions.all()}


def _report(
    settings: Config,
    minutes: float,
    parallel: int,
    seed: int,
    alone: Waits,
    beside: Waits,
    ended: list[str],
    versions: dict[int, dict[str, Any]],
    shown: int,
) -> BenchReport:
    figures = []
    for what, a, b in (("first token", alone.first, beside.first), ("whole answer", alone.whole, beside.whole)):
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            with_them, without = _quantile(b, share), _quantile(a, share)
            ratio = f"{with_them / without:.2f}" if without else ""
            beside_what = f"without rollouts {without:.2f} s"
            figures.append(Figure(f"a person's wait for the {what}, {name}", f"{with_them:.2f} s", beside_what, ratio))
    for number, found in versions.items():
        said = ", ".join(f"{name}: {_counted(of)}" for name, of in found.items())
        figures.append(Figure(f"version {number} learned from", said))
    notes = [
        f"{minutes:g} minutes in {BLOCKS} blocks without and {BLOCKS} with rollouts, {parallel} of them at a time, by "
        f"turns; {len(alone.whole)} and {len(beside.whole)} answers of a person, {alone.failed + beside.failed} of "
        f"them failed; seed {seed}, {settings.model.path}. The model had learned {shown} solutions of tasks of "
        f"{', '.join(streams.STREAMS)} before. Behind it what was ready was trained on; "
        f"{'; '.join(ended) or 'no further run was needed'}."
    ]
    return BenchReport("turnwise bench mixed", figures, notes)


def _quantile(values: list[float], share: float) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def _counted(of: dict[str, Any]) -> str:
    if "turns" in of:
        return f"{of['turns']} turns"
    rollouts = sum(len(group["trajectories"]) for group in of["groups"].values())
    return f"{len(of['groups'])} groups, {rollouts} rollouts"
