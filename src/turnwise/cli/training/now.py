"""`turnwise train now`: asks the trainer that runs to train at once, and may wait for what comes of it."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, Home, Set, change_journal, out, read_config, read_journal
from turnwise.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.journal import Journal

train_app = typer.Typer(help="Training of weights.", no_args_is_help=True)
POLL_S = 0.5


@train_app.command("now", epilog="Example: turnwise train now --wait")
def train_now(
    wait: Annotated[bool, typer.Option("--wait", help="Show how far it is, until it is done.")] = False,
    limit_min: Annotated[float, typer.Option(min=0.1, max=1440, help="With --wait: minutes to wait at most.")] = 60.0,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Train at once on the samples that are ready, also beside you and with less than a whole batch."""
    from turnwise.schedule.asked import ask_to_train
    from turnwise.schedule.telling import waiting

    settings = read_config(config, home, sets)
    figures = read_journal(settings, lambda journal: journal.status.figures())
    ready, begun = figures["samples_ready"], figures["batches"].get("open", 0)
    groups = figures["groups"].get("ready", 0)
    if never := _never(settings, figures):
        raise TurnwiseError(f"nothing is trained: {never}")
    if not ready and not begun and not groups:
        judging = figures["turns"].get("waiting", 0) + figures["turns"].get("judging", 0)
        raise TurnwiseError(f"{waiting(settings, 0)}; {judging} turns wait for what is said to them, or for the judge")
    change_journal(settings, ask_to_train)
    there = waiting(settings, ready) if ready or not groups else f"{groups} groups of rollouts are whole"
    said = "a step that was begun goes on" if begun else f"{there}; training begins now"
    _say(said if wait else f"{said}. `turnwise status` shows how far it is.")
    if wait:
        with closing(_open(settings)) as journal:
            _say(_waited(journal, limit_min * 60))


def _never(settings: Config, figures: dict[str, Any]) -> str | None:
    """Why no trainer would ever take up the request, and what to do; None where one may."""
    from turnwise.loops.states import read_states
    from turnwise.schedule.telling import trainer_runs, why_never

    states = read_states(settings.home)
    if why := why_never(settings, states):
        return f"{why} (the home is {settings.home})"
    if trainer_runs(figures["loops"], states):
        return None
    return f"no trainer runs for the home {settings.home}; start `turnwise serve`, or see --home"


def _open(settings: Config) -> Journal:
    from turnwise.journal import Journal

    return Journal.open(settings)


def _waited(journal: Journal, limit_s: float) -> str:
    """What came of the request, with a line for each phase meanwhile. Raises TurnwiseError when it takes too long.

    There is one run for all who ask: where another request took the place of this one, as after a trainer that was
    silent for ten minutes, what comes of that one is what comes of this one.
    """
    from turnwise.schedule.asked import train_request
    from turnwise.schedule.telling import SILENT_S

    until, shown = time.monotonic() + limit_s, ""
    while time.monotonic() < until:
        request = train_request(journal)
        if request is None:
            raise TurnwiseError("nobody's request to train is in the journal any more; see `turnwise status`")
        if request.step == "done":
            return f"done: {request.said}."
        if not request.open:
            raise TurnwiseError("no trainer has taken it up for ten minutes; see `turnwise doctor`")
        state, ago = journal.status.last("trainer") or ({}, 0.0)
        phase = str(state.get("state", "")) if request.step == "training" and ago < SILENT_S else ""
        if phase and phase != shown:
            shown = phase
            of = f" {state['samples']} samples" if "samples" in state else ""
            _say(f"{phase}{of}")
        time.sleep(POLL_S)
    raise TurnwiseError(f"it is not done after {limit_s / 60:g} minutes, and goes on; see `turnwise status`")


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
