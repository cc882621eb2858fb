"""The run of MetaClaw-Bench: a model's days beside those of scripted agents; tables, a plot by days, and raw points."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing

from turnwise.access_tokens import load_or_make_token
from turnwise.bench.metaclaw.data import Kind, Workday, digest_of, read_days
from turnwise.bench.metaclaw.model_agent import ModelAgent, ModelAt
from turnwise.bench.metaclaw.play import BenchAgent, RoundPoint, play_day
from turnwise.bench.metaclaw.points import PlayedWith, PointsFile
from turnwise.bench.metaclaw.scripted import scripted_agents
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import Config
from turnwise.demo.server import running_server, termination_unwinds
from turnwise.errors import ConfigError
from turnwise.home import running_url
from turnwise.patterns import pattern
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.folder import delete_folder
from turnwise.types import MODEL_NAME

_UNFIT = pattern(r"[^A-Za-z0-9.-]")
CONTEXT = 8192
"""Tokens of a conversation at a server of ours, at least: half a day with what the tools give back."""
FLOORS = ("do-nothing", "select-all")
PROOFS = {"oracle": 1.0, "spoiler": 0.0}
"""Scripted agents, and the share of rounds that each passes while the machinery is right."""


@dataclass(frozen=True, slots=True)
class MetaclawOptions:
    """What to play. ``url`` None: the configured model in a server of its own, which learns with ``learn``;
    ``scripted``: only the agents that need no model. ``key_env`` names the variable with the key of ``url``."""

    data: Path
    out: Path
    days: str = ""
    url: str | None = None
    model: str | None = None
    key_env: str | None = None
    learn: bool = False
    scripted: bool = False
    steps: int = 10
    tokens: int = 700
    seed: int = 0


def bench_metaclaw(options: MetaclawOptions, config: Config, say: Callable[[str], None]) -> BenchReport:
    """Play what has not been played in the folder yet; gives the report over all of it.

    Raises BenchDataError for data or points that do not fit, SandboxError before anything is played where commands
    cannot be held, EngineError where the endpoint is down.
    """
    every = read_days(options.data)
    days = _chosen(every, options.days)
    if not options.scripted:
        check_machine()
    options.out.mkdir(parents=True, exist_ok=True)
    with _alone(options.out):
        played = _play(days, digest_of(every), options, config, say)
    _draw(played, days, options.out / "days.png")
    grids = [_table(played), _by_day(played, days)]
    return BenchReport("turnwise bench metaclaw", _proofs(played), _notes(days, played, options), grids)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep a second run out of the folder. Raises ConfigError."""
    lock = FileLock(out / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(f"another run plays in {out}; wait for it, or give another --out") from None
    try:
        yield
    finally:
        lock.release()


def _play(
    days: list[Workday], data: str, options: MetaclawOptions, config: Config, say: Callable[[str], None]
) -> dict[str, list[RoundPoint]]:
    """The points of every agent, the scripted ones first: these take a second."""
    played: dict[str, list[RoundPoint]] = {}
    with termination_unwinds():
        for agent in scripted_agents():
            played[agent.name] = [p for day in days for p in play_day(day, agent, _place(options, agent.name))]
        if not options.scripted:
            with _model_at(options, config, say) as at:
                played[at.label or at.model] = _play_model(ModelAgent(at), at, days, data, options, say)
    return played


def _chosen(days: list[Workday], names: str) -> list[Workday]:
    if not names:
        return days
    known = {day.id: day for day in days}
    if unknown := [name for name in names.split(",") if name not in known]:
        raise ConfigError(f"there is no day {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names.split(","))]


def _place(options: MetaclawOptions, agent: str) -> Path:
    """Where an agent's folder of the day lies while it is played."""
    return options.out / "work" / f"agent-{_UNFIT.sub('-', agent)[:80]}"


def _play_model(
    agent: BenchAgent, at: ModelAt, days: list[Workday], data: str, options: MetaclawOptions, say: Callable[[str], None]
) -> list[RoundPoint]:
    settings: dict[str, str | int | float | bool] = {
        "url": options.url or "own server", "steps": at.steps, "tokens": at.tokens, "seed": at.seed,
        "learn": options.learn,
    }  # fmt: skip
    path = options.out / f"{_UNFIT.sub('-', agent.name)[:80]}.jsonl"
    file = PointsFile(path, PlayedWith(agent.name, data, settings))
    whole = file.mended(days)

    def note(point: RoundPoint) -> None:
        file.add(point)
        result = "passed" if point.passed else f"not passed: {point.why}"
        say(f"{point.day} {point.round} ({point.seconds:.0f} s, {point.steps} steps): {result}")

    for number, day in enumerate(days, start=1):
        if day.id in whole:
            say(f"{day.id} ({number} of {len(days)}) is played already")
            continue
        say(f"{day.id} ({number} of {len(days)}), {sum(r.aside is None for r in day.rounds)} rounds")
        whole[day.id] = play_day(day, agent, _place(options, agent.name), note)
    return [point for day in days for point in whole[day.id]]


@contextlib.contextmanager
def _model_at(options: MetaclawOptions, config: Config, say: Callable[[str], None]) -> Iterator[ModelAt]:
    """The model that is asked, and its server where it is ours."""
    session = f"metaclaw-{os.getpid()}"
    made = partial(ModelAt, steps=options.steps, tokens=options.tokens, seed=options.seed)
    if options.url is None:
        home = (options.out / "home").resolve()
        delete_folder(home)
        say(f"starting a server with {config.model.path}")
        settings = {
            "model": {"path": str(config.model.path)},
            "engine": {"max_model_len": max(CONTEXT, config.engine.max_model_len)},
            "train": {"enabled": options.learn},
            "skills": {"evolve": False},  # what is measured is what the weights learn
        }
        with running_server(home, settings) as server:
            label = Path(config.model.path).name
            yield made(f"{server.url}/v1", MODEL_NAME, server.token, session, label)
        return
    if options.model in (*FLOORS, *PROOFS):
        raise ConfigError(f"{options.model} is what an agent without a model is called; give the model another name")
    if not options.model:
        raise ConfigError(f"say which model answers at {options.url}, with --model; at a turnwise it is {MODEL_NAME}")
    address = options.url.rstrip("/")
    if "/" not in address.partition("://")[2]:
        address += "/v1"
    yield made(address, options.model, _key(options, config, address), session)


def _key(options: MetaclawOptions, config: Config, address: str) -> str:
    """The key that an endpoint is asked with: the variable's, or this home's for its own gateway alone."""
    if given := os.environ.get(options.key_env or "TURNWISE_TOKEN"):
        return given
    if options.key_env:
        raise ConfigError(f"the variable {options.key_env} is not set; put the key of {options.url} into it")
    if running_url(config) == address.removesuffix("/v1") and config.server.auth:
        return load_or_make_token(config.token_path)
    return "none"


def _passed(points: Sequence[RoundPoint], kind: Kind | None = None) -> str:
    """Passed of all, and its share; of one kind of rounds, on their own denominator."""
    of = [point for point in points if kind is None or point.kind == kind]
    passed = sum(point.passed for point in of)
    return f"{passed} of {len(of)} ({passed / len(of):.1%})" if of else "–"


def _table(played: dict[str, list[RoundPoint]]) -> Grid:
    rows = []
    for name, points in played.items():
        share = f"{sum(point.share for point in points) / len(points):.1%}" if points else "–"
        rows.append([name, _passed(points, "file_check"), _passed(points, "multi_choice"), _passed(points), share])
    header = ["agent", "files complete", "choices exactly right", "rounds passed", "with single options counted"]
    return Grid("All days", header, rows)


def _by_day(played: dict[str, list[RoundPoint]], days: list[Workday]) -> Grid:
    rows = []
    for day in days:
        cells = []
        for name, points in played.items():
            if name not in PROOFS:
                of = [point for point in points if point.day == day.id]
                cells.append(f"{_fraction(of, 'file_check')} · {_fraction(of, 'multi_choice')}")
        aside = [asked.id for asked in day.rounds if asked.aside is not None]
        rows.append([day.id, *cells, ", ".join(aside) or "–"])
    names = [name for name in played if name not in PROOFS]
    return Grid("Files complete · choices exactly right, by day", ["day", *names, "not asked"], rows)


def _fraction(points: Sequence[RoundPoint], kind: Kind) -> str:
    of = [point for point in points if point.kind == kind]
    return f"{sum(point.passed for point in of)}/{len(of)}"


def _proofs(played: dict[str, list[RoundPoint]]) -> list[Figure]:
    figures = []
    for name, wanted in PROOFS.items():
        points = played[name]
        share = sum(point.passed for point in points) / len(points) if points else 0.0
        right = "the machinery is right" if share == wanted else "THE MACHINERY IS WRONG"
        figures.append(Figure(f"{name}: rounds passed", _passed(points), f"must be {wanted:.0%}", right))
    return figures


def _notes(days: list[Workday], played: dict[str, list[RoundPoint]], options: MetaclawOptions) -> list[str]:
    aside = [f"{day.id} {asked.id} ({asked.aside})" for day in days for asked in day.rounds if asked.aside is not None]
    notes = [
        "Choices count when exactly the right options are taken, files when the whole check is content; each on its "
        "own denominator. The last column gives a choice the share of its options that are rightly taken or left.",
        "Beside the agent stand two that do no work, and two that prove the machinery; none of these asks a model.",
    ]
    if aside:
        notes.append(f"{len(aside)} rounds are not asked and count nowhere: {'; '.join(aside)}.")
    steps = [point.steps for name, points in played.items() if name not in (*FLOORS, *PROOFS) for point in points]
    if steps:
        notes.append(
            f"Own agent with read, write and run; at most {options.steps} steps a round and {options.tokens} tokens a "
            f"step, temperature 0, seed {options.seed}, learning {'on' if options.learn else 'off'}; "
            f"{sum(steps) / len(steps):.1f} steps a round."
        )
    return notes


def _draw(played: dict[str, list[RoundPoint]], days: list[Workday], file: Path) -> None:
    """Share of rounds passed by days, files and choices apart; no window and no global state of matplotlib."""
    drawing = Drawing(figsize=(9, 5.4), dpi=150, layout="constrained")
    FigureCanvasAgg(drawing)
    kinds: list[tuple[Kind, str]] = [("file_check", "files complete"), ("multi_choice", "choices exactly right")]
    for axes, (kind, label) in zip(drawing.subplots(2, 1, sharex=True), kinds, strict=True):
        for name, points in played.items():
            shares = [_share([p for p in points if p.day == day.id and p.kind == kind]) for day in days]
            style = {"linestyle": "--", "alpha": 0.6} if name in (*FLOORS, *PROOFS) else {"linewidth": 2}
            axes.plot([day.id for day in days], shares, marker="o", markersize=3, label=name[:40], **style)
        axes.set_ylim(-0.05, 1.05)
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", rotation=45)
    drawing.axes[0].legend(frameon=False, ncols=3, fontsize="small")
    drawing.savefig(file)


def _share(points: Sequence[RoundPoint]) -> float:
    """NaN where a day has no such round: the plot then has a gap."""
    return sum(point.passed for point in points) / len(points) if points else float("nan")
