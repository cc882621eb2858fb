"""The triggers: they keep the figures that `counts` reads, and of each turn the verdict that counts where it is good.

They are no migration's: whoever makes a journal or brings one up to date makes them anew (`migrations.migrate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from turnwise.journal.dialects.sql import make_trigger

_COUNTED = {
    "turns": ("'turns|' || {row}.state || '|' || coalesce({row}.exclusion, '')", "state, exclusion"),
    "verdicts": ("'verdicts|' || {row}.judge || '|' || {row}.score", "judge, score"),
    "sessions": ("CASE WHEN {row}.closed_at IS NULL THEN 'sessions|open' ELSE 'sessions|closed' END", "closed_at"),
}
"""How a row is counted, which is never NULL, and the columns that this depends on."""
_ADD = "INSERT INTO counts (name, n) VALUES ({name}, 1) ON CONFLICT (name) DO UPDATE SET n = counts.n + 1;"
_TAKE = "UPDATE counts SET n = n - 1 WHERE name = {name};"
_GOOD = """UPDATE turns SET good_verdict = (
    SELECT CASE WHEN score = 1 THEN id END FROM verdicts WHERE turn_id = {row}.turn_id
    ORDER BY judge = 'person' DESC, id DESC LIMIT 1
) WHERE id = {row}.turn_id;"""


@dataclass(frozen=True, slots=True)
class Trigger:
    """``after``: what has happened to a row of the table. ``does``: the statements that follow from it."""

    name: str
    table: str
    after: str
    does: str
    when: str | None = None


def _triggers() -> Iterator[Trigger]:
    for table, (name, columns) in _COUNTED.items():
        old, new = name.format(row="OLD"), name.format(row="NEW")
        add, take = _ADD.format(name=new), _TAKE.format(name=old)
        yield Trigger(f"count_{table}_in", table, "INSERT", add)
        yield Trigger(f"count_{table}_out", table, "DELETE", take)
        yield Trigger(f"count_{table}_moved", table, f"UPDATE OF {columns}", take + add, f"({old}) <> ({new})")
    hint, no_hint = _ADD.format(name="'hints'"), _TAKE.format(name="'hints'")
    yield Trigger("count_hints_in", "verdicts", "INSERT", hint, "NEW.hint IS NOT NULL")
    yield Trigger("count_hints_out", "verdicts", "DELETE", no_hint, "OLD.hint IS NOT NULL")
    yield Trigger("good_verdict_in", "verdicts", "INSERT", _GOOD.format(row="NEW"))
    yield Trigger("good_verdict_out", "verdicts", "DELETE", _GOOD.format(row="OLD"))


TRIGGERS = tuple(_triggers())


def make_triggers(c: Connection) -> None:
    """Make all of them, in place of those of the same names."""
    for one in TRIGGERS:
        make_trigger(c, one.name, one.table, one.after, one.does, one.when)
