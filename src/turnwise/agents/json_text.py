"""Sets values inside JSON, JSON with comments, or JSON5 text, and leaves every other character as it was.

The text is parsed into nodes that know where they stand; a change replaces one value or adds one member. Comments,
order, quotes and line ends of everything else survive, which no load-and-dump can promise.

Why no library reads it: json-five 1.1.2, the one that knows comments and places of JSON5, refuses valid files
(`test_only_what_was_asked_changes`: a U+2028 within a string, or a backslash and an x there; `test_json5_is_read`: a
key that is called `null` or `true`) and takes 50 times as long. json5kit 0.4.0 knows no block comments and no negative
numbers, jsonc-edit 0.2.1 starts Node, json-source-edit 1.0.0 takes plain JSON alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwise.errors import ConfigError
from turnwise.patterns import DOTALL, Match, anchored, pattern

_SPACE = anchored(r"(?:[\s\ufeff]|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", DOTALL, unbounded=True)
_WORD = anchored(r"[\w$]+", unbounded=True)
_NUMBER = anchored(
    r"[+-]?(?:0[xX][0-9a-fA-F]++|(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|Infinity|NaN)(?![\w$])", unbounded=True
)
_STRING = anchored(r'"(?:[^"\\\n\r]|\\(?:\r\n|.))*"|' + r"'(?:[^'\\\n\r]|\\(?:\r\n|.))*'", DOTALL, unbounded=True)
_ESCAPE = pattern(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", DOTALL, unbounded=True)
_LINE_END = pattern(r"[\n\r]", unbounded=True)
_INDENT = pattern(r"\n([ \t]+)\S", unbounded=True)
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0", "\n": "", "\r": "", "\r\n": ""}
_CONSTANTS = {"true": True, "false": False, "null": None}


@dataclass(slots=True)
class Node:
    """A value and its span in the text. `members` is None for anything but an object."""

    start: int
    end: int
    value: Any
    members: dict[str, Node] | None = None
    comma: bool = False  # whether a comma follows the last member


def parse(text: str) -> Node:
    """The text as a tree of nodes. Raises ConfigError with the line of the first fault."""
    try:
        node = _Parser(text).document()
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    if node.members is None:
        raise ConfigError("its outermost value is not an object")
    return node


def read(text: str, path: tuple[str, ...]) -> Any:
    """The value at `path`, or None."""
    value = parse(text).value if text.strip() else {}
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def set_value(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with `value` at `path`; missing objects on the way are made. An empty text counts as `{}`.

    Raises ConfigError where the text is no JSON5 object, or something else than an object stands on the way.
    """
    if not text.strip():
        text = "{}\n"
    node = parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise ConfigError(f"{'.'.join(path[:depth])} is not an object")
        known = node.members.get(key)
        rest = path[depth + 1 :]
        if known is None:
            return _insert(text, node, key, _nest(rest, value))
        if not rest:
            if known.value == value and type(known.value) is type(value):
                return text
            block = _dump(text, value, _line_indent(text, known.start), flat=False)
            return text[: known.start] + block + text[known.end :]
        node = known
    raise ValueError("the path is empty")


def _nest(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _insert(text: str, node: Node, key: str, value: Any) -> str:
    """One more member at the end of an object; a comment behind the last member stays there."""
    close = node.end - 1
    flat = bool(node.members) and not _LINE_END.search(text[node.start : node.end])
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _member_indent(text, node)
    member = f"{json.dumps(key, ensure_ascii=False)}: {_dump(text, value, indent, flat)}"
    end = close - len(text[:close]) + len(text[:close].rstrip())  # where the content before the brace ends
    if flat:
        comma = "" if node.comma else ","
        return f"{text[:end]}{comma} {member}{text[end:]}"
    closing = text[end:close] if _LINE_END.search(text[end:close]) else newline + _line_indent(text, node.start)
    tail = "," if node.comma else ""
    head = text[:end]
    if node.members and not node.comma:
        last = max(n.end for n in node.members.values())
        head = f"{text[:last]},{text[last:end]}"
    return f"{head}{newline}{indent}{member}{tail}{closing}{text[close:]}"


def _member_indent(text: str, node: Node) -> str:
    for member in (node.members or {}).values():
        line = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if not line.strip().startswith("{"):
            return line[: len(line) - len(line.lstrip())]
    return _line_indent(text, node.start) + _unit(text)


def _line_indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found.group(1) if found else "  "


def _dump(text: str, value: Any, indent: str, flat: bool) -> str:
    if flat:
        return json.dumps(value, ensure_ascii=False)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return block.replace("\n", newline + indent)


class _Parser:
    """Recursive descent over JSON5."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Node:
        self._space()
        node = self._value()
        self._space()
        if self.at != len(self.text):
            raise self._fault("there is more text after the end")
        return node

    def _value(self) -> Node:
        start = self.at
        mark = self.text[start : start + 1]
        if mark == "{":
            return self._object()
        if mark == "[":
            return self._list()
        if mark in ("'", '"') and mark:
            text = self._string()
            return Node(start, self.at, text)
        number = _NUMBER.match(self.text, start)
        if number:
            self.at = number.end()
            return Node(start, self.at, _number(number.group()))
        word = _WORD.match(self.text, start)
        if word and word.group() in _CONSTANTS:
            self.at = word.end()
            return Node(start, self.at, _CONSTANTS[word.group()])
        raise self._fault("a value is expected here")

    def _object(self) -> Node:
        start = self.at
        members: dict[str, Node] = {}
        comma = self._items("}", lambda: members.update([self._member()]))
        value = {key: node.value for key, node in members.items()}
        return Node(start, self.at, value, members, comma=comma)

    def _list(self) -> Node:
        start = self.at
        values: list[Any] = []
        self._items("]", lambda: values.append(self._value().value))
        return Node(start, self.at, values)

    def _items(self, close: str, item: Callable[[], None]) -> bool:
        """Everything between two brackets; gives whether the last item is followed by a comma."""
        self.at += 1
        comma = False
        first = True
        while True:
            self._space()
            if self.text.startswith(close, self.at):
                self.at += 1
                return comma
            if not (first or comma):
                raise self._fault(f"a comma or {close} is expected here")
            item()
            first = False
            self._space()
            comma = self.text.startswith(",", self.at)
            self.at += comma

    def _member(self) -> tuple[str, Node]:
        word = _WORD.match(self.text, self.at)
        if word and not word.group()[0].isdigit():
            key = word.group()
            self.at = word.end()
        elif self.text[self.at : self.at + 1] in ('"', "'"):
            key = self._string()
        else:
            raise self._fault("a key is expected here")
        self._space()
        if not self.text.startswith(":", self.at):
            raise self._fault("a colon is expected here")
        self.at += 1
        self._space()
        return key, self._value()

    def _string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if not found:
            raise self._fault("this string does not end")
        self.at = found.end()
        return _ESCAPE.sub(_unescape, found.group()[1:-1])

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _fault(self, what: str) -> ConfigError:
        return ConfigError(f"line {self.text.count(chr(10), 0, self.at) + 1}: {what}")


def _unescape(match: Match[str]) -> str:
    code = match.group(1) or match.group(2)
    if code:
        return chr(int(code, 16))
    return _PLAIN.get(match.group(3), match.group(3))


def _number(text: str) -> int | float:
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    if digits[:2] in ("0x", "0X"):
        return sign * int(digits, 16)
    if digits in ("Infinity", "NaN"):
        return sign * float(digits.replace("Infinity", "inf"))
    return sign * (int(digits) if digits.isdigit() else float(digits))
