"""Hides what may be secret in a configuration file before it is shown: the value of every name that sounds like one.

It reads lines, not a format, because it serves JSON, TOML, YAML and dotenv alike and must hide also what stands in a
comment or below a name. It rather hides too much than too little. Line breaks, quotes, brackets and names stay, so the
masked text has the lines of the text.
"""

from __future__ import annotations

import re

_SOUNDS = re.compile(r"key|token|secret|pass|auth|header|credential|(?<![a-z])pat(?![a-z])", re.IGNORECASE)
_OURS = frozenset({"envkey", "selectedtype", "supportspromptcachekey"})
"""Settings that `connect` writes whose names sound secret; their values are names and switches."""
_NAME = re.compile(
    r"""(?:"(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|(?P<bare>[\w.$-]+))[ \t]*[:=](?!//)[ \t]*"""
    r"""|["'](?P<option>--?[\w-]+)["'],\s*"""
)
_TABLE = re.compile(r"^[ \t]*\[+[^\]\n=]*\]+[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_QUOTED = re.compile(
    r'(?P<mark>"""|\'\'\')(?P<long>.*?)(?P=mark)' + r'|"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.|'')*'", re.DOTALL
)
_PLAIN = re.compile(r"(?:-?\d+(?:\.\d+)?|true|false|null)(?=[ \t]*(?:[,}\]\r\n#]|$))|\"\d+\"")
_REST = re.compile(r"[^\n]*?(?=[ \t]*[\"',}\])\r]*[ \t]*(?:\r?\n|$))")
_BLOCK = re.compile(r"(?:[|>][-+\d]*)?[ \t]*(?:#[^\n]*)?\r?")
"""What is behind the name of a YAML block: nothing, or a mark, and perhaps a comment."""
_MARK = re.compile(r"(?:[|>][-+\d]*)?\s*")
_PASSWORD = re.compile(r"(?<=://)[^\s/@\"']+(?=@)")
_WITHIN = re.compile(r'"selectedType":\s*"[^"\n]*"|' + _QUOTED.pattern + r"""|(?P<word>[^\s,:=\[\]{}"']+)""", re.DOTALL)
_MEMBER = re.compile(r"[ \t]*[:=](?=[ \t]*[^\s,\]}=])")
_ITEM = re.compile(r"""(?P<lead>[ \t]*(?:-[ \t]+)*)(?P<name>["']?[\w.$-]+["']?[ \t]*[:=](?=[^=\s]|[ \t]+\S)[ \t]*)?""")


def mask(text: str) -> str:
    """The text with `***` in place of what may be secret, line for line."""
    done: list[str] = []
    at = 0
    while found := _next(text, at):
        name, start = found
        done.append(text[at:start])
        at = _end_of_value(text, name.start(), start)
        done.append(_masked(text[start:at], name))
    return _PASSWORD.sub("***", "".join(done) + text[at:])


def _next(text: str, at: int) -> tuple[re.Match[str], int] | None:
    """The next name that sounds secret, or such a TOML table's header, and where its value starts."""
    name = next((n for n in _NAME.finditer(text, at) if _is_secret(_called(n))), None)
    table = next((t for t in _TABLE.finditer(text, at) if _SOUNDS.search(t.group())), None)
    first = min((m for m in (name, table) if m is not None), key=lambda m: m.start(), default=None)
    return None if first is None else (first, first.end())


def _called(name: re.Match[str]) -> str:
    return next(group for group in name.group("double", "single", "bare", "option") if group is not None)


def _is_secret(name: str) -> bool:
    return bool(_SOUNDS.search(name)) and name.lower() not in _OURS


def _end_of_value(text: str, name: int, start: int) -> int:
    """Where the value ends that starts at `start`: quoted, in brackets, on the rest of the line, or on those below."""
    if _TABLE.fullmatch(text, name, start):
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, start)
        return following.start() if following else len(text)
    if quoted := _QUOTED.match(text, start):
        return quoted.end()
    if text[start : start + 1] in ("{", "["):
        return _closing(text, start)
    line_end = end if (end := text.find("\n", start)) >= 0 else len(text)
    if _BLOCK.fullmatch(text, start, line_end):
        return _end_of_block(text, name, line_end + 1)
    rest = _PLAIN.match(text, start) or _REST.match(text, start)
    return rest.end() if rest else line_end


def _closing(text: str, start: int) -> int:
    depth = 0
    for part in re.finditer(_QUOTED.pattern + r"|[\[{]|[\]}]", text[start:], re.DOTALL):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(part.group(), 0)
        if depth == 0:
            return start + part.end()
    return len(text)


def _end_of_block(text: str, name: int, at: int) -> int:
    """Behind the lines that are indented deeper than the name's, or are items of a list below it."""
    indent = _indent(text[text.rfind("\n", 0, name) + 1 :])
    while at < len(text):
        line = text[at : end if (end := text.find("\n", at)) >= 0 else len(text)]
        deeper = _indent(line) > indent or (_indent(line) == indent and line.lstrip().startswith("- "))
        if line.strip() and not deeper:
            break
        at += len(line) + 1
    return min(at, len(text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _masked(value: str, name: re.Match[str]) -> str:
    """The value with `***` for all that is in it. A number of tokens and a switch are no secrets."""
    if _TABLE.fullmatch(name.group()) or ("\n" in value and value[0] not in "\"'{["):
        first, *more = value.split("\n")
        first = first if _MARK.fullmatch(first) else "***"
        return "\n".join([first, *(_masked_line(line) for line in more)])
    if value[:1] in ("{", "["):
        return _WITHIN.sub(lambda part: _masked_part(value, part), value)
    counts = _called(name).lower().endswith(("tokens", "_window"))
    if not value.strip() or (_PLAIN.fullmatch(value) and (counts or value in ("true", "false", "null"))):
        return value
    return _hidden(value)


def _masked_part(value: str, part: re.Match[str]) -> str:
    stays = part.group().startswith('"selectedType":') or _MEMBER.match(value, part.end())
    return part.group() if stays else _hidden(part.group())


def _masked_line(line: str) -> str:
    item = _ITEM.match(line)
    kept = item.group() if item else ""
    rest = line[len(kept) :].rstrip()
    return kept + (_hidden(rest) if rest else "") + line[len(kept) + len(rest) :]


def _hidden(value: str) -> str:
    """`***` within the quotes that the value has, on each of its lines."""
    quotes = re.match(r"\"\"\"|'''|[\"']", value)
    mark = quotes.group() if quotes and value.endswith(quotes.group()) and len(value) > 1 else ""
    inner = value[len(mark) : len(value) - len(mark)]
    return mark + "\n".join("***" for _ in inner.split("\n")) + mark
