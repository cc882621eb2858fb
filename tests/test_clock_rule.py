"""The rule itself: the wall clock is shown and never decides. What reads it is listed here, with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

from sqlalchemy import Float

import turnwise
from turnwise.journal.schema import metadata

PACKAGE = Path(turnwise.__file__).parent
WALL = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}

ARITHMETIC = {
    "cli/journal.py": "how old turns are that a person wants deleted",
    "cli/options.py": "`ago` shows how long something is past",
    "engines/http.py": "a server's Retry-After may be a date; how long it is taken for is capped where it is used",
    "journal/status.py": "`_ago` shows a loop's last sign of an earlier boot",
    "journal/deletion/retention.py": "things are kept for days; a clock that jumps ahead is not believed (`Keeper`)",
}
"""Files that may calculate with the wall clock, and why that decides nothing."""

AGES = {
    "journal/deletion/forgetting.py": "asks whether two times are the very same: both were written in one breath",
    "judges/sources/wrappers.py": "its `closed_at` is a place in a text",
    "journal/deletion/retention.py": "see above; its passes go in the order of turns",
}
"""Files that may choose rows by a time, and why."""

TIMES = {
    column.name
    for table in metadata.tables.values()
    for column in table.columns
    if column.name.endswith("_at") and isinstance(column.type, Float)
} - {"retry_at"}
"""The journal's columns of the wall clock. `retry_at` is of the monotonic one."""


def trees() -> list[tuple[str, ast.AST]]:
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def is_wall_clock(node: ast.AST) -> bool:
    """`time.time()`, `datetime.now()`, and a call of anything that is called `clock`, such as the journal's."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id == "clock"
    if not isinstance(called, ast.Attribute):
        return False
    if called.attr == "clock":
        return True
    owner = called.value.attr if isinstance(called.value, ast.Attribute) else getattr(called.value, "id", "")
    return (owner, called.attr) in WALL


def calculates(tree: ast.AST) -> list[int]:
    """Lines where a time of the wall clock is compared, added or subtracted, directly or by a name it was given."""
    found = []
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        named = {
            target.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and is_wall_clock(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.Compare | ast.BinOp):
                parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.left, node.right]
                if any(is_wall_clock(p) or (isinstance(p, ast.Name) and p.id in named) for p in parts):
                    found.append(node.lineno)
    return found


def orders_by_time(tree: ast.AST) -> list[int]:
    """Lines where rows are ordered by, or chosen by comparing, a time. Whether there is one may be asked."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "order_by":
            inside = [n for arg in node.args for n in ast.walk(arg)]
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            inside = [node.left, *node.comparators]
        else:
            continue
        found += [n.lineno for n in inside if isinstance(n, ast.Attribute) and n.attr in TIMES]
    return found


def test_nothing_is_decided_by_calculating_with_the_wall_clock() -> None:
    found = {name: lines for name, tree in trees() if (lines := calculates(tree))}
    assert found.keys() <= ARITHMETIC.keys(), f"use Journal.monotonic or time.monotonic, or say why not: {found}"


def test_no_row_is_ordered_or_chosen_by_a_time() -> None:
    found = {name: lines for name, tree in trees() if (lines := orders_by_time(tree))}
    assert found.keys() <= AGES.keys(), f"order by a sequence (clocks.ORDER, an id): {found}"


def test_the_rule_sees_what_it_is_for() -> None:
    bad = ast.parse(
        "def f(self):\n now = self.clock()\n if now > row.lease_until: pass\n"
        "def g():\n return time.time() - started\n"
        "def h(q):\n return q.order_by(T.created_at.desc()).where(T.last_seen_at < before)\n"
    )
    assert calculates(bad) == [3, 5]
    assert orders_by_time(bad) == [7, 7]
    good = ast.parse("def f(self):\n c.execute(values(at=self.clock()))\n if S.closed_at.is_(None): pass\n")
    assert (calculates(good), orders_by_time(good)) == ([], [])
