"""`turnwise sessions` and `turnwise versions`: what was recorded, and what was learned from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from turnwise.cli.chat import chat_lines, session_lines
from turnwise.cli.options import (
    ConfigFile,
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
from turnwise.models import resolve_model

if TYPE_CHECKING:
    from turnwise.journal import Journal

sessions_app = typer.Typer(help="Recorded sessions.", no_args_is_help=True)
versions_app = typer.Typer(help="Published policy versions.", no_args_is_help=True)


@sessions_app.command("list", epilog="Example: turnwise sessions list --limit 10")
def sessions_list(
    config: ConfigFile = None,
    home: Home = None,
    limit: Annotated[int, typer.Option(min=1, help="Most sessions to show.")] = 50,
    as_json: Json = False,
) -> None:
    """The sessions last seen, newest first, with the first words of each and the client it came from."""
    from turnwise.cli.transcript import about

    whole = as_json or not out.is_terminal

    def read(journal: Journal) -> tuple[list[dict[str, Any]], dict[str, str]]:
        rows = journal.sessions.last_seen(limit, about)
        ids = [row["id"] for row in rows]
        return rows, dict(zip(ids, ids, strict=True)) if whole else journal.sessions.short_ids(ids)

    rows, shown = read_journal(read_config(config, home, None), read)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no session is recorded yet")
        return
    for line in session_lines(rows, shown, one_line_each=whole):
        out.print(line, soft_wrap=True)


@sessions_app.command("show", epilog="Example: turnwise sessions show session-6f3a91c2")
def sessions_show(
    session: Annotated[str, typer.Argument(help="Its id, or as much of its beginning as no other has.")],
    config: ConfigFile = None,
    home: Home = None,
    full: Annotated[bool, typer.Option("--full", help="Cut no long text short.")] = False,
    as_json: Json = False,
) -> None:
    """One session as a chat: what was said, called and given back, and the verdicts."""
    from turnwise.cli.transcript import Transcript

    def read(journal: Journal) -> tuple[dict[str, Any] | None, dict[str, str]]:
        found = journal.sessions.show(journal.sessions.find(session), Transcript().new)
        ids = [turn["id"] for turn in found["turns"]] if found else []
        return found, journal.turns.short_ids(ids) if out.is_terminal else dict(zip(ids, ids, strict=True))

    found, short = read_journal(read_config(config, home, None), read)
    if found is None:
        raise TurnwiseError(f"the turns of {session} were pruned; see `turnwise sessions list`")
    if as_json:
        print_json(found)
        return
    for text, style in chat_lines(found, short, full):
        out.print(Text(text, style=style), soft_wrap=True)


@versions_app.command("list", epilog="Example: turnwise versions list")
def versions_list(config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """Published versions, oldest first; the serving one is marked."""
    settings = read_config(config, home, None)
    versions, serving = read_journal(settings, lambda journal: (journal.versions.all(), journal.versions.latest()))
    if as_json:
        print_json([version_body(v) | {"serving": v.number == serving} for v in versions])
        return
    table = Table("version", "parent", "made", "turns", "loss", "gate")
    table.add_row("0" + (" (serving)" if serving == 0 else ""), "", "", "", "", "the model as it came")
    for v in versions:
        mark = " (serving)" if v.number == serving else ""
        loss = f"{v.metrics['loss']:.4f}" if "loss" in v.metrics else ""
        gate = "pruned" if v.pruned else _came_of(v.source) if v.source else _passed(v.gate)
        table.add_row(f"{v.number}{mark}", str(v.parent), ago(v.created_at), str(len(v.turn_ids)), loss, escape(gate))
    out.print(table)


@versions_app.command("show", epilog="Example: turnwise versions show 3")
def versions_show(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """One version as JSON: parent, turns or file it was trained on, metrics, gate."""
    version = read_journal(read_config(config, home, None), lambda journal: journal.versions.get(number))
    if version is None:
        raise TurnwiseError(f"there is no published version {number}; see `turnwise versions list`")
    print_json(version_body(version))


@versions_app.command("rollback", epilog="Example: turnwise versions rollback 2")
def versions_rollback(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """Serve an earlier version again (0: the base model); what is learned from now on builds on it."""
    change_journal(read_config(config, home, None), lambda journal: journal.versions.serve(number))
    out.print(f"{f'version {number}' if number else 'the base model'} serves from now on", highlight=False)


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
    from turnwise.training.export import export_adapter, export_merged

    base, source = resolve_model(settings.model.path), None if version is None else Path(version.path)
    if not merged and source is not None:
        export_adapter(source, base.name if isinstance(base, Path) else base, folder)
    elif isinstance(base, Path):
        export_merged(source, base, folder, bfloat16=bfloat16)
    else:
        raise TurnwiseError(f"'{base}' is the name of a model on a hub; merging takes the folder that holds it")
    what = "the base model" if number == 0 else f"version {number}"
    out.print(f"{what} is in {folder}", highlight=False, soft_wrap=True)


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
