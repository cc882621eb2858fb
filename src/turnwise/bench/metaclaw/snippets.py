"""Reads the `python -c` pieces of the bench's check commands without running Python.

A piece is parsed, and a small part of the language is understood: what the questions use. It reads files of the
agent's folder, and can do nothing else. Whether a piece is understood at all is known before any agent plays.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from turnwise.bench.metaclaw.rules import Surroundings, fault_of_content, is_time
from turnwise.errors import BenchDataError, FolderFault
from turnwise.patterns import anchored

STAR = "\N{ASTERISK}"
"""Of a pattern of file names. No address to listen on, which is what a plain one in quotes is taken for."""
MOST_STEPS = 200_000
"""Parts of a piece that are looked at while it is played."""

_UNTIL_SECONDS = anchored(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+08:00")
_DATE = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}"
PATTERNS: dict[str, Callable[[str], bool]] = {
    _DATE + r"(\.\d+)?\+08:00$": is_time,
    # As the data has it; what it means by the fraction is no fraction, so that none is taken.
    _DATE + r"(\.\[0-9\]+)?\+08:00$": lambda value: bool(_UNTIL_SECONDS.fullmatch(value)),
}
"""Patterns of the questions, which are never compiled."""
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.In: lambda item, many: item in many,
    ast.NotIn: lambda item, many: item not in many,
}
_CALLS = frozenset(
    {"json.load", "open", "glob.glob", "sorted", "len", "next", "str", "print", "sys.exit", "re.compile"}
)
_METHODS = frozenset({"get", "match"})
_NODES = (
    ast.Module, ast.Import, ast.alias, ast.Assign, ast.Expr, ast.Call, ast.Attribute, ast.Name, ast.Constant,
    ast.Subscript, ast.List, ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.IfExp, ast.Compare, ast.BoolOp,
    ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.BinOp, ast.Add, ast.Load, ast.Store, *_COMPARES,
)  # fmt: skip


class _Exit(Exception):
    """The piece ended itself."""

    def __init__(self, status: object) -> None:
        super().__init__(status)
        self.status = status


def read_snippet(code: str) -> ast.Module:
    """A piece that `play_snippet` can play. Raises BenchDataError for any other."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BenchDataError(f"this is not Python: {code[:80]!r}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise BenchDataError(f"{type(node).__name__} in a check is not understood: {code[:80]!r}")
        if isinstance(node, ast.Call) and _called(node) is None and not _is_method(node):
            raise BenchDataError(f"a call in a check is not understood: {ast.unparse(node)[:80]!r}")
        if isinstance(node, ast.Call) and _called(node) == "re.compile":
            source = node.args[0] if node.args else None
            if not isinstance(source, ast.Constant) or source.value not in PATTERNS:
                raise BenchDataError(f"a pattern in a check is not understood: {ast.unparse(node)[:120]!r}")
    return tree


def globs_of(tree: ast.Module) -> list[str]:
    """The patterns of file names that a piece looks for."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "glob.glob"]
    return [call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)]  # pyright: ignore


def play_snippet(tree: ast.Module, around: Surroundings) -> tuple[bool, str]:
    """Whether a piece ends well, and what it prints."""
    player = _Snippet(around)
    try:
        for statement in tree.body:
            player.do(statement)
    except _Exit as e:
        return e.status in (0, None), player.printed
    except (LookupError, TypeError, ValueError, AttributeError, FolderFault, OSError, RecursionError, StopIteration):
        return False, player.printed  # as Python's own ends with a traceback
    return True, player.printed


def _called(node: ast.Call) -> str | None:
    name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
    return name if name in _CALLS else None


def _is_method(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS


class _Snippet:
    """One piece while it is played."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._names: dict[str, Any] = {}
        self._steps = 0
        self.printed = ""

    def do(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if not isinstance(target, ast.Name):
                raise TypeError("only names are given values")
            self._names[target.id] = self._value(statement.value)
        elif isinstance(statement, ast.Expr):
            self._value(statement.value)

    def _value(self, node: ast.expr) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise ValueError("this takes too long")
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._names[node.id]
            case ast.List():
                return [self._value(item) for item in node.elts]
            case ast.Subscript():
                return self._value(node.value)[self._value(node.slice)]
            case ast.UnaryOp():
                return not self._value(node.operand)
            case ast.BinOp():
                left, right = self._value(node.left), self._value(node.right)
                if not isinstance(left, list) or not isinstance(right, list):
                    raise TypeError("only lists are added")
                return left + right
            case ast.BoolOp():
                return self._either(node)
            case ast.IfExp():
                return self._value(node.body if self._value(node.test) else node.orelse)
            case ast.Compare():
                compare = _COMPARES[type(node.ops[0])]
                return compare(self._value(node.left), self._value(node.comparators[0]))
            case ast.ListComp() | ast.GeneratorExp():
                return list(self._items(node))
            case ast.Call():
                return self._call(node)
        raise TypeError(f"{type(node).__name__} has no value")

    def _either(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for part in node.values:
            value = self._value(part)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _items(self, node: ast.ListComp | ast.GeneratorExp) -> Iterator[Any]:
        loop = node.generators[0]
        if not isinstance(loop.target, ast.Name) or len(node.generators) > 1:
            raise TypeError("only one plain loop is played")
        many = self._value(loop.iter)
        if not isinstance(many, list):
            raise TypeError("only lists are looped over")
        for item in many:
            self._names[loop.target.id] = item
            if all(self._value(condition) for condition in loop.ifs):
                yield self._value(node.elt)

    def _call(self, node: ast.Call) -> Any:
        name = _called(node)
        if name is None:
            assert isinstance(node.func, ast.Attribute)
            return self._method(self._value(node.func.value), node.func.attr, [self._value(a) for a in node.args])
        given = [self._value(argument) for argument in node.args]
        match name:
            case "open":
                return str(given[0])
            case "json.load":
                return self._document(given[0])
            case "glob.glob":
                return self._glob(given[0])
            case "re.compile":
                return PATTERNS[given[0]]
            case "sorted":
                return sorted(given[0])
            case "len":
                return len(given[0])
            case "str":
                return str(given[0])
            case "next":
                return given[0][0] if given[0] else given[1]
            case "print":
                self.printed = str(given[0])
                return None
        raise _Exit(given[0] if given else None)

    def _method(self, of: Any, name: str, given: list[Any]) -> Any:
        if name == "get" and isinstance(of, Mapping):
            return of.get(*given)
        if name == "match" and of in PATTERNS.values():
            return of(given[0])
        raise AttributeError(name)

    def _document(self, file: str) -> Any:
        if fault := fault_of_content(self._around, file):
            raise ValueError(fault)
        return msgspec.json.decode(self._around.folder.read(file))

    def _glob(self, pattern: str) -> list[str]:
        """Files whose name has the pattern's two halves; a pattern has one star, in its last part."""
        way = PurePosixPath(pattern)
        begins, star, ends = way.name.partition(STAR)
        if not star or STAR in str(way.parent) or STAR in ends:
            raise ValueError("a pattern of files has one star")
        names = self._around.folder.names(str(way.parent))
        return [
            str(way.parent / name)
            for name in names
            if name.startswith(begins) and name.endswith(ends) and len(name) >= len(begins + ends)
        ]
