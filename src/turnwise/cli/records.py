"""`turnwise sessions` and `turnwise versions`: what was recorded, and what was learned from it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from turnwise.cli.options import ConfigFile, Home, Json, ago, change_journal, out, read_config, read_journal
from turnwise.errors import TurnwiseError

sessions_app = typer.Typer(help="Recorded sessions.", no_args_is_help=True)
versions_app = typer.Typer(help="Published policy versions.", no_args_is_help=True)


@sessions_app.command("list")
def sessions_list(
    config: ConfigFile = None,
    home: Home = None,
    limit: Annotated[int, typer.Option(min=1, help="Most sessions to show.")] = 50,
    as_json: Json = False,
) -> None:
    """The sessions last seen, newest first."""
    rows = read_journal(read_config(config, home, None), lambda journal: journal.list_sessions(limit))
    if as_json:
        out.print_json(json.dumps(rows))
        return
    table = Table("session", "known by", "turns", "trained", "last seen", "closed")
    for row in rows:
        table.add_row(
            row["id"],
            row["source"],
            str(row["turns"]),
            str(row["trained"]),
            ago(row["last_seen_at"]),
            row["close_reason"] or "open",
        )
    out.print(table)


@sessions_app.command("show")
def sessions_show(session_id: str, config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """One session: its turns, what came back, and the verdicts."""
    session = read_journal(read_config(config, home, None), lambda journal: journal.show_session(session_id))
    if session is None:
        raise TurnwiseError(f"there is no session {session_id}; see `turnwise sessions list`")
    if as_json:
        out.print_json(json.dumps(session))
        return
    for turn in session["turns"]:
        state = turn["state"] + (f" ({turn['exclusion']})" if turn["exclusion"] else "")
        out.print(f"\n[bold]turn {turn['index']}[/]  {turn['kind']}, version {turn['version']}, {state}  {turn['id']}")
        for message in turn["added"]:
            out.print(f"  {message['role']}: {message['content']}", markup=False, highlight=False)
        if turn["answer"]:
            out.print(f"  assistant: {turn['answer'].get('content')}", markup=False, highlight=False)
        for verdict in turn["verdicts"]:
            hint = f"; hint: {verdict['hint']}" if verdict["hint"] else ""
            line = f"  -> {verdict['score']:+d} by {verdict['judge']} ({verdict['reason']}){hint}"
            out.print(line, markup=False, highlight=False, style="cyan")


@versions_app.command("list")
def versions_list(config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """Published versions, oldest first; the serving one is marked."""
    settings = read_config(config, home, None)
    versions, serving = read_journal(settings, lambda journal: (journal.list_versions(), journal.latest_version()))
    if as_json:
        out.print_json(json.dumps([version_body(v) | {"serving": v.number == serving} for v in versions]))
        return
    table = Table("version", "parent", "made", "turns", "loss", "gate")
    table.add_row("0" + (" (serving)" if serving == 0 else ""), "", "", "", "", "the model as it came")
    for v in versions:
        mark = " (serving)" if v.number == serving else ""
        loss = f"{v.metrics['loss']:.4f}" if "loss" in v.metrics else ""
        gate = (
            "pruned"
            if v.pruned
            else str(v.gate.get("reason") or ("passed" if v.gate.get("accepted", True) else "refused"))
        )
        table.add_row(f"{v.number}{mark}", str(v.parent), ago(v.created_at), str(len(v.turn_ids)), loss, gate)
    out.print(table)


@versions_app.command("show")
def versions_show(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """One version as JSON: parent, turns it was trained on, metrics, gate."""
    version = read_journal(read_config(config, home, None), lambda journal: journal.get_version(number))
    if version is None:
        raise TurnwiseError(f"there is no published version {number}; see `turnwise versions list`")
    out.print_json(json.dumps(version_body(version)))


@versions_app.command("rollback")
def versions_rollback(number: int, config: ConfigFile = None, home: Home = None) -> None:
    """Serve an earlier version again (0: the base model); what is learned from now on builds on it."""
    change_journal(read_config(config, home, None), lambda journal: journal.serve_version(number))
    out.print(f"{f'version {number}' if number else 'the base model'} serves from now on", highlight=False)


def version_body(version: Any) -> dict[str, Any]:
    names = ("number", "parent", "path", "created_at", "metrics", "gate", "turn_ids", "pruned")
    return {name: getattr(version, name) for name in names}
