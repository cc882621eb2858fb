"""`turnwise versions`: what was learned, what of it serves, and what goes out of the house."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from turnwise.cli.options import (
    ConfigFile,
    DryRun,
    Home,
    Json,
    Set,
    ago,
    change_journal,
    out,
    print_json,
    read_config,
    read_journal,
)
from turnwise.errors import TurnwiseError
from turnwise.judges.sources.visible import visible
from turnwise.models import resolve_model

versions_app = typer.Typer(help="Published policy versions.", no_args_is_help=True)


@versions_app.command("list", epilog="Example: turnwise versions list")
def versions_list(config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """Published versions, oldest first; the serving one is marked."""
    settings = read_config(config, home, None)
    versions, serving, promoted = read_journal(
        settings,
        lambda journal: (journal.versions.all(), journal.versions.latest(), journal.versions.promotions()),
    )
    why = {one["version"]: one["reason"] for one in promoted}
    if as_json:
        print_json(
            [version_body(v) | {"serving": v.number == serving, "promoted": why.get(v.number)} for v in versions]
        )
        return
    table = Table("version", "parent", "made", "turns", "loss", "gate")
    table.add_row("0" + (" (serving)" if serving == 0 else ""), "", "", "", "", "the model as it came")
    for v in versions:
        mark = " (serving)" if v.number == serving else ""
        loss = f"{v.metrics['loss']:.4f}" if "loss" in v.metrics else ""
        gate = "pruned" if v.pruned else _came_of(v.source) if v.source else _passed(v.gate)
        gate += f"; promoted: {visible(why[v.number])}" if v.number in why else ""
        table.add_row(f"{v.number}{mark}", str(v.parent), ago(v.created_at), str(len(v.turn_ids)), loss, escape(gate))
    if (held := _held(settings.versions_dir)) is not None:
        why = "refused: " + visible("; ".join(map(str, held["gate"]["reasons"])))
        table.add_row("held", str(held["parent"]), ago(held["created_at"]), str(len(held["turn_ids"])), "", escape(why))
    out.print(table)


@versions_app.command("show", epilog="Example: turnwise versions show 3")
def versions_show(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """One version as JSON: parent, turns or file it was trained on, metrics, gate, and why a person promoted it.

    `learned_from` has each stream: how many turns were a person's, and of rollouts the groups and their trajectories.
    """
    version, promoted, streams = read_journal(
        read_config(config, home, None),
        lambda journal: (
            journal.versions.get(number),
            journal.versions.promotions(),
            journal.versions.learned_from(number),
        ),
    )
    if version is None:
        raise TurnwiseError(f"there is no published version {number}; see `turnwise versions list`")
    why = [one for one in promoted if one["version"] == number]
    print_json(version_body(version) | {"learned_from": streams, "promoted": why})


@versions_app.command("rollback", epilog="Example: turnwise versions rollback 2")
def versions_rollback(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """Serve an earlier version again (0: the base model); what is learned from now on builds on it."""
    change_journal(read_config(config, home, None), lambda journal: journal.versions.serve(number))
    out.print(f"{f'version {number}' if number else 'the base model'} serves from now on", highlight=False)


@versions_app.command("promote", epilog='Example: turnwise versions promote 4 --reason "better at German"')
def versions_promote(
    which: Annotated[str, typer.Argument(help="A published version, older or newer than the serving one, or 'held'.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept and shown by `versions list` and `show`.")],
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Make a version the serving one by your own judgement, with the reason kept.

    `rollback` undoes: it goes back without a word, and also to the base model. `promote` decides: any version that was
    published can be made to serve, one that was left by a rollback as well, and with 'held' what the gate refused last:
    its turns that still wait count as learned then. Its folder is read first: one that is damaged, or of another base
    model, is refused.
    """
    from turnwise.versions.promoting import promote, promote_held

    settings = read_config(config, home, sets)
    if which == "held":
        number, before = change_journal(settings, lambda journal: promote_held(journal, settings, reason))
    elif which.isdecimal() and len(which) < 10:
        number = int(which)
        before = change_journal(settings, lambda journal: promote(journal, settings, number, reason))
    else:
        raise TurnwiseError(f"{which!r} is no version: give its number, or 'held'")
    was = f"version {before}" if before else "the base model"
    out.print(f"version {number} serves from now on, in place of {was}", highlight=False)


@versions_app.command("export", epilog="Example: turnwise versions export 3 ./my-model --merged")
def versions_export(
    number: Annotated[int, typer.Argument(help="The version; 0, the base model, only with --merged.")],
    folder: Annotated[Path, typer.Argument(help="Where to; it must not be there yet.")],
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    merged: Annotated[bool, typer.Option("--merged", help="The whole model; without it, its PEFT adapter.")] = False,
    bfloat16: Annotated[
        bool, typer.Option("--bfloat16", help="Half the size; rounds a part of what was learned away.")
    ] = False,
) -> None:
    """Write a version for use elsewhere: a PEFT adapter, or a model folder in safetensors with it merged in."""
    settings = read_config(config, home, sets)
    if folder.exists():
        raise TurnwiseError(f"{folder} is there already; give a folder that is not")
    if bfloat16 and not merged:
        raise TurnwiseError("an adapter goes out as it is; --bfloat16 is for --merged")
    if number == 0 and not merged:
        raise TurnwiseError("version 0 is the base model and has no adapter; say --merged for the whole model")
    version = read_journal(settings, lambda journal: journal.versions.get(number)) if number else None
    if number and version is None:
        raise TurnwiseError(f"there is no published version {number}; see `turnwise versions list`")
    if version is not None and version.pruned:
        raise TurnwiseError(f"the weights of version {number} were pruned; see `turnwise versions list`")
    from turnwise.models.identity import refuse_folder_of_other_base
    from turnwise.training.export import export_adapter, export_merged

    base, source = resolve_model(settings.model.path), None if version is None else Path(version.path)
    if source is not None:
        refuse_folder_of_other_base(number, source, base)
    if not merged and source is not None:
        export_adapter(source, base.name if isinstance(base, Path) else base, folder)
    elif isinstance(base, Path):
        export_merged(source, base, folder, bfloat16=bfloat16)
    else:
        raise TurnwiseError(f"'{base}' is the name of a model on a hub; merging takes the folder that holds it")
    what = "the base model" if number == 0 else f"version {number}"
    out.print(f"{what} is in {folder}", highlight=False, soft_wrap=True)


@versions_app.command("prune", epilog="Example: turnwise versions prune --keep 20 --dry-run")
def versions_prune(
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep, beside those in use.")],
    dry_run: DryRun = False,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Delete the weights of old versions; what is known of them stays."""
    from turnwise.journal.deletion.retention import prune_versions

    settings = read_config(config, home, None)
    going = change_journal(settings, lambda journal: prune_versions(journal, keep, dry_run))
    if as_json:
        print_json({"versions": going})
        return
    said = ", ".join(map(str, going)) or "none"
    out.print(f"versions whose weights {'would go' if dry_run else 'are deleted'}: {said}", highlight=False)


def _held(versions: Path) -> dict[str, Any] | None:
    """What is known of the last candidate that the gate refused; None where there is none, or it cannot be read."""
    try:
        told = json.loads((versions / "held" / "meta.json").read_text(encoding="utf-8"))
        return told if {"gate", "parent", "created_at", "turn_ids"} <= told.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _passed(gate: dict[str, Any]) -> str:
    """What the gate said of a published version."""
    part, missing = gate.get("alpha", 1.0), gate.get("unmeasured") or []
    said = "not asked" if gate.get("skipped") else "passed" if part == 1 else f"passed with {part:g} of the step"
    return f"{said}; not measured: {', '.join(missing)}" if missing else said


def _came_of(source: dict[str, Any]) -> str:
    """The file of a fine-tuning, for a line."""
    return f"not asked: fine-tuned on {source['file']} (sha256 {source['sha256'][:12]}…)"


def version_body(version: Any) -> dict[str, Any]:
    names = ("number", "parent", "path", "created_at", "metrics", "gate", "turn_ids", "pruned", "source")
    return {name: getattr(version, name) for name in names}
