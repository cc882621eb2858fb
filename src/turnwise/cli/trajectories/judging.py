"""`turnwise judge collect` and `turnwise judge agreement`: verdicts on saved trajectories, and how good they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from turnwise.cli.options import ConfigFile, Home, Json, Set, out, print_json, read_config
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnwise.config import Config
    from turnwise.judges.trajectory.collecting import CollectedVerdict
    from turnwise.trajectories.record import SavedTrajectory


def judge_collect(
    file: Annotated[Path, typer.Argument(help="Trajectories, of `turnwise rollout --save` or `turnwise eval`.")],
    out_file: Annotated[Path, typer.Option("--out", help="Append a verdict a line; several judges share a file.")],
    by: Annotated[str, typer.Option(help="model (of judge.trajectory), or verifier (the tasks' own).")] = "model",
    name: Annotated[str | None, typer.Option("--as", help="What the judge is called; default: its model.")] = None,
    sft: Annotated[
        Path | None, typer.Option(help="Append prompt and reply of each here, as conversations for `turnwise sft`.")
    ] = None,
    sft_pictures: Annotated[
        bool,
        typer.Option("--sft-pictures", help="With --sft, the last screenshots, for a judge that sees, not their text."),
    ] = False,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Have a judge look at trajectories that ended; those that it has judged in the file already are left out."""
    from turnwise.files import ready_for_lines
    from turnwise.judges.trajectory.collecting import VERIFIER, collect, conversation, verdicts_in, verified
    from turnwise.trajectories.record import saved_trajectories

    if by not in ("model", VERIFIER):
        raise ConfigError(f"--by is model or {VERIFIER}, not {by!r}")
    if sft_pictures and sft is None:
        raise ConfigError("--sft-pictures says what --sft writes; give both")
    for place in (out_file, sft):
        if place is not None:
            ready_for_lines(place)
    called, ask = (VERIFIER, verified) if by == VERIFIER else _asking(read_config(config, home, sets))
    known, number, good = verdicts_in(out_file), 0, 0
    for saved, verdict in collect(saved_trajectories(file), known, name or called, ask):
        with out_file.open("a", encoding="utf-8") as lines:
            lines.write(f"{verdict.line()}\n")
        if sft is not None and (line := conversation(saved, verdict, sft_pictures)) is not None:
            with sft.open("a", encoding="utf-8") as lines:
                lines.write(f"{line}\n")
        number, good = number + 1, good + (verdict.success is True)
    out.print(f"{number} verdicts of {name or called}, {good} of success, in {out_file}", highlight=False, markup=False)


def _asking(settings: Config) -> tuple[str, Callable[[SavedTrajectory], CollectedVerdict | None]]:
    from turnwise.judges.trajectory.asking import TrajectoryJudge
    from turnwise.judges.trajectory.collecting import CollectedVerdict, label_of

    judge = TrajectoryJudge.from_config(settings)

    def ask(saved: SavedTrajectory) -> CollectedVerdict | None:
        if saved.trail is None:
            return None
        said = judge.judge(saved.trail)
        tokens = (said.prompt_tokens, said.completion_tokens)
        return CollectedVerdict(saved.session, judge.model, said.success, said.reply, label_of(saved), tokens)

    return judge.model, ask


def judge_agreement(
    file: Annotated[Path, typer.Argument(help="Verdicts of `turnwise judge collect`.")],
    teacher: Annotated[str | None, typer.Option(help="The judge that the others are held against as well.")] = None,
    as_json: Json = False,
) -> None:
    """Each judge's accuracy, precision, recall and F1 against the labels, and its agreement with a teacher."""
    from turnwise.errors import DataError
    from turnwise.judges.trajectory.collecting import agreement, verdicts_in

    if not file.is_file():
        raise DataError(f"{file} is no file; `turnwise judge collect` writes one with verdicts")
    verdicts = verdicts_in(file)
    if not verdicts:
        raise DataError(f"{file} has no verdict in it; `turnwise judge collect` writes them")
    found = agreement(verdicts, teacher)
    if as_json:
        print_json(found)
        return
    for against in ("labels", *(["teacher"] if teacher is not None else [])):
        title = "against the labels" if against == "labels" else f"against {teacher}"
        table = Table(
            "judge", "cases", "accuracy", "95 %", "precision", "recall", "F1", "kappa", "unreadable", title=title
        )
        for judge, row in found["judges"].items():
            if row[against] is not None:
                table.add_row(judge, *_cells(row[against]), str(row["unreadable"]))
        out.print(table)


def _cells(figures: dict[str, Any]) -> list[str]:
    interval = figures["accuracy_ci95"]
    return [
        str(figures["cases"]),
        _percent(figures["accuracy"]),
        "–" if interval is None else f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f}",
        *(_percent(figures[name]) for name in ("precision", "recall", "f1")),
        "–" if figures["kappa"] is None else f"{figures['kappa']:.2f}",
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
