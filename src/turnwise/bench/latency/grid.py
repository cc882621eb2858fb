"""`turnwise bench serve`, the gateway: what it adds to an engine that answers at once, beside LiteLLM and no proxy.

Every cell of the grid (clients, prompt size, shape of the history) is measured through each arm right after the other,
in one run on one machine, with the same clients and the same engine. The result is the ratio of the proxies; the times
alone say as much of the machine.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from turnwise.bench.latency.arms import LITELLM, NONE, TURNWISE, Arm, Said, answer, open_arms
from turnwise.bench.latency.conversations import TURNS, Histories
from turnwise.bench.latency.litellm_peer import PEER
from turnwise.bench.latency.load import LoadResult, drive
from turnwise.bench.latency.tokenising import measure_tokenising
from turnwise.bench.processes import cpu_seconds
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import Config, cache_dir
from turnwise.errors import TurnwiseError
from turnwise.models import resolve_model

CLIENTS = (1, 8, 64, 256)
SIZES = (100, 2_000, 20_000, 200_000)
QUICK_CLIENTS = (1, 64)
QUICK_SIZES = (100, 20_000)
LARGE = 20_000
"""From this size on, a note says what share of the added time tokenising alone is."""
MAX_FAILED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid. A growing history opens with `size` bytes and grows for `TURNS` requests."""

    clients: int
    size: int
    growing: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm in one cell. `cpu` is the proxy's processor time a request, in seconds."""

    load: LoadResult
    cpu: float

    def first(self, percent: float) -> float:
        """A percentile of the time to the first token, in seconds."""
        return percentile(self.load.first, percent)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was seen."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(percent / 100 * len(ranked)))]


def bench_latency(config: Config, *, quick: bool, install_litellm: bool, seconds: float) -> BenchReport:
    """The whole grid, or with `quick` a part of it. Raises TurnwiseError when an arm does not start or fails."""
    model = Path(resolve_model(config.model.path))
    peer = PEER.install() if install_litellm else PEER.version()
    said = answer(model)
    sizes, clients = (QUICK_SIZES, QUICK_CLIENTS) if quick else (SIZES, CLIENTS)
    cells = [Cell(n, size, growing) for growing, size, n in itertools.product((True, False), sizes, clients)]
    results: dict[Cell, dict[str, Measured]] = {}
    alone = measure_tokenising(model, said, sizes)
    # In the cache folder, which is on a disk: a journal in a memory file system would cost nothing.
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=cache_dir(), prefix="bench-") as scratch,
        open_arms(model, said, Path(scratch), peer is not None) as arms,
    ):
        for arm in arms:
            _measure(arm, Cell(4, 1_000, growing=True), said, 1.0)  # warm up
        for cell in cells:
            results[cell] = {arm.name: _measure(arm, cell, said, seconds) for arm in arms}
    options = " --quick" if quick else ""
    missing = "not installed; `turnwise bench serve --litellm` installs it into an environment of its own"
    return BenchReport(
        command=f"turnwise bench serve --only gateway{options}",
        figures=_summary(results, peer is not None),
        grids=[_grid(results, growing, alone) for growing in (True, False)],
        notes=[
            f"Peer: LiteLLM proxy {peer or missing}. Each proxy is one process; all arms, the clients and the engine "
            "share the cores. The journal is on disk, a token is checked, token-exact capture is on.",
            f"Answers have {said.tokens} tokens with text, one write each. 'Added' is the arm's percentile less that "
            "of no proxy in the same cell. 'Growing': a history opens with so many bytes of messages and is sent again "
            f"with {TURNS - 1} answers and replies added one by one; 'single': every history is new. Each arm ran for "
            f"{seconds:g} s and then answered what was under way.",
            _tokenising_note(results, alone),
            _generator_note(results),
        ],
    )


def _measure(arm: Arm, cell: Cell, said: Said, seconds: float) -> Measured:
    bodies = Histories(cell.size, cell.growing, said.text)
    cpu = cpu_seconds(arm.pid) if arm.pid else 0.0
    load = drive(arm.target, bodies, clients=cell.clients, tokens=said.tokens, seconds=seconds)
    spent = cpu_seconds(arm.pid) - cpu if arm.pid else 0.0
    if not load.first or len(load.failures) > MAX_FAILED_SHARE * len(load.first):
        raise TurnwiseError(
            f"{arm.name} failed {len(load.failures)} of {len(load.first) + len(load.failures)} requests at "
            f"{cell.clients} clients and {cell.size} bytes; the first: {load.failures[:1]}"
        )
    return Measured(load, spent / len(load.first))


# -- telling --------------------------------------------------------------------------------------------------------


def _summary(results: dict[Cell, dict[str, Measured]], with_peer: bool) -> list[Figure]:
    """The goals in three lines: medians over the cells of turnwise beside LiteLLM."""
    if not with_peer:
        return []
    figures = []
    for growing in (True, False):
        rows = [(cell, arms) for cell, arms in results.items() if cell.growing == growing]
        shape = "growing histories" if growing else "single questions"
        for what, ratio, goal in (
            ("added time to the first token, p50", _added_ratio, "at most 0.25"),
            ("requests/s", _rate_ratio, "at least 4"),
            ("processor time a request", _cpu_ratio, ""),
        ):
            ratios = [ratio(arms) for _, arms in rows]
            span = f"{min(ratios):.2f} to {max(ratios):.2f}"
            figures.append(Figure(f"{shape}: {what}, turnwise : LiteLLM", span, goal, f"{median(ratios):.2f}"))
    return figures


def _grid(results: dict[Cell, dict[str, Measured]], growing: bool, alone: dict[tuple[int, bool], float]) -> Grid:
    """One shape's table. `alone` is the time of tokenising by itself, in seconds, by size and shape."""
    header = ["prompt", "clients"]
    header += ["added to first token, p50 · p95 · p99 (ms)", "LiteLLM", "ratio p50"]
    header += ["tokenising alone (ms)"]
    header += ["added per token (ms)", "LiteLLM"]
    header += ["requests/s", "LiteLLM", "no proxy", "ratio"]
    header += ["CPU a request (ms)", "LiteLLM"]
    rows = []
    for cell, arms in results.items():
        if cell.growing != growing:
            continue
        ours, peer, none = arms[TURNWISE], arms.get(LITELLM), arms[NONE]
        rows.append(
            [
                _bytes(cell.size),
                str(cell.clients),
                _added(ours, none),
                _added(peer, none) if peer else "–",
                f"{_added_ratio(arms):.2f}" if peer else "–",
                f"{alone[cell.size, growing] * 1000:.2f}",
                _per_token(ours, none),
                _per_token(peer, none) if peer else "–",
                f"{ours.load.requests_per_second:.0f}",
                f"{peer.load.requests_per_second:.0f}" if peer else "–",
                f"{none.load.requests_per_second:.0f}",
                f"{_rate_ratio(arms):.1f}" if peer else "–",
                f"{ours.cpu * 1000:.2f}",
                f"{peer.cpu * 1000:.2f}" if peer else "–",
            ]
        )
    return Grid("Growing histories" if growing else "Single questions", header, rows)


def _tokenising_note(results: dict[Cell, dict[str, Measured]], alone: dict[tuple[int, bool], float]) -> str:
    """What a gateway that keeps exact tokens cannot save, beside all that LiteLLM adds, which makes no tokens."""
    parts = []
    for cell, arms in results.items():
        if cell.clients > 1 or cell.size < LARGE:
            continue
        spent = alone[cell.size, cell.growing]
        part = f"{'growing' if cell.growing else 'single'}, {_bytes(cell.size)}: {spent * 1000:.1f} ms"
        if peer := arms.get(LITELLM):
            added = peer.first(50) - arms[NONE].first(50)
            part += f", {spent / added * 100:.0f} % of the {added * 1000:.1f} ms that LiteLLM adds (p50)"
        parts.append(part)
    return (
        "'Tokenising alone': the median time of the served model's own renderer, in the bench's process with nothing "
        "else running; of a growing history it renders only the new message. Every gateway that keeps exact tokens "
        f"pays it. With one client: {'; '.join(parts)}."
    )


def _generator_note(results: dict[Cell, dict[str, Measured]]) -> str:
    """How far the clients and the engine are from being the limit: the least and the usual headroom."""
    headroom = [
        arms[NONE].load.requests_per_second / max(m.load.requests_per_second for n, m in arms.items() if n != NONE)
        for arms in results.values()
    ]
    cost = [arms[NONE].load.generator_cpu / len(arms[NONE].load.first) * 1000 for arms in results.values()]
    return (
        f"The clients: straight to the engine they reached {min(headroom):.1f} to {max(headroom):.1f} times the "
        f"requests/s of the faster proxy in the same cell, at a median of {percentile(cost, 50):.2f} ms of processor "
        "time a request."
    )


def _added_ratio(arms: dict[str, Measured]) -> float:
    none = arms[NONE].first(50)
    return (arms[TURNWISE].first(50) - none) / (arms[LITELLM].first(50) - none)


def _rate_ratio(arms: dict[str, Measured]) -> float:
    return arms[TURNWISE].load.requests_per_second / arms[LITELLM].load.requests_per_second


def _cpu_ratio(arms: dict[str, Measured]) -> float:
    return arms[TURNWISE].cpu / arms[LITELLM].cpu


def _added(arm: Measured, none: Measured) -> str:
    return " · ".join(f"{(arm.first(p) - none.first(p)) * 1000:.1f}" for p in (50, 95, 99))


def _per_token(arm: Measured, none: Measured) -> str:
    return f"{(percentile(arm.load.per_token, 50) - percentile(none.load.per_token, 50)) * 1000:.2f}"


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1000 else f"{size // 1000} kB"
