"""Tasks in the spreadsheet, and between it and the editor."""

from __future__ import annotations

from random import Random
from typing import Any

from turnwise.environments.desktop.families.base import (
    Deeds,
    DeskFamily,
    Drawing,
    clicks,
    opens,
    presses,
    saves_as,
    types,
)
from turnwise.environments.terminal.families.base import is_file, lines
from turnwise.environments.terminal.families.words import NOUNS, some

NAMES = ("prices", "stock", "orders", "costs")


def _table(rng: Random, rows: int) -> list[list[str]]:
    return [["item", "price"], *([word, str(rng.randint(2, 99))] for word in some(rng, NOUNS, rows))]


def _csv(rows: list[list[str]]) -> str:
    return lines(*(",".join(row) for row in rows))


def _is_csv(way: str, rows: list[list[str]]) -> dict[str, Any]:
    return {"kind": "csv", "way": way, "is": rows}


def _exports(name: str | None = None) -> Deeds:
    """Under a new name, or over the file that is open, whose name is there already."""
    menu = clicks("Data", "Export Data", "Export as CSV File...")
    if name is None:
        return (*menu, *clicks("Save", "OK"), *_WAITS)
    return (*menu, *presses("ctrl+a"), *types(name), *clicks("Save"), *_WAITS)


_WAITS: Deeds = (("wait", {"seconds": 1}),)


def _set_cell(rng: Random) -> Drawing:
    name, rows = f"{rng.choice(NAMES)}.csv", _table(rng, 4)
    which, price = rng.randint(1, 4), str(rng.randint(100, 999))
    now = [[word, price if at == which else cost] for at, (word, cost) in enumerate(rows)]

    def plan(right: bool) -> Deeds:
        there = presses(" ".join(["ctrl+Home", "Right", *["Down"] * (which if right else which - 1)]))
        return (*there, *types(f"{price}\n"), *_exports())

    return Drawing(
        f"{name} is open in the spreadsheet. Set the price of {rows[which][0]} to {price}, and export the sheet as CSV "
        f"over {name} (Data, Export Data).",
        plan,
        {name: _csv(rows)},
        [_is_csv(name, now)],
        opens=[("sheet", name)],
    )


def _sum_column(rng: Random) -> Drawing:
    name, rows = f"{rng.choice(NAMES)}.csv", _table(rng, rng.randint(3, 6))
    total = sum(int(cost) for _, cost in rows[1:])

    def plan(right: bool) -> Deeds:
        there = presses(" ".join(["ctrl+Home", *["Down"] * len(rows)]))
        formula = f"=SUM(B2:B{len(rows) if right else len(rows) - 1})"
        return (*there, *types(f"total\t{formula}\n"), *_exports())

    return Drawing(
        f"{name} is open in the spreadsheet. Write total into the first empty cell of column A and, beside it in "
        f"column B, the sum of all prices; then export the sheet as CSV over {name} (Data, Export Data).",
        plan,
        {name: _csv(rows)},
        [_is_csv(name, [*rows, ["total", str(total)]])],
        opens=[("sheet", name)],
    )


def _new_table(rng: Random) -> Drawing:
    name, rows = f"{rng.choice(NAMES)}.csv", _table(rng, 2)
    said = "; ".join(", ".join(row) for row in rows)

    def plan(right: bool) -> Deeds:
        given = rows if right else [rows[0], rows[2], rows[1]]
        return (*types("".join(f"{word}\t{cost}\n" for word, cost in given)), *_exports(name))

    return Drawing(
        f"Write this table from the cell A1 on into the empty spreadsheet, a row between two semicolons: {said}. "
        f"Export it as CSV as {name} in the home folder (Data, Export Data).",
        plan,
        checks=[_is_csv(name, rows)],
        opens=[("sheet", None)],
    )


def _cell_to_note(rng: Random) -> Drawing:
    name, rows = f"{rng.choice(NAMES)}.csv", _table(rng, 5)
    which = rng.randint(1, 4)

    def plan(right: bool) -> Deeds:
        return (*opens("editor"), *types(rows[which if right else which + 1][1]), *saves_as("answer.txt"))

    return Drawing(
        f"{name} is open in the spreadsheet. Write the price of {rows[which][0]}, and nothing else, into a new file of "
        "the editor, and save it as answer.txt in the home folder.",
        plan,
        {name: _csv(rows)},
        [is_file("answer.txt", rows[which][1])],
        opens=[("sheet", name)],
    )


FAMILIES = (
    DeskFamily("set-cell", "sheet", "another price in a table", _set_cell),
    DeskFamily("sum-column", "sheet", "the sum of a column below it", _sum_column),
    DeskFamily("new-table", "sheet", "a small table written and exported", _new_table),
    DeskFamily("cell-to-note", "sheet, editor", "a cell's value in a text file", _cell_to_note),
)
