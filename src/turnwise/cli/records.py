"""`turnwise sessions`: what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from turnwise.cli.chat import chat_lines, session_lines
from turnwise.cli.options import ConfigFile, Home, Json, out, print_json, read_config, read_journal
from turnwise.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.journal import Journal

sessions_app = typer.Typer(help="Recorded sessions.", no_args_is_help=True)


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
