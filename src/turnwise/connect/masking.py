"""Hides what may be secret in a configuration file before it is shown: the value of every name that sounds like one.

It reads lines, not a format, because it serves JSON, TOML, YAML and dotenv alike and must hide also what stands in a
comment or below a name. It rather hides too much than too little. Line breaks, quotes, brackets and names stay, so the
masked text has the lines of the text.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwise.patterns import DOTALL, IGNORECASE, MULTILINE, Match, Pattern, anchored, pattern

_SOUNDS = pattern(r"key|token|secret|pass|auth|header|credential|(?<![a-z])pat(?![a-z])", IGNORECASE, unbounded=True)
_OURS = frozenset({"envkey", "selectedtype", "supportspromptcachekey"})
"""Settings that `connect` writes whose names sound secret; their values are names and switches."""
_NAME = pattern(
    r"""(?:"(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|(?<![\w.$-])(?P<bare>[\w.$-]++))[ \t]*+[:=](?!//)[ \t]*"""
    r"""|["'](?P<option>--?[\w-]+)["'],\s*""",
    unbounded=True,
)
_TABLE = pattern(r"^[ \t]*+\[++[^\]\n=]*+\]++[ \t]*+(?:#[^\n]*+)?$", MULTILINE, unbounded=True)
_NEXT_TABLE = pattern(r"^[ \t]*\[", MULTILINE, unbounded=True)
_QUOTED = anchored(
    r'(?P<mark>"""|\'\'\')(?P<long>.*?)(?P=mark)' + r'|"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.|'')*'",
    DOTALL,
    unbounded=True,
)
_BRACKETS = pattern(r"[\"'\[{\]}]", unbounded=True)
_OPENS = anchored(r"\"\"\"|'''|[\"']", unbounded=True)
_PLAIN = anchored(r"(?:-?\d+(?:\.\d+)?|true|false|null)(?=[ \t]*(?:[,}\]\r\n#]|$))|\"\d+\"", unbounded=True)
_BLOCK = anchored(r"(?:[|>][-+\d]*)?[ \t]*(?:#[^\n]*)?\r?", unbounded=True)
"""What is behind the name of a YAML block: nothing, or a mark, and perhaps a comment."""
_MARK = anchored(r"(?:[|>][-+\d]*)?\s*", unbounded=True)
_PASSWORD = pattern(r"(?<=://)[^\s/@\"']+(?=@)", unbounded=True)
_WITHIN = pattern(r"""["']|[^\s,:=\[\]{}"']+""", unbounded=True)
_SELECTED = anchored(r'"selectedType":\s*"[^"\n]*"', unbounded=True)
_MEMBER = anchored(r"[ \t]*[:=](?=[ \t]*[^\s,\]}=])", unbounded=True)
_ITEM = anchored(
    r"""(?P<lead>[ \t]*(?:-[ \t]+)*)(?P<name>["']?[\w.$-]+["']?[ \t]*[:=](?=[^=\s]|[ \t]+\S)[ \t]*)?""", unbounded=True
)


def mask(text: str) -> str:
    """The text with `***` in place of what may be secret, line for line."""
    done: list[str] = []
    at = 0
    names = _Following(_NAME, lambda name: _is_secret(_called(name)))
    tables = _Following(_TABLE, lambda table: _SOUNDS.search(table.group()) is not None)
    while found := _next(text, at, names, tables):
        name, start = found
        done.append(text[at:start])
        at = _end_of_value(text, name.start(), start)
        done.append(_masked(text[start:at], name))
    return _PASSWORD.sub("***", "".join(done) + text[at:])


class _Following:
    """The next match from a place on that is wanted. It is looked for once, also when others come before it."""

    def __init__(self, kind: Pattern[str], wanted: Callable[[Match[str]], bool]) -> None:
        self._kind = kind
        self._wanted = wanted
        self._at = -1
        self._found: Match[str] | None = None

    def after(self, text: str, at: int) -> Match[str] | None:
        behind = self._found is not None and self._found.start() < at
        if self._at < 0 or behind:
            self._found = next((m for m in self._kind.finditer(text, at) if self._wanted(m)), None)
            self._at = at
        return self._found


def _next(text: str, at: int, names: _Following, tables: _Following) -> tuple[Match[str], int] | None:
    """The next name that sounds secret, or such a TOML table's header, and where its value starts."""
    first = min(
        (m for m in (names.after(text, at), tables.after(text, at)) if m is not None),
        key=lambda m: m.start(),
        default=None,
    )
    return None if first is None else (first, first.end())


def _called(name: Match[str]) -> str:
    return next(group for group in name.group("double", "single", "bare", "option") if group is not None)


def _is_secret(name: str) -> bool:
    return bool(_SOUNDS.search(name)) and name.lower() not in _OURS


def _end_of_value(text: str, name: int, start: int) -> int:
    """Where the value ends that starts at `start`: quoted, in brackets, on the rest of the line, or on those below."""
    if _TABLE.fullmatch(text, name, start):
        following = _NEXT_TABLE.search(text, start)
        return following.start() if following else len(text)
    if quoted := _QUOTED.match(text, start):
        return quoted.end()
    if text[start : start + 1] in ("{", "["):
        return _closing(text, start)
    line_end = end if (end := text.find("\n", start)) >= 0 else len(text)
    if _BLOCK.fullmatch(text, start, line_end):
        return _end_of_block(text, name, line_end + 1)
    if plain := _PLAIN.match(text, start):
        return plain.end()
    rest = text[start:line_end].removesuffix("\r").rstrip(" \t").rstrip("\"',}])\r").rstrip(" \t")
    return start + len(rest)


def _closing(text: str, start: int) -> int:
    depth, at = 0, start
    open_ended: set[str] = set()
    while piece := _piece(_BRACKETS, text, at, open_ended):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(text[slice(*piece)], 0)
        at = piece[1]
        if depth == 0:
            return at
    return len(text)


def _piece(kind: Pattern[str], text: str, at: int, open_ended: set[str]) -> tuple[int, int] | None:
    """Where the next piece of a kind starts and ends; a quotation that is closed is one, whatever is in it.

    ``open_ended`` is the caller's memory of quotes that are not closed: farther on they are not closed either.
    """
    while found := kind.search(text, at):
        mark = found.group()
        if mark not in ("'", '"'):
            return found.span()
        if mark not in open_ended and (quoted := _QUOTED.match(text, found.start())):
            return quoted.span()
        open_ended.add(mark)
        at = found.end()
    return None


def _end_of_block(text: str, name: int, at: int) -> int:
    """Behind the lines that are indented deeper than the name's, or are items of a list below it."""
    indent = _indent(text[text.rfind("\n", 0, name) + 1 : at])
    while at < len(text):
        line = text[at : end if (end := text.find("\n", at)) >= 0 else len(text)]
        deeper = _indent(line) > indent or (_indent(line) == indent and line.lstrip().startswith("- "))
        if line.strip() and not deeper:
            break
        at += len(line) + 1
    return min(at, len(text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _masked(value: str, name: Match[str]) -> str:
    """The value with `***` for all that is in it. A number of tokens and a switch are no secrets."""
    if _TABLE.fullmatch(name.group()) or ("\n" in value and value[0] not in "\"'{["):
        first, *more = value.split("\n")
        first = first if _MARK.fullmatch(first) else "***"
        return "\n".join([first, *(_masked_line(line) for line in more)])
    if value[:1] in ("{", "["):
        return _masked_within(value)
    counts = _called(name).lower().endswith(("tokens", "_window"))
    if not value.strip() or (_PLAIN.fullmatch(value) and (counts or value in ("true", "false", "null"))):
        return value
    return _hidden(value)


def _masked_within(value: str) -> str:
    """What is in brackets, with `***` for each value and no name."""
    done: list[str] = []
    at = 0
    open_ended: set[str] = set()
    while piece := _piece(_WITHIN, value, at, open_ended):
        start, end = piece
        selected = _SELECTED.match(value, start)
        end = selected.end() if selected else end
        stays = selected or _MEMBER.match(value, end)
        done += [value[at:start], value[start:end] if stays else _hidden(value[start:end])]
        at = end
    return "".join(done) + value[at:]


def _masked_line(line: str) -> str:
    item = _ITEM.match(line)
    kept = item.group() if item else ""
    rest = line[len(kept) :].rstrip()
    return kept + (_hidden(rest) if rest else "") + line[len(kept) + len(rest) :]


def _hidden(value: str) -> str:
    """`***` within the quotes that the value has, on each of its lines."""
    quotes = _OPENS.match(value)
    mark = quotes.group() if quotes and value.endswith(quotes.group()) and len(value) > 1 else ""
    inner = value[len(mark) : len(value) - len(mark)]
    return mark + "\n".join("***" for _ in inner.split("\n")) + mark
