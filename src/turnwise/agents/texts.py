"""Sets values in TOML, YAML and dotenv text and keeps comments, order and layout of the rest.

TOML is tomlkit's. YAML is PyYAML's places and our own cut: a round trip through ruamel.yaml 0.19.1 joins the lines of a
list in brackets (`test_yaml_keeps_comments`) and changes what an anchor stands in
(`test_yaml_that_cannot_be_changed_safely_is_refused`).
"""

from __future__ import annotations

import contextlib
import io
import json
import tomllib
from collections.abc import Callable
from typing import Any

import tomlkit
import tomlkit.exceptions
import yaml
from dotenv.parser import parse_stream

from turnwise.errors import ConfigError
from turnwise.patterns import DOTALL, anchored, pattern

_HEAD = anchored(r"\A\s*+(?:export\s++)?[^\s=]++[^\S\r\n]*+(?:=[^\S\r\n]*+)?", unbounded=True)
_IN_QUOTES = anchored(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", DOTALL, unbounded=True)
_COMMENT = pattern(r"\s#", unbounded=True)
_TAIL = anchored(r"(?:[^\S\r\n]++#[^\r\n]*+)?\s*+", unbounded=True)


def set_toml(text: str, values: dict[tuple[str, ...], Any]) -> str:
    """TOML text with each value at its path (None: nothing there), and the rest as it was. Raises ConfigError.

    A new table gets a header of its own; beside dotted keys or within an inline table it has to be inline as well.
    """
    values = dict(sorted(values.items(), key=lambda item: len(item[0]) > 1))  # a key after a table would be in it
    try:
        wanted = tomllib.loads(text)
        for path, value in values.items():
            _set_at(wanted, path, value, lambda _: {})
        for new in (lambda rest: tomlkit.table(is_super_table=rest > 0), lambda _: tomlkit.inline_table()):
            with contextlib.suppress(tomlkit.exceptions.TOMLKitError, ValueError):
                document = tomlkit.parse(text)
                for path, value in values.items():
                    _set_at(document, path, value, new)
                changed = tomlkit.dumps(document)
                if tomllib.loads(changed) == wanted:
                    return changed
    except ValueError as e:
        raise ConfigError(str(e)) from e
    raise ConfigError("it is laid out in a way that cannot be changed safely")


def _set_at(table: Any, path: tuple[str, ...], value: Any, new: Callable[[int], Any]) -> None:
    """Set the value in nested tables. `new` makes one that is missing, told how many of the path are within it."""
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            table[key] = new(len(path) - 2 - depth)
        elif not isinstance(table[key], dict):
            raise ConfigError(f"{'.'.join(path[: depth + 1])} is not a table")
        table = table[key]
    if value is None:
        table.pop(path[-1], None)
    elif table.get(path[-1]) != value:
        table[path[-1]] = value


def set_yaml(text: str, values: dict[str, str]) -> str:
    """YAML text whose outermost mapping has these strings. Raises ConfigError."""
    try:
        wanted = (yaml.safe_load(text) or {}) | values
        for key, value in values.items():
            text = _set_yaml_key(text, key, value)
        if yaml.safe_load(text) != wanted:
            raise ConfigError("it is laid out in a way that cannot be changed safely")
    except (yaml.YAMLError, TypeError) as e:
        raise ConfigError(" ".join(str(e).split())) from e
    return text


def _set_yaml_key(text: str, key: str, value: str) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    shown = json.dumps(value, ensure_ascii=False)  # a JSON string is a YAML string
    for name, node in root.value if isinstance(root, yaml.MappingNode) else ():
        if name.value == key:
            if isinstance(node, yaml.ScalarNode) and node.value == value:
                return text
            start, end = node.start_mark.index, node.end_mark.index
            gap = "" if text[:start].endswith((" ", "\t")) else " "
            rest = text[end:] if text[end - 1 : end] != "\n" else "\n" + text[end:]
            return f"{text[:start]}{gap}{shown}{rest}"
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = newline if text and not text.endswith("\n") else ""
    return f"{text}{gap}{key}: {shown}{newline}"


def set_dotenv(text: str, values: dict[str, str]) -> str:
    """Dotenv text with these variables; of a variable that stands there more than once, the last counts."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for key, value in values.items():
        if "'" in value or "\n" in value:
            raise ConfigError(f"the value of {key} has a quote or a line break")
        bindings = list(parse_stream(io.StringIO(text, newline="")))
        faults = [binding.original.line for binding in bindings if binding.error]
        if faults:
            raise ConfigError(f"line {faults[0]} is no assignment")
        parts = [binding.original.string for binding in bindings]
        places = [i for i, binding in enumerate(bindings) if binding.key == key]
        if not places:
            gap = newline if text and not text.endswith("\n") else ""
            text = f"{text}{gap}{key}='{value}'{newline}"
        elif bindings[places[-1]].value != value:
            around = _around_value(parts[places[-1]])
            if around is None:
                raise ConfigError(f"the line of {key} cannot be changed safely")
            parts[places[-1]] = f"{around[0]}'{value}'{around[1]}"
            text = "".join(parts)
    return text


def _around_value(line: str) -> tuple[str, str] | None:
    """What stands before and behind the value in one line of a dotenv file: the value alone is replaced."""
    head = _HEAD.match(line)
    if head is None:
        return None
    start = head.end()
    quoted = _IN_QUOTES.match(line, start)
    if quoted and _TAIL.fullmatch(line, quoted.end()):
        return head.group(), line[quoted.end() :]
    comment = _COMMENT.search(line, start)
    bare = line[start : comment.start() if comment else len(line)].rstrip()
    tail = line[start + len(bare) :]
    return (head.group(), tail) if not set("\r\n") & set(bare) and _TAIL.fullmatch(tail) else None
