"""Calls as lines of a block, for models that call no tools: the tool's name, then its arguments in their order.

The last argument is the rest of the line: `click 80 129`, `write two words`, `done 42`. An element that has a number on
the picture is named by it: `click #3`.
"""

from __future__ import annotations

from turnwise.environments.base import Action, Call
from turnwise.environments.browser.calls import MARKED, TOOLS
from turnwise.environments.reading import fenced

KIND = "web"
"""The word behind the three backticks."""


def block_of(action: Action) -> str:
    """An action as a model writes it."""
    return "\n".join([f"```{KIND}", *map(_line, action.calls), "```"]) if action.calls else action.text


def calls_in(text: str) -> Action:
    """What the only such block of a text asks for; an action without calls where there is none."""
    lines = [line.strip() for line in fenced(text, (KIND,)).splitlines()]
    return Action(tuple(_call(line) for line in lines if line), text)


def _line(call: Call) -> str:
    if "mark" in call.arguments:
        return f"{call.name} #{call.arguments['mark']}"
    values = [call.arguments[key] for key in TOOLS[call.name][1] if key in call.arguments]
    said = [" ".join(value) if isinstance(value, (list, tuple)) else str(value) for value in values]
    return " ".join([call.name, *said]).replace("\n", " ")


def _call(line: str) -> Call:
    name, _, rest = line.partition(" ")
    if name not in TOOLS:
        return Call(name, {})
    number = rest.strip().removeprefix("#")
    if name in MARKED and rest.strip().startswith("#") and number.isdecimal() and len(number) < 10:
        return Call(name, {"mark": int(number)})
    parameters = TOOLS[name][1]
    given: dict[str, object] = {}
    for n, (key, parameter) in enumerate(parameters.items()):
        word, _, rest = (rest, "", "") if n == len(parameters) - 1 else rest.strip().partition(" ")
        if word.strip():
            given[key] = _value(parameter.kind, word.strip())
    return Call(name, given)


def _value(kind: str, word: str) -> object:
    if kind == "array":
        return word.split()
    if kind in ("integer", "number"):
        try:
            return float(word)
        except ValueError:
            return word
    return word
