"""Small faults for Python sources, as people make them: a comparison turned, a bound moved, a condition forgotten.

A fault is a change of a few characters, so that everything else of a file stays as it was written. Nothing inside of
f-strings is changed, whose parts have no places of their own before Python 3.12.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from turnwise.environments.swe.parsing import parsed
from turnwise.errors import DataError

TURNED = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "+": "-",
    "-": "+",
    "*": "+",
    "//": "/",
    "%": "//",
    "True": "False",
    "False": "True",
    "break": "continue",
    "continue": "break",
    "+=": "-=",
    "-=": "+=",
}
"""What becomes of operators and of words."""
_COMPARED = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_COUNTED = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_JOINED = {ast.And: "and", ast.Or: "or"}
Place = tuple[int, int]
"""Line from 1, and character in it from 0."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """At ``place`` in the file ``way``, ``old`` becomes ``new``; neither has a line break in it."""

    way: str
    place: Place
    old: str
    new: str

    @property
    def end(self) -> Place:
        return self.place[0], self.place[1] + len(self.old)


def edits_of(way: str, source: str) -> list[Edit]:
    """All faults that could be planted in a file, in their order. None in one that is no Python of today."""
    try:
        tree = parsed(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return []
    words = _Words(source, tokens)
    return sorted({Edit(way, place, old, new) for node in _nodes(tree) for place, old, new in _faults(node, words)})


def chosen(edits: Sequence[Edit], most: int, random: Random) -> tuple[Edit, ...]:
    """One to ``most`` of them that do not touch each other. Raises DataError where there is none."""
    if not edits:
        raise DataError("there is nothing in the sources that could be changed")
    taken: list[Edit] = []
    for edit in random.sample(edits, min(len(edits), random.randint(1, most))):
        if all(edit.way != other.way or edit.end < other.place or other.end < edit.place for other in taken):
            taken.append(edit)
    return tuple(sorted(taken))


def planted(source: str, edits: Sequence[Edit]) -> str:
    """The source with all edits of its file done. Raises DataError where one does not fit, or Python is left."""
    lines = source.split("\n")  # as the compiler counts them; `splitlines` knows more ends of lines
    for edit in sorted(edits, reverse=True):
        line, at = edit.place
        if line > len(lines) or lines[line - 1][at : at + len(edit.old)] != edit.old:
            raise DataError(f"{edit.way} line {line} is not what the task was made from")
        lines[line - 1] = lines[line - 1][:at] + edit.new + lines[line - 1][at + len(edit.old) :]
    changed = "\n".join(lines)
    try:
        parsed(changed)
    except (SyntaxError, ValueError) as e:
        raise DataError(f"the changed source is no Python: {e}") from e
    return changed


class _Words:
    """The words of a source by their place."""

    def __init__(self, source: str, tokens: list[tokenize.TokenInfo]) -> None:
        self._lines = source.split("\n")
        self._tokens = [token for token in tokens if token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER)]

    def place(self, line: int, column: int) -> Place:
        """The place of a column that counts UTF-8 bytes, as the tree has it."""
        return line, len(self._lines[line - 1].encode()[:column].decode(errors="replace"))

    def between(self, left: ast.AST, right: ast.AST, word: str) -> Place | None:
        """Where a word stands alone between two nodes."""
        assert isinstance(left, ast.expr | ast.stmt) and isinstance(right, ast.expr | ast.stmt)
        begin = self.place(left.end_lineno or left.lineno, left.end_col_offset or 0)
        return self.first(word, begin, self.place(right.lineno, right.col_offset))

    def first(self, word: str, begin: Place, end: Place) -> Place | None:
        parts = word.split()
        inside = [token for token in self._tokens if begin <= token.start and token.end <= end]
        for at, token in enumerate(inside):
            found = inside[at : at + len(parts)]
            if [each.string for each in found] == parts and _stand_together(found):
                return token.start
        return None


def _stand_together(tokens: list[tokenize.TokenInfo]) -> bool:
    return all(a.end[0] == b.start[0] and a.end[1] + 1 == b.start[1] for a, b in pairwise(tokens))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of f-strings and of annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield child
                    yield from _nodes(child)


def _faults(node: ast.AST, words: _Words) -> Iterator[tuple[Place, str, str]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            yield from _turned(words.between(left, right, _COMPARED[type(op)]), _COMPARED[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield from _turned(words.between(left, right, _JOINED[type(op)]), _JOINED[type(op)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED:
            yield from _turned(words.between(left, right, _COUNTED[type(op)]), _COUNTED[type(op)])
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in (ast.Add, ast.Sub):
            word = f"{_COUNTED[type(op)]}="
            yield from _turned(words.between(target, value, word), word)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            begin = words.place(node.lineno, node.col_offset)
            if begin[0] == operand.lineno and operand.col_offset == node.col_offset + 4:
                yield begin, "not ", ""
        case ast.Constant(value=bool() as value):
            yield from _turned(words.place(node.lineno, node.col_offset), str(value))
        case ast.Constant(value=int() as value) if 0 <= value < 1000:
            begin = words.place(node.lineno, node.col_offset)
            if words.first(str(value), begin, (begin[0], begin[1] + len(str(value)))) == begin:
                yield begin, str(value), str(value + 1)
        case ast.Break() | ast.Continue():
            yield from _turned(words.place(node.lineno, node.col_offset), type(node).__name__.lower())


def _turned(place: Place | None, word: str) -> Iterator[tuple[Place, str, str]]:
    if place is not None:
        yield place, word, TURNED[word]
