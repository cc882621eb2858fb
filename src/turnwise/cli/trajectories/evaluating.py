"""`turnwise eval web`: a suite of tasks is played once, or several times, and its figures go to a folder."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import typer
from rich.table import Table

from turnwise.cli.environments.rollout import FORMS, SCRIPTED, environments_host, form_of, gateway_of
from turnwise.cli.options import ConfigFile, Home, Json, Set, out, print_json, read_config
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.types import MODEL_NAME

if TYPE_CHECKING:
    from turnwise.environments.actors import ModelActor, RecordedActor
    from turnwise.environments.rollout import Ended, GatewayAt, Play

eval_app = typer.Typer(help="Evaluate what is served; nothing is learned from it.", no_args_is_help=True)
KEPT, RUN, REPORT = "trajectories.jsonl", "run.json", "report.json"


@eval_app.callback()
def group() -> None:
    """Evaluate what is served; nothing is learned from it."""


@eval_app.command("web", epilog="Example: turnwise eval web suite.jsonl --out eval-1 --model turnwise@v3")
def eval_web(
    suite: Annotated[Path, typer.Argument(help="The tasks: JSON, one object a line (docs/web.md).")],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the figures; the same one goes on with its run.")],
    agent: Annotated[str, typer.Option(help="minimal (the served model); without one: oracle, nothing.")] = "minimal",
    model: Annotated[str, typer.Option(help="Whom the gateway is asked for, as turnwise@base.")] = MODEL_NAME,
    repeats: Annotated[int, typer.Option(min=1, max=64, help="How often each task is played.")] = 1,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Episodes at a time.")] = 2,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature.")] = 0.0,
    form: Annotated[str, typer.Option(help="calls, blocks, or auto: what the model is able to.")] = "auto",
    observe: Annotated[
        str | None,
        typer.Option(help="How pages are shown: text, screenshot, marks or both. Default: as the tasks say."),
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Play a suite of web tasks; success, lengths, signs of reasoning, faults and cost go to OUT/report.json."""
    from turnwise.cli.environments.observing import Observing
    from turnwise.cli.environments.outcomes import judge_of, saved_of
    from turnwise.cli.environments.progress import shown
    from turnwise.environments.actors import ModelActor, RecordedActor, ScriptedActor
    from turnwise.environments.kinds import check_oracles, kind_of
    from turnwise.environments.rollout import Play, Rollouts
    from turnwise.environments.tasks import read_tasks
    from turnwise.environments.transcript import instructions_of
    from turnwise.files import ready_for_lines, write_atomically
    from turnwise.journal import Journal
    from turnwise.trajectories.figures import run_figures
    from turnwise.trajectories.record import saved_trajectories, written_trajectory

    if agent not in ("minimal", *SCRIPTED) or form not in FORMS:
        raise ConfigError(f"--agent is one of minimal, {', '.join(SCRIPTED)}, and --form one of {', '.join(FORMS)}")
    read = read_tasks(suite)
    if others := sorted({task.environment for task in read} - {"web"}):
        raise ConfigError(f"{suite} has tasks of {others[0]}; `turnwise eval web` plays tasks of the web alone")
    observing = Observing(read, read_config(config, home, sets), observe, agent not in SCRIPTED)
    tasks, settings = observing.tasks, observing.settings
    kind_of("web").check_machine(settings)
    if agent == "oracle":
        check_oracles(tasks)
    judge, gateway = judge_of(settings, tasks), None if agent in SCRIPTED else gateway_of(settings)
    shape, kept, tag = form_of(settings, form), folder / KEPT, uuid.uuid4().hex[:6]
    ours = settings.streams.web
    limits = {"max_steps": ours.max_steps, "max_tokens": ours.max_tokens, "keep_pictures": ours.keep_pictures}
    said = {"agent": agent, "repeats": repeats, "observe": observe}
    if gateway is not None:
        said |= {"model": model, "temperature": temperature, "form": shape} | limits
    known = _run_of(folder, suite, said, lambda: model if gateway is None else _version_of(gateway, model))
    run, version = known["run"], known["version"]
    ready_for_lines(kept)
    done = {saved.session for saved in saved_trajectories(kept)} if kept.exists() else set()
    played: dict[str, tuple[ModelActor | RecordedActor, float]] = {}

    def player(play: Play) -> ModelActor | RecordedActor:
        kind = kind_of("web")
        if gateway is None:
            script = ScriptedActor(kind.oracle(play.task) if agent == "oracle" else ())
            made = RecordedActor(script, kind, play.task, shape, ours.keep_pictures)
        else:
            # A session of its own for each try; a side turn is recorded and never learned from.
            url, headers = f"{gateway.url}/s/{play.session}.{tag}/v1", {"X-Turn-Type": "side"}
            asked = {"temperature": temperature, "max_tokens": ours.max_tokens}
            told = instructions_of(kind, play.task, shape)
            made = ModelActor(url, gateway.agent, version, headers, told, kind.read, asked, ours.keep_pictures)
        played[play.session] = made, time.monotonic()
        return made

    def keep(ended: Ended) -> None:
        actor, begun = played.pop(ended.play.session, (None, None))
        if not ended.open:
            took = 0.0 if begun is None else time.monotonic() - begun
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(f"{written_trajectory(saved_of(ended, actor, round(took, 3)))}\n")

    every = [Play(run, task, index, repeats) for task in tasks for index in range(repeats)]
    plays = [play for play in every if play.session not in done]
    left = 0
    if plays:
        with (
            closing(Journal.open(settings)) as journal,
            closing(environments_host(settings, journal, parallel)) as host,
        ):
            rollouts = Rollouts(host, journal.environments, None, player, None, judge)
            who = f", played by {version}" if gateway is not None else ""
            out.print(f"run {run}: {len(plays)} episodes of {len(every)}{who}", highlight=False, markup=False)
            if observing.said is not None:
                out.print(observing.said, highlight=False, markup=False, soft_wrap=True)
            again = "the same command"
            left = len(plays) - sum(not each.open for each in shown(rollouts, plays, parallel, keep, again))
    figures = run_figures(list(saved_trajectories(kept))) if kept.exists() else run_figures([])
    report = {"run": run, "suite": suite.name, **said, "version": version, "form": shape, "figures": figures}
    write_atomically(folder / REPORT, json.dumps(report, indent=1).encode())
    if as_json:
        print_json(report)
    else:
        _print(figures)
        out.print(f"all of it: {folder / REPORT}", highlight=False, markup=False, soft_wrap=True)
    if left:
        raise TurnwiseError(f"{left} episodes are not done; the same command goes on with them")


def _version_of(gateway: GatewayAt, model: str) -> str:
    """What the whole run is played by: a version that is published meanwhile is another one. Raises TurnwiseError."""
    if model != MODEL_NAME:
        return model
    until = time.monotonic() + gateway.patience_s
    while True:
        try:
            ready = httpx.get(f"{gateway.url}/readyz", timeout=30, trust_env=False)
            ready.raise_for_status()
            number = int(ready.json()["version"])
            return f"{MODEL_NAME}@v{number}" if number else f"{MODEL_NAME}@base"
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as e:
            if time.monotonic() > until:
                why = f"the server at {gateway.url} is not ready ({str(e)[:200]}); see `turnwise doctor`"
                raise TurnwiseError(why) from e
        time.sleep(1.0)


def _run_of(folder: Path, suite: Path, asked: dict[str, Any], version: Callable[[], str]) -> dict[str, str]:
    """`run`, the name of the run in this folder, begun or gone on with, and the `version` that plays it, which is asked
    for where it begins. Raises ConfigError where it is another one."""
    from turnwise.environments.tasks import is_plain
    from turnwise.files import write_atomically

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"{folder} cannot be made a folder ({e.strerror}); give another --out") from None
    told = {**asked, "suite": hashlib.sha256(suite.read_bytes()).hexdigest()}
    place = folder / RUN
    try:
        known = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = None
    except (OSError, ValueError, RecursionError) as e:
        raise ConfigError(f"{place} cannot be read ({e}); give another --out") from None
    if known is None:
        known = {"run": f"eval-{uuid.uuid4().hex[:8]}", **told, "version": version()}
        try:
            write_atomically(place, json.dumps(known).encode())
        except OSError as e:
            raise ConfigError(f"{place} cannot be written ({e.strerror}); give another --out") from None
    elif not isinstance(known, dict) or not isinstance(name := known.get("run"), str) or not name or not is_plain(name):
        raise ConfigError(f"{place} is not of an evaluation; give another --out")
    elif differ := [key for key, value in told.items() if known.get(key) != value]:
        raise ConfigError(f"{folder} holds an evaluation with another {differ[0]}; give another --out")
    return {"run": str(known["run"]), "version": str(known.get("version"))}


def _print(figures: dict[str, Any]) -> None:
    table = Table("what", "figure", show_header=False, title=f"{figures['trajectories']} episodes")
    table.add_row("success", _rate(figures["success"]))
    table.add_row("success without aborted ones", _rate(figures["success_without_aborted"]))
    for level, rate in figures["success_by_level"].items():
        table.add_row(f"  of level {level}", _rate(rate))
    table.add_row("ended", ", ".join(f"{n} {how}" for how, n in figures["ended"].items()))
    table.add_row(
        "failed calls, by whose they are", ", ".join(f"{n} {b}" for b, n in figures["faults_of_calls"].items())
    )
    table.add_row("steps", _spread(figures["steps"]))
    table.add_row("tokens of an answer", _spread(figures["response_tokens"]))
    table.add_row("tokens of a trajectory", _spread(figures["trajectory_tokens"]))
    for sign, row in figures["reasoning"]["signs"].items():
        share = "–" if row["share"] is None else f"{row['share']:.1%} of answers"
        length = "" if row["mean_tokens"] is None else f", {row['mean_tokens']:.0f} tokens each"
        table.add_row(f"reasoning: {sign}", share + length)
    table.add_row(
        "cost", ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in figures["cost"].items() if n) or "none"
    )
    out.print(table)


def _rate(rate: dict[str, Any]) -> str:
    if rate["share"] is None:
        return "none"
    low, high = rate["ci95"]
    return f"{rate['share']:.1%} ({rate['hits']} of {rate['of']}; 95 %: {low:.1%} to {high:.1%})"


def _spread(spread: dict[str, Any]) -> str:
    if not spread["of"]:
        return "not measured"
    return f"{spread['mean']:.1f} on average, half up to {spread['p50']:g}, 90 % up to {spread['p90']:g}"
