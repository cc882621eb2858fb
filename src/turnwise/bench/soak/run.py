"""Plays a soak from its beginning to its report: stage, load, faults, a quiet end, checks, and what to tell."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from turnwise.bench.report import BenchReport, Figure
from turnwise.bench.soak import checks
from turnwise.bench.soak.checks import Check
from turnwise.bench.soak.clock import Clock
from turnwise.bench.soak.disk import small_disk
from turnwise.bench.soak.faults import Faults
from turnwise.bench.soak.ledger import Ledger
from turnwise.bench.soak.load import Load
from turnwise.bench.soak.memory import Growth, Memory, draw, growth_since
from turnwise.bench.soak.program import LOOPS, Program, wait_for
from turnwise.config import load_config
from turnwise.demo.server import running_server, termination_unwinds
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal

QUICK_MINUTES = 2.5
CLIENTS = 6
WARM_UP_S = 8.0
SETTLE_LIMIT_S = 240.0
SETTINGS: dict[str, dict[str, object]] = {
    "server": {"request_timeout_s": 60, "engine_stall_s": 20, "engine_return_s": 40},
    "engine": {"threads": 1, "max_model_len": 1024, "kv_cache_mb": 64},
    "sessions": {"idle_close_s": 60},
    "judge": {"lease_s": 10, "retry_s": 1},
    "train": {
        "threads": 1,
        "min_batch": 4,
        "max_batch": 8,
        "minibatch": 4,
        "max_age_s": 60,
        "max_staleness": 1000,
        "lora_rank": 4,
        "lease_s": 10,
    },
    "gate": {"enabled": False},
    "skills": {"evolve": False},
}
"""Small batches, short leases and no gate, so that half an hour has as many versions and recoveries as months have."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """What to play. ``model`` is a folder or the name of the embedded model."""

    model: str
    out: Path
    minutes: float = 30.0
    quick: bool = False
    seed: int = 0

    @property
    def seconds(self) -> float:
        return (QUICK_MINUTES if self.quick else self.minutes) * 60

    @property
    def command(self) -> str:
        return "turnwise bench soak" + (" --quick" if self.quick else "")


@dataclass
class Soaked:
    """What is known when the program has ended."""

    ledger: Ledger
    memory: Memory
    calm_s: float
    serving: int | None
    answered_by: int | None
    settled: list[str]
    home_mb: float
    versions: int = 0
    growth: list[Growth] = field(default_factory=list)


def bench_soak(options: SoakOptions, say: Callable[[str], None]) -> tuple[BenchReport, list[str]]:
    """Play it; gives the report and what was wrong. Raises TurnwiseError when the program cannot be started at all.

    The out folder gets memory.png, ledger.json, serve.log and, where something was wrong, the journal.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ("memory.png", "ledger.json", "serve.log", "journal.db"):
        (options.out / name).unlink(missing_ok=True)
    place = options.out / "disk"
    if place.is_mount():
        raise TurnwiseError(f"{place} is still mounted, by another soak or a dead one; end it, or umount it")
    shutil.rmtree(place, ignore_errors=True)
    with termination_unwinds(), contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        disk = stack.enter_context(small_disk(place))
        clock = Clock(options.out / "clock")
        environment = {**os.environ, **clock.environment}
        home = place.resolve() / "home"
        try:
            with running_server(home, {"model": {"path": options.model}, **SETTINGS}, environment) as server:
                program = Program(server, home, environment)
                soaked = _soak(options, program, lambda ledger: Faults(
                    program, ledger, disk, clock, options.seed, options.quick
                ), say)  # fmt: skip
        finally:
            with contextlib.suppress(OSError):
                shutil.copy(home / "serve.log", options.out / "serve.log")
        say("reading the journal")
        found = _checked(soaked, home, options.out)
    draw(soaked.memory.samples, soaked.ledger, soaked.calm_s, options.out / "memory.png")
    _write_ledger(soaked, found, options.out / "ledger.json")
    faults = [check.summary() for check in found if check.faults]
    return _report(options, soaked, found), faults


def _soak(
    options: SoakOptions, program: Program, faults_for: Callable[[Ledger], Faults], say: Callable[[str], None]
) -> Soaked:
    ledger = Ledger()
    memory = Memory(program, ledger)
    memory.start()
    load = Load(program.server.url, program.server.token, program.person, ledger, clients=CLIENTS, seed=options.seed)
    load.start()
    try:
        time.sleep(WARM_UP_S)
        say(f"soaking for {options.seconds / 60:.1f} minutes")
        calm_s = faults_for(ledger).play(options.seconds)
        load.stop()
    finally:
        load.stop(limit_s=0)  # when the soak itself is ended, nobody waits for answers
    if load.failure is not None:
        raise TurnwiseError(f"the clients of the soak failed: {load.failure!r}") from load.failure
    say("letting it come to rest")
    settled = _settle(program)
    serving, answered_by = _who_serves(program)
    memory.stop()
    home_mb = sum(file.stat().st_size for file in program.home.glob("**/*") if file.is_file()) / 1e6
    return Soaked(ledger, memory, calm_s, serving, answered_by, settled, home_mb)


def _settle(program: Program) -> list[str]:
    """Wait until nothing is left to judge and the trainer goes on; gives what is left, in words.

    A trainer may have more samples than it gets through in this time: it is enough that it ends a batch.
    """
    last: dict[str, Any] = {}
    first: list[int] = []

    def at_rest() -> bool:
        status = program.status()
        if status is None:
            return False
        last.update(status)
        is_open = status["batches"].get("open", 0)
        ended = sum(status["batches"].values()) - is_open
        first.append(ended)
        trained = ended > first[0] or (is_open == 0 and status["samples_ready"] < 4)
        return status["turns"]["judging"] + status["turns"]["served"] == 0 and trained

    if wait_for(at_rest, SETTLE_LIMIT_S):
        time.sleep(2)  # the gateway looks for a new version a few times a second
        return []
    if not last:
        return ["the status does not answer"]
    return [f"turns {last['turns']}, batches {last['batches']}, ready {last['samples_ready']}, loops {last['loops']}"]


def _who_serves(program: Program) -> tuple[int | None, int | None]:
    """Which version serves, and which one answers; asked again where another was published in between."""

    def serving() -> int | None:
        status = program.status()
        return None if status is None else status["version"]["number"]

    before, answered_by = serving(), _who_answers(program)
    for _ in range(5):
        after = serving()
        if after == before:
            break
        before, answered_by = after, _who_answers(program)
    return before, answered_by


def _who_answers(program: Program) -> int | None:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    headers = {"Authorization": f"Bearer {program.server.token}", "User-Agent": "soak-end"}
    with contextlib.suppress(httpx.HTTPError):
        url = f"{program.server.url}/v1/chat/completions"
        answer = httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)
        if answer.status_code == 200:
            return int(answer.headers["x-turnwise-version"])
    return None


def _checked(soaked: Soaked, home: Path, out: Path) -> list[Check]:
    journal = Journal.open(load_config(overrides={"home": home}))
    try:
        kept = checks.read(journal)
    finally:
        journal.close()
    ledger = soaked.ledger
    soaked.versions = len(kept.versions)
    soaked.growth = growth_since(soaked.memory.samples, soaked.calm_s)
    found = [
        checks.answers_are_kept(ledger.asked, kept),
        checks.answers_are_kept_once(ledger.asked, kept),
        checks.trained_once(kept),
        checks.batches_ended(kept),
        checks.nothing_hung(ledger.asked),
        checks.refusals_are_announced(ledger),
        checks.everything_recovered(ledger),
        checks.last_version_serves(ledger, kept, soaked.serving, soaked.answered_by),
        checks.journal_is_whole(kept),
        checks.it_learned(kept),
        checks.memory_is_flat(soaked.growth),
        Check("work left undone", 1, soaked.settled),
    ]
    if any(check.faults for check in found):
        shutil.copy(home / "journal.db", out / "journal.db")
    return found


def _write_ledger(soaked: Soaked, found: list[Check], file: Path) -> None:
    ledger = soaked.ledger
    told = {
        "checks": [asdict(check) for check in found],
        "phases": [asdict(phase) for phase in ledger.phases],
        "rollbacks": [asdict(rollback) for rollback in ledger.rollbacks],
        "asked": [asdict(asked) for asked in ledger.asked],
        "side": ledger.side,
    }
    file.write_text(json.dumps(told, indent=1), encoding="utf-8")


def _report(options: SoakOptions, soaked: Soaked, found: list[Check]) -> BenchReport:
    ledger = soaked.ledger
    asked = ledger.asked
    whole = sum(1 for a in asked if a.whole)
    retried = sum(1 for a in asked if a.retried)
    wires = Counter(a.wire for a in asked if a.whole)
    refused = Counter(str(a.status or "broken off") for a in asked if not (a.whole or a.hung_up))
    kinds = Counter(f"{p.kind} {p.about}" if p.about in LOOPS else p.kind for p in ledger.phases)
    back = [p.ended_s - p.began_s for p in ledger.phases if p.kind == "kill" and p.ended_s is not None]
    figures = [
        Figure("requests", f"{len(asked)}", f"{retried} retries, {sum(1 for a in asked if a.hung_up)} hang-ups"),
        Figure("answers", f"{whole}", ", ".join(f"{n} {wire}" for wire, n in sorted(wires.items()))),
        Figure("refused or broken off, then asked again", f"{refused.total()}", _counted(refused)),
        Figure("versions published and swapped in", f"{soaked.versions}"),
        Figure("faults made", f"{kinds.total()}", _counted(kinds)),
    ]
    if back:
        figures.append(Figure("from a kill to ready again", f"{max(back):.1f} s at most", f"{len(back)} kills"))
    figures += [Figure(check.name, f"{len(check.faults)}", f"of {check.looked_at}") for check in found]
    figures += [
        Figure(
            f"memory of the {g.loop}",
            f"{g.first_mb:.0f} → {g.last_mb:.0f} MB",
            f"{g.mb_per_hour:+.0f} MB an hour over {g.seconds / 60:.1f} minutes"
            + ("" if g.judged else ", too short to judge"),
        )
        for g in soaked.growth
    ]
    figures.append(Figure("size of the home at the end", f"{soaked.home_mb:.0f} MB"))
    notes = [
        f"{options.seconds / 60:g} minutes, seed {options.seed}, model {Path(options.model).name}, {CLIENTS} clients; "
        "small batches and short leases, so that much happens. Memory is the proportional set size in the second "
        "part, in which nothing is killed: medians of the first and the last third after a warm-up.",
        *(f"Not done: {what}." for what in ledger.not_done),
        *(f"WRONG: {check.summary()}" for check in found if check.faults),
    ]
    return BenchReport(options.command, figures, notes)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n} × {what}" for what, n in counts.most_common())
