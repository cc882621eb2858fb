"""`turnwise versions compare`: two versions' answers to the same held-out questions, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from turnwise.cli.options import ConfigFile, Home, Json, Set, err, out, print_json, read_config, read_journal
from turnwise.cli.versions.commands import versions_app
from turnwise.errors import TurnwiseError
from turnwise.judges.sources.visible import visible

if TYPE_CHECKING:
    from turnwise.versions.comparing.compare import Comparison


@versions_app.command("compare", epilog="Example: turnwise versions compare 0 3 --html comparison.html")
def versions_compare(
    one: Annotated[int, typer.Argument(min=0, help="A version; 0 is the base model.")],
    other: Annotated[int, typer.Argument(min=0, help="Another one.")],
    questions: Annotated[
        int, typer.Option(min=1, max=200, help="Most questions of either kind: set-aside turns, general ones.")
    ] = 8,
    tokens: Annotated[int, typer.Option(min=1, max=4096, help="Most tokens of an answer.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="Of sampling; 0: the likeliest token each time.")
    ] = 0.0,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page of HTML here as well.")] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Two versions' answers to questions that were never trained on, side by side, with figures beside them.

    The questions are turns of sessions that are set aside for the gate, and the general probe that ships with turnwise.
    An engine at engine.url is asked; without one, an engine is started for it. Nothing is recorded.
    """
    from turnwise.files import write_atomically
    from turnwise.versions.comparing.answering import Asking
    from turnwise.versions.comparing.compare import compare, gather
    from turnwise.versions.comparing.page import as_html

    settings = read_config(config, home, sets)
    if html is not None and not html.absolute().parent.is_dir():
        raise TurnwiseError(f"there is no folder {html.absolute().parent} to write {html.name} into")
    asking = Asking(tokens, temperature, settings.train.seed)

    def told(what: str) -> None:
        err.print(what, highlight=False)

    material = read_journal(settings, lambda journal: gather(settings, journal, [one, other], questions))
    found = compare(settings, material, asking, told)
    if html is not None:
        write_atomically(html.absolute(), as_html(found).encode())
    if as_json:
        print_json(found.as_json())
        return
    _show(found)
    if html is not None:
        out.print(f"the page is {html}", highlight=False, markup=False, soft_wrap=True)


def _show(found: Comparison) -> None:
    from turnwise.versions.comparing.page import beside, figure_rows, name_of

    names = [name_of(sheet.number) for sheet in found.sheets]
    for asked, answers in found.rows:
        table = Table(*names, title=escape(f"{asked.about}: {_seen(asked.question)}"), title_justify="left")
        table.add_row(*(Text(_seen(answer.text)) for answer in answers))
        table.add_row(
            *(Text(beside(a.tokens, a.ended, a.repetition, a.base), style="dim") for a in answers), end_section=True
        )
        out.print(table)
    figures = Table("", *names)
    for title, cells in figure_rows(found):
        figures.add_row(title, *cells)
    out.print(figures)
    for note in found.notes:
        out.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def _seen(text: str) -> str:
    """A text without what a terminal would take for a command."""
    return visible(text)
