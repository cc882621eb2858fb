"""Tasks in which the calls are the answer: given functions, which ones does a request ask for, and with what?

Files are those of the Berkeley Function Calling Leaderboard (`BFCL_v4_*.json` with `possible_answer/`), as a person has
them; the comparison is ours and follows its rules for Python. Nothing is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.base import Call
from turnwise.errors import DataError

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple")
"""Those whose answers are calls of one turn in Python's types."""
FREE = ""
"""Among the values of a parameter: it may be left out."""
MOST_DEPTH = 20
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_IGNORED = " ,./-_*^"
"""Signs in texts that make no difference."""
_NO_CHANGE = str.maketrans("'", '"', _IGNORED)


@dataclass(frozen=True, slots=True)
class WantedCalls:
    """The functions that a task offers, and the calls it wants: each a name, and by parameter the values that are
    right."""

    functions: Sequence[Mapping[str, Any]]
    wanted: Sequence[tuple[str, Mapping[str, Sequence[object]]]]

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The functions as tools in OpenAI's shape."""
        return [
            {
                "type": "function",
                "function": {**each, "name": _plain(each["name"]), "parameters": _schema(each["parameters"])},
            }
            for each in self.functions
        ]

    def example(self) -> Iterator[Call]:
        """Calls that are right."""
        for name, values in self.wanted:
            given = {key: [each for each in options if each != FREE] for key, options in values.items()}
            yield Call(_plain(name), {key: _example(options[0]) for key, options in given.items() if options})

    def are_right(self, given: Sequence[Call]) -> bool:
        """Whether these are the wanted calls, in any order."""
        if len(given) != len(self.wanted):
            return False
        left = list(given)
        for name, values in self.wanted:
            found = next((call for call in left if self._is(call, name, values)), None)
            if found is None:
                return False
            left.remove(found)
        return True

    def _is(self, call: Call, name: str, values: Mapping[str, Sequence[object]]) -> bool:
        described = next((each for each in self.functions if each["name"] == name), None)
        if described is None or call.name not in (name, _plain(name)):
            return False
        asked = described["parameters"]
        types = asked.get("properties", {})
        if not set(asked.get("required", ())) <= set(call.arguments) or not set(call.arguments) <= set(types) & set(
            values
        ):
            return False
        may_lack = all(FREE in options for key, options in values.items() if key not in call.arguments)
        return may_lack and all(
            _has_type(value, types[key].get("type")) and any(_same(value, each) for each in values[key])
            for key, value in call.arguments.items()
        )


def wanted_calls(data: Mapping[str, object]) -> WantedCalls:
    """The task that ``data`` describes, with functions and calls. Raises DataError."""
    functions, calls = data.get("functions"), data.get("calls")
    if not isinstance(functions, list) or not functions or not isinstance(calls, list) or not calls:
        raise DataError("'functions' and 'calls' are lists, each with at least one entry")
    for each in functions:
        match each:
            case {"name": str(), "parameters": {"properties": dict() as properties}}:
                if all(isinstance(one, dict) for one in properties.values()):
                    continue
            case _:
                pass
        raise DataError("a function has a name, and parameters with properties")
    wanted = []
    for call in calls:
        match call:
            case {**named} if len(named) == 1:
                name, values = next(iter(named.items()))
                if isinstance(values, dict) and all(isinstance(options, list) for options in values.values()):
                    wanted.append((name, values))
                    continue
            case _:
                pass
        raise DataError("a call is an object of one function with, by parameter, the list of right values")
    return WantedCalls(functions, wanted)


def read_leaderboard(folder: Path, category: str) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """The id, the words and the data of each task of a category. Raises DataError."""
    name = f"BFCL_v4_{category}.json"
    answers = dict(_entry(line, "ground_truth") for line in _lines(folder / "possible_answer" / name))
    for line in _lines(folder / name):
        match line:
            case {"id": str() as at, "question": [[*said]], "function": list() as functions} if at in answers:
                yield at, "\n\n".join(_words(said)), {"functions": functions, "calls": answers[at]}
            case _:
                raise DataError(f"{folder / name} has a line that is no task of one turn with an answer")


def _entry(line: object, key: str) -> tuple[str, object]:
    match line:
        case {"id": str() as at, **rest} if key in rest:
            return at, rest[key]
        case _:
            raise DataError(f"a line has no id and {key}")


def _words(said: Sequence[object]) -> Iterator[str]:
    for message in said:
        match message:
            case {"role": "user" | "system", "content": str() as text}:
                yield text
            case _:
                raise DataError("a question has messages of a user alone")


def _lines(path: Path) -> list[object]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{path} cannot be read: {str(e)[:100]}; give the folder with the leaderboard's files") from e


def _plain(name: str) -> str:
    """A name that OpenAI takes."""
    return name.replace(".", "_")


def _schema(given: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """A description of parameters in the words of JSON Schema."""
    if depth > MOST_DEPTH:
        raise DataError(f"parameters have more than {MOST_DEPTH} levels")
    made = dict(given)
    if isinstance(made.get("type"), str):
        made["type"] = _TYPES.get(made["type"], made["type"])
    if isinstance(made.get("properties"), dict):
        made["properties"] = {key: _schema(each, depth + 1) for key, each in made["properties"].items()}
    if isinstance(made.get("items"), dict):
        made["items"] = _schema(made["items"], depth + 1)
    return made


def _example(wanted: object) -> object:
    """A value that is like a right one."""
    match wanted:
        case list():
            return [_example(each) for each in wanted]
        case dict():
            options = {key: each if isinstance(each, list) else [each] for key, each in wanted.items()}
            return {key: _example(each[0]) for key, each in options.items() if each and FREE not in each}
        case _:
            return wanted


def _has_type(value: object, kind: object) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array" | "tuple":
            return isinstance(value, list)
        case "dict" | "object":
            return isinstance(value, dict)
        case _:
            return True


def _same(value: object, wanted: object, depth: int = 0) -> bool:
    """Whether a value is like a right one. In a dictionary each key has the list of its right values."""
    if depth > MOST_DEPTH:
        return False
    match value, wanted:
        case bool(), _:
            return isinstance(wanted, bool) and value == wanted
        case str(), str():
            return value.translate(_NO_CHANGE).lower() == wanted.translate(_NO_CHANGE).lower()
        case list(), list():
            pairs = zip(value, wanted, strict=False)
            return len(value) == len(wanted) and all(_same(a, b, depth + 1) for a, b in pairs)
        case dict(), dict():
            if not set(value) <= set(wanted):
                return False
            options = {key: each if isinstance(each, list) else [each] for key, each in wanted.items()}
            lacks = [key for key in wanted if key not in value]
            return all(FREE in options[key] for key in lacks) and all(
                any(_same(each, one, depth + 1) for one in options[key]) for key, each in value.items()
            )
        case _:
            return not isinstance(wanted, bool) and value == wanted
