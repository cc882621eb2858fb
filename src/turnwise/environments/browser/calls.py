"""The 13 tools of a browser (OpenWebRL, table 6), and the arguments of a call, checked before a browser sees them.

Pure: what a model wrote becomes a plain object here or a sentence that says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from turnwise.environments.base import Call

MOST_TEXT = 10_000
"""Characters that one call types, or answers."""
MOST_KEYS = 20
MOST_WAIT_S = 10.0
MOST_SCREENS = 20.0
"""Of the window's height or width, that one call scrolls."""
BUTTONS = ("left", "right", "middle")
CLICKS = ("single", "double")
DIRECTIONS = ("up", "down", "left", "right")
SCHEMES = ("http", "https")
MARKED = ("click", "hover")
"""Tools that take the number of an element on the picture (``mark``) in place of x and y, where it has numbers."""
_MARK = {"type": "integer", "description": "number of an element on the picture, in place of x and y"}


class BadCall(Exception):
    """A call that no browser could do. Its text is for the agent."""


class RefusedCall(BadCall):
    """A call in the right form that is not allowed, or asks for a place that there is not."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    kind: str
    says: str
    default: Any = None
    """None: it has to be given."""
    among: tuple[str, ...] = ()


def _x(of: str = "") -> _Parameter:
    return _Parameter("integer", f"pixels from the left{of}")


def _y(of: str = "") -> _Parameter:
    return _Parameter("integer", f"pixels from the top{of}")


TOOLS: Mapping[str, tuple[str, Mapping[str, _Parameter]]] = {
    "click": (
        "Click at a place.",
        {
            "x": _x(),
            "y": _y(),
            "button": _Parameter("string", "mouse button", "left", BUTTONS),
            "click_type": _Parameter("string", "once or twice", "single", CLICKS),
        },
    ),
    "hover": ("Move the mouse to a place.", {"x": _x(), "y": _y()}),
    "drag": (
        "Drag from one place to another.",
        {"x1": _x(" of the start"), "y1": _y(" of the start"), "x2": _x(" of the end"), "y2": _y(" of the end")},
    ),
    "write": ("Empty the field that has the focus, and type into it.", {"text": _Parameter("string", "what to type")}),
    "press_keys": (
        "Press keys one after the other; a combination is one key: Control+a.",
        {"keys": _Parameter("array", "names of keys, as Enter, Tab, ArrowDown, a")},
    ),
    "scroll": (
        "Scroll what is under the mouse.",
        {
            "direction": _Parameter("string", "where to", None, DIRECTIONS),
            "amount": _Parameter("number", "how far, as a share of the window", 0.5),
        },
    ),
    "goto_url": ("Open an address in this tab.", {"url": _Parameter("string", "http or https")}),
    "go_back": ("Go back to the page before.", {}),
    "wait": ("Wait for the page.", {"seconds": _Parameter("number", f"at most {MOST_WAIT_S:g}", 1)}),
    "new_tab": ("Open an empty tab.", {}),
    "switch_tab": ("Go to another tab.", {"index": _Parameter("integer", "its number, from 0 on")}),
    "close_tab": ("Close this tab.", {}),
    "done": ("End the task.", {"answer": _Parameter("string", "what was asked for, or what was done")}),
}


def definitions(marks: bool = False) -> list[Mapping[str, Any]]:
    """The tools in OpenAI's shape, with ``marks`` for pictures with numbers on them."""
    return [_definition(name, says, parameters, marks and name in MARKED) for name, (says, parameters) in TOOLS.items()]


def _definition(name: str, says: str, parameters: Mapping[str, _Parameter], mark: bool) -> Mapping[str, Any]:
    properties: dict[str, Any] = {}
    for key, parameter in parameters.items():
        properties[key] = {"type": parameter.kind, "description": parameter.says}
        if parameter.kind == "array":
            properties[key]["items"] = {"type": "string"}
        if parameter.among:
            properties[key]["enum"] = list(parameter.among)
    required = [key for key, parameter in parameters.items() if parameter.default is None]
    if mark:
        properties, required = {"mark": _MARK, **properties}, [key for key in required if key not in "xy"]
    asked = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": says, "parameters": asked}}


def checked(call: Call, width: int, height: int) -> dict[str, Any]:
    """The arguments of a call, whole and of their kind, for a window of this size in pixels. Raises BadCall."""
    if call.name not in TOOLS:
        raise BadCall(f"there is no tool {call.name[:40]!r}, only {', '.join(TOOLS)}")
    parameters = TOOLS[call.name][1]
    if odd := sorted(set(call.arguments) - set(parameters)):
        raise BadCall(f"{call.name} takes {', '.join(parameters) or 'no arguments'}, not {odd[0][:40]!r}")
    found: dict[str, Any] = {}
    for key, parameter in parameters.items():
        value = call.arguments.get(key, parameter.default)
        if value is None:
            raise BadCall(f"{call.name} asks for {key} ({parameter.says})")
        found[key] = _of_kind(call.name, key, parameter, value)
        if key[0] in "xy" and not 0 <= found[key] < (width if key[0] == "x" else height):
            raise RefusedCall(f"{key} = {found[key]} is outside of the window, which is {width} by {height} pixels")
    return found | _within_bounds(call.name, found)


def _of_kind(tool: str, key: str, parameter: _Parameter, value: Any) -> Any:
    if parameter.kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e6:
            raise BadCall(f"{key} of {tool} is a number")
        return round(value) if parameter.kind == "integer" else float(value)
    if parameter.kind == "array":
        keys = [value] if isinstance(value, str) else value
        if not isinstance(keys, list) or not 1 <= len(keys) <= MOST_KEYS or not all(_is_key(k) for k in keys):
            raise BadCall(f"{key} of {tool} is a list of 1 to {MOST_KEYS} names of keys, as Enter or Control+a")
        return keys
    if not isinstance(value, str) or len(value) > MOST_TEXT or (parameter.among and value not in parameter.among):
        said = (
            f"one of {', '.join(parameter.among)}" if parameter.among else f"a text of at most {MOST_TEXT} characters"
        )
        raise BadCall(f"{key} of {tool} is {said}")
    return value.encode("utf-8", "replace").decode()


def _is_key(key: object) -> bool:
    return isinstance(key, str) and 1 <= len(key) <= 40


def _within_bounds(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments has bounds beside its kind."""
    if tool == "scroll" and not 0 < given["amount"] <= MOST_SCREENS:
        raise BadCall(f"amount of scroll is above 0 and at most {MOST_SCREENS:g}")
    if tool == "wait":
        return {"seconds": min(max(given["seconds"], 0.0), MOST_WAIT_S)}
    if tool == "goto_url":
        return {"url": address(given["url"])}
    return {}


def address(text: str) -> str:
    """An address to open: of the web alone, never of a file or a script. Raises BadCall."""
    text = text.strip()
    if "://" not in text and not text.lower().startswith(("javascript:", "data:", "file:", "view-source:")):
        text = f"https://{text}"
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme.lower() not in SCHEMES or not parts.hostname:
        raise RefusedCall("goto_url opens addresses that begin with http:// or https://")
    return text
