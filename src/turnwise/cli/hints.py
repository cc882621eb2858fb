"""`turnwise hints`: proposed hints that came from tools, pages or files, for the person to accept or reject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from turnwise.cli.options import ConfigFile, Home, Json, ago, change_journal, out, print_json, read_config, read_journal
from turnwise.judges.sources.visible import visible

if TYPE_CHECKING:
    from turnwise.journal import Journal

hints_app = typer.Typer(help="Proposed hints from sources without trust.", no_args_is_help=True)


@hints_app.command("review", epilog="Example: turnwise hints review")
def hints_review(config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """The hints that wait for your word, and where each came from; nothing of them is trained on."""

    def read(journal: Journal) -> tuple[list[dict[str, Any]], dict[str, str]]:
        rows = journal.review.proposals()
        return rows, journal.turns.short_ids(row["turn_id"] for row in rows)

    rows, short = read_journal(read_config(config, home, None), read)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no hint waits for review")
        return
    table = Table("id", Column("said by", overflow="fold"), Column("turn", overflow="fold"), "score", "when")
    table.add_column("the hint as it was found", overflow="fold")
    for row in rows:
        score = "" if row["score"] is None else f"{row['score']:+d}"
        turn = f"{short[row['turn_id']]} ({row['turn_state']})"
        table.add_row(str(row["id"]), safe(row["source"]), safe(turn), score, ago(row["created_at"]), safe(row["hint"]))
    out.print(table)
    out.print("Take one with `turnwise hints accept ID`, or drop it with `turnwise hints reject ID`.", highlight=False)


@hints_app.command("accept", epilog="Example: turnwise hints accept 7")
def hints_accept(proposal_id: int, config: ConfigFile = None, home: Home = None) -> None:
    """Make a proposed hint your own: the turn keeps its score and is trained with the hint, if it is not too late."""
    said = change_journal(read_config(config, home, None), lambda journal: journal.review.accept(proposal_id))
    out.print(safe(said), highlight=False, soft_wrap=True)


@hints_app.command("reject", epilog="Example: turnwise hints reject 7")
def hints_reject(proposal_id: int, config: ConfigFile = None, home: Home = None) -> None:
    """Drop a proposed hint."""
    change_journal(read_config(config, home, None), lambda journal: journal.review.reject(proposal_id))
    out.print(f"the proposed hint {proposal_id} is dropped", highlight=False)


def safe(text: str) -> str:
    """Foreign text for a terminal: on one line, without control characters, and with its markup shown as text."""
    return escape(" ".join(visible(text).split()))
