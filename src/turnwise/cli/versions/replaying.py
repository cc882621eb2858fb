"""`turnwise replay`: what another judge or another method would have made of the same turns."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from turnwise.cli.options import ConfigFile, Home, Json, Set, err, out, print_json, read_config
from turnwise.cli.stopping import until_stopped
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.methods import METHODS

if TYPE_CHECKING:
    from turnwise.versions.replaying.replay import ReplayReport


def replay_command(
    method: Annotated[str | None, typer.Option("--method", help=f"One of {', '.join(METHODS)}.")] = None,
    judge: Annotated[str | None, typer.Option("--judge", help="One of signals, model, signals-then-model.")] = None,
    keep: Annotated[
        Path | None, typer.Option("--out", help="Keep the copy and its versions as this folder, a home of its own.")
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Judge and train a copy of the journal once more, otherwise, and show both outcomes side by side.

    Nothing is written to the home. --method, --judge and --set say what is otherwise; without any the same is done
    again. Answers are those that were given: what people would have said to others nobody knows.
    """
    from turnwise.versions.replaying.replay import replay

    original = read_config(config, home, None)
    changed = read_config(config, home, sets, **{"train.method": method, "judge.kind": judge})
    if changed.home != original.home:
        raise ConfigError("say which home is replayed with --home, not with --set")
    if not original.journal.url and not original.journal_path.exists():
        raise TurnwiseError(f"there is no journal in {original.home} yet; start `turnwise serve`, or see --home")
    with _quiet(), _folder(keep) as folder, until_stopped("stopping; the home is as it was") as stop:
        found = replay(original, changed, folder, stop, lambda text: err.print(text, markup=False, highlight=False))
    if as_json:
        print_json(found.as_json())
        return
    _show(found)
    if keep is not None:
        out.print(f"the copy is {keep}; `turnwise versions list --home {keep}`", highlight=False, soft_wrap=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """What judge and trainer log is not shown: the report says what they did."""
    logger = logging.getLogger("turnwise")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A new folder of the user's own, which is gone at the end where it is not to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="turnwise-replay-") as made:
            yield Path(made).resolve()
        return
    if keep.exists():
        raise TurnwiseError(f"{keep} is there already; give a folder that is not")
    keep.mkdir(mode=0o700, parents=True)
    yield keep.resolve()


def _show(found: ReplayReport) -> None:
    from turnwise.versions.replaying.replay import WORDS

    words = list(WORDS.values())
    verdicts = Table("verdicts before", *(f"now {word}" for word in words))
    for before in words:
        counts = [found.verdicts.get((before, after), 0) for after in words]
        if any(counts):
            verdicts.add_row(before, *(str(n) if n else "" for n in counts))
    out.print(verdicts)
    both = Table("", "before", "now")
    sides = (found.before, found.after)
    both.add_row("agrees with your own scores", *(f"{side.agreed} of {side.compared}" for side in sides))
    both.add_row("versions", *(str(len(side.versions)) for side in sides))
    both.add_row("turns they learned from", *(str(sum(v["turns"] for v in side.versions)) for side in sides))
    both.add_row("loss of the last", *(_number(side.versions[-1]["loss"] if side.versions else None) for side in sides))
    for name in found.before.figures:
        if name != "fault":
            both.add_row(name, *(_number(side.figures.get(name)) for side in sides))
    out.print(both)
    for note in found.notes:
        out.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"
