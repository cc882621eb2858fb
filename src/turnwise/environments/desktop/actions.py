"""The tools of a desktop, and what each call of one means for mouse and keyboard.

A call is a model's, so that every argument may be anything: one that cannot be done is told why, in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.environments.base import Call
from turnwise.environments.desktop.programs import PROGRAMS
from turnwise.environments.desktop.screen import HEIGHT, WIDTH
from turnwise.environments.desktop.tree import DeskWindow, Element, Numbers, Tree
from turnwise.patterns import pattern

SUBMIT = "submit"
MOST_TYPED = 2000
"""Characters of one call."""
MOST_KEYS = 30
MOST_NOTCHES = 20
LONGEST_WAIT_S = 10.0
BUTTONS = {"left": "1", "middle": "2", "right": "3"}
NOTCHES = {"up": "4", "down": "5", "left": "6", "right": "7"}
TYPE_MS = "8"
NAMES = {
    "enter": "Return",
    "return": "Return",
    "esc": "Escape",
    "escape": "Escape",
    "tab": "Tab",
    "space": "space",
    "backspace": "BackSpace",
    "delete": "Delete",
    "del": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "Prior",
    "page_up": "Prior",
    "pagedown": "Next",
    "page_down": "Next",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "menu": "Menu",
    "plus": "plus",
    "minus": "minus",
}
MODIFIERS = {"ctrl": "ctrl", "control": "ctrl", "alt": "alt", "shift": "shift", "super": "super"}
_KEY = pattern(r"[A-Za-z0-9]|F(?:[1-9]|1[0-2])")
_SPECIAL = ".^$*+?()[]{}|\\"
"""What means something else in the patterns of xdotool."""


class NoCall(ValueError):
    """A call that cannot be done, with the reason that the agent is told."""


class NotThere(NoCall):
    """A call of an element that is not on the screen."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What a call asks for: ``hand`` are calls of xdotool; ``opens`` a program; ``seconds`` a wait."""

    hand: tuple[tuple[str, ...], ...] = ()
    opens: str | None = None
    seconds: float = 0.0
    submits: bool = False


def deed(call: Call, tree: Tree, numbers: Numbers) -> Deed:
    """What a call asks for on this desktop. Raises NoCall."""
    given = call.arguments
    match call.name:
        case "click":
            return Deed(_click(given, tree, numbers))
        case "type":
            return Deed(_typed(_text(given, "text", MOST_TYPED)))
        case "key":
            return Deed((("key", "--clearmodifiers", "--delay", "30", *_keys(_text(given, "keys", 200))),))
        case "scroll":
            button = _one_of(given, "direction", NOTCHES)
            times = str(round(_number(given.get("times", 3), "times", 1, MOST_NOTCHES)))
            return Deed((_to(_place(given, tree, numbers)), ("click", "--repeat", times, "--delay", "20", button)))
        case "drag":
            start, end = (_place(given, tree, numbers, key) for key in ("", "to_"))
            middle = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2)
            calls = (_to(start), ("mousedown", "1"), _to((start[0] + 6, start[1] + 6)), _to(middle), _to(end))
            return Deed((*calls, ("sleep", "0.2"), ("mouseup", "1")))
        case "wait":
            return Deed(seconds=_number(given.get("seconds", 1), "seconds", 0, LONGEST_WAIT_S))
        case "open":
            return Deed(opens=_one_of(given, "program", {name: name for name in PROGRAMS}))
        case _ if call.name == SUBMIT:
            return Deed(submits=True)
    raise NoCall(f"There is no tool {call.name[:40]!r}, only {', '.join(tool['function']['name'] for tool in TOOLS)}.")


def _click(given: Mapping[str, object], tree: Tree, numbers: Numbers) -> tuple[tuple[str, ...], ...]:
    button = _one_of({"button": given.get("button", "left")}, "button", BUTTONS)
    double = given.get("double", False)
    if not isinstance(double, bool):
        raise NoCall("`double` is true or false.")
    found = _named(given, tree, numbers, "element") if given.get("element") is not None else None
    if isinstance(found, DeskWindow):  # it may be covered, so that its place is another's
        title = "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in found.title.removesuffix("…"))
        return (("search", "--onlyvisible", "--name", f"^{title}", "windowactivate", "%1"),)
    times = ("--repeat", "2", "--delay", "60") if double else ()
    return (_to(_place(given, tree, numbers)), ("click", *times, button))


def _place(given: Mapping[str, object], tree: Tree, numbers: Numbers, key: str = "") -> tuple[int, int]:
    """Where a call points to: an element, or x and y."""
    if given.get(f"{key}element") is not None:
        return _named(given, tree, numbers, f"{key}element").place
    if given.get(f"{key}x") is None or given.get(f"{key}y") is None:
        raise NoCall(f"Give `{key}element`, or `{key}x` and `{key}y`.")
    x = _number(given[f"{key}x"], f"{key}x", 0, WIDTH - 1)
    return round(x), round(_number(given[f"{key}y"], f"{key}y", 0, HEIGHT - 1))


def _named(given: Mapping[str, object], tree: Tree, numbers: Numbers, key: str) -> Element | DeskWindow:
    """The element of a number, or of a name that only one has."""
    said = given[key]
    if isinstance(said, str) and said.strip().strip("[]").isdecimal():
        said = int(said.strip().strip("[]")[:9])
    if isinstance(said, int) and not isinstance(said, bool):
        found = numbers.find(tree, said)
        if found is None:
            raise NotThere(f"There is no element {said} on the screen.")
        return found
    if not isinstance(said, str) or not said.strip():
        raise NoCall(f"`{key}` is the number of an element, or its name.")
    named = [each for each in tree.elements if said.strip() in (each.name, each.text.strip())]
    if len(named) != 1:
        raise NotThere(f"{len(named) or 'No'} elements are called {said.strip()[:80]!r}; give the number of one.")
    return named[0]


def _typed(text: str) -> tuple[tuple[str, ...], ...]:
    """Keys that write a text. Signs that the keyboard does not have are written by their number, as GTK reads it."""
    calls: list[tuple[str, ...]] = []
    run = ""
    for sign in text:
        if sign not in "\n\t" and not sign.isprintable():
            raise NoCall("`text` has characters that no key writes; use `key` for keys that write nothing.")
        if sign.isascii() and sign not in "\n\t":
            run += sign
            continue
        calls += [_plain(run)] if run else []
        run = ""
        if sign in "\n\t":
            calls.append(("key", "Return" if sign == "\n" else "Tab"))
        else:
            calls += [("key", "ctrl+shift+u"), _plain(f"{ord(sign):x}"), ("key", "space")]
    return (*calls, _plain(run)) if run else tuple(calls)


def _plain(text: str) -> tuple[str, ...]:
    return ("type", "--clearmodifiers", "--delay", TYPE_MS, "--", text)


def _keys(said: str) -> list[str]:
    """Combinations as xdotool names them, as `ctrl+s`."""
    found = []
    for combination in said.split()[: MOST_KEYS + 1]:
        *before, last = combination.split("+")
        modifiers = [MODIFIERS.get(word.lower()) for word in before]
        key = NAMES.get(last.lower(), last.upper() if last.lower().startswith("f") and len(last) > 1 else last)
        if None in modifiers or not (key in NAMES.values() or _KEY.fullmatch(key)):
            raise NoCall(f"{combination[:40]!r} is no combination of keys; they are as ctrl+s, alt+F4, Return, Down.")
        found.append("+".join([*(each for each in modifiers if each), key]))
    if not 1 <= len(found) <= MOST_KEYS:
        raise NoCall(f"Give 1 to {MOST_KEYS} combinations of keys, with a space between two.")
    return found


def _to(place: tuple[int, int]) -> tuple[str, ...]:
    return ("mousemove", str(place[0]), str(place[1]))


def _text(given: Mapping[str, object], key: str, most: int) -> str:
    said = given.get(key)
    if not isinstance(said, str) or not 1 <= len(said) <= most:
        raise NoCall(f"`{key}` is a text of 1 to {most} characters.")
    return said


def _number(said: object, key: str, least: float, most: float) -> float:
    if isinstance(said, str) and said.strip().isdecimal():
        said = int(said.strip()[:9])
    if not isinstance(said, (int, float)) or isinstance(said, bool) or not least <= said <= most:
        raise NoCall(f"`{key}` is a number from {least:g} to {most:g}.")
    return said


def _one_of(given: Mapping[str, object], key: str, known: Mapping[str, str]) -> str:
    said = given.get(key)
    if not isinstance(said, str) or said.lower() not in known:
        raise NoCall(f"`{key}` is one of {', '.join(known)}.")
    return known[said.lower()]


def _tool(name: str, about: str, needed: Sequence[str] = (), /, **parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    asked = {"type": "object", "properties": parameters, "required": list(needed)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": asked}}


_ELEMENT = {"type": ["integer", "string"], "description": "The number of an element, or its name."}
_X = {"type": "integer", "description": f"0 to {WIDTH - 1}, from the left"}
_Y = {"type": "integer", "description": f"0 to {HEIGHT - 1}, from the top"}
_PLACE = {"element": _ELEMENT, "x": _X, "y": _Y}
TOOLS = (
    _tool(
        "click",
        "Click on an element or a place.",
        **_PLACE,
        button={"type": "string", "enum": list(BUTTONS)},
        double={"type": "boolean"},
    ),
    _tool("type", "Type a text with the keyboard; a line break is Return.", ["text"], text={"type": "string"}),
    _tool("key", "Press keys, as ctrl+s or Return; several with a space between.", ["keys"], keys={"type": "string"}),
    _tool(
        "scroll",
        "Turn the mouse wheel over an element or a place.",
        ["direction"],
        **_PLACE,
        direction={"type": "string", "enum": list(NOTCHES)},
        times={"type": "integer"},
    ),
    _tool(
        "drag",
        "Drag with the left button from one element or place to another.",
        **_PLACE,
        to_element=_ELEMENT,
        to_x=_X,
        to_y=_Y,
    ),
    _tool("wait", "Wait, then look again.", ["seconds"], seconds={"type": "number"}),
    _tool(
        "open",
        f"Open a program: {'; '.join(f'{name}, {program.about}' for name, program in PROGRAMS.items())}.",
        ["program"],
        program={"type": "string", "enum": list(PROGRAMS)},
    ),
    _tool(SUBMIT, "Hand the task in when it is done."),
)
