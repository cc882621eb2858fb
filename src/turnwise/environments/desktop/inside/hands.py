"""Runs beside a desktop with the system's Python: reads the accessibility tree, moves the mouse, and presses keys.

It has a sandbox of its own and imports nothing of turnwise. It is asked and answers with one JSON object a line. The
programs that it looks at are an agent's, so every call has a time limit, and what it tells has a bounded size; whoever
asks believes none of it.
"""

import json
import subprocess
import sys
import time

import gi  # pyright: ignore[reportMissingImports]

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402  # pyright: ignore[reportMissingImports]

CALL_MS = 2000
"""Longest wait for one answer of a program."""
LOOK_S = 10.0
INPUT_S = 20.0
MOST_SEEN = 2500
"""Elements that are looked at."""
MOST_CHILDREN = 300
MOST_DEPTH = 40
MOST_OF_A_NAME = 200
MOST_OF_A_TEXT = 2000
"""Characters."""
TOP = ("frame", "dialog", "alert", "file chooser", "window", "color chooser", "font chooser")
STATES = ("active", "focused", "selected", "checked", "expanded", "pressed", "showing", "sensitive", "editable")
WITH_TEXT = ("text", "entry", "terminal", "paragraph", "label", "icon", "table cell", "password text", "spin button")


def states_of(element):
    kept = element.get_state_set()
    return [name for name in STATES if kept.contains(getattr(Atspi.StateType, name.upper()))]


def place_of(element):
    if "Component" not in Atspi.Accessible.get_interfaces(element):
        return None
    found = Atspi.Component.get_extents(element, Atspi.CoordType.SCREEN)
    return [found.x, found.y, found.width, found.height]


def text_of(element, role):
    """The text, and how many characters it has. Of a terminal the end is told, of others the beginning."""
    if role not in WITH_TEXT or "Text" not in Atspi.Accessible.get_interfaces(element):
        return "", 0
    size = Atspi.Text.get_character_count(element)
    if role != "terminal":
        return Atspi.Text.get_text(element, 0, min(size, MOST_OF_A_TEXT)), size
    shown = Atspi.Text.get_text(element, max(0, size - 4 * MOST_OF_A_TEXT), size).rstrip()
    return shown[-MOST_OF_A_TEXT:], len(shown)


def told(element, role, states):
    name = (element.get_name() or "")[:MOST_OF_A_NAME]
    about = (element.get_description() or "")[:MOST_OF_A_NAME]
    text, size = text_of(element, role)
    which = f"{element.app.bus_name} {element.path}" if element.app else element.path
    return {
        "id": which,
        "kind": role,
        "name": name,
        "about": about,
        "text": text,
        "size": size,
        "states": states,
        "place": place_of(element),
    }


class Look:
    """One look at the whole desktop."""

    def __init__(self):
        self.until = time.monotonic() + LOOK_S
        self.seen, self.windows, self.elements, self.silent, self.cut = 0, [], [], [], False

    def take(self, deep):
        desktop = Atspi.get_desktop(0)
        tops = []
        for number in range(min(desktop.get_child_count(), MOST_CHILDREN)):
            name = "a program"
            try:
                program = desktop.get_child_at_index(number)
                if program is None:
                    continue
                program.clear_cache()
                name = (program.get_name() or name)[:MOST_OF_A_NAME]
                tops += self.tops_of(program, name)
            except GLib.Error:
                self.silent.append(name)
        lit = any("active" in window["states"] for _, window in tops)
        for element, window in tops:
            self.windows.append(window)
            if not deep:
                continue
            if not lit or "active" in window["states"] or window["kind"] == "window":  # which is what menus stand in
                try:
                    self.walk(element, 1, len(self.windows) - 1)
                except GLib.Error:
                    self.silent.append(window["program"])
        return {"windows": self.windows, "elements": self.elements, "silent": self.silent, "cut": self.cut}

    def tops_of(self, program, name):
        found = []
        if (known := program.get_child_count()) < 1:  # one that is too busy to answer seems to have no window
            self.silent.append(name)
        for number in range(min(known, MOST_CHILDREN)):
            top = program.get_child_at_index(number)
            if top is None:
                continue
            role, states = top.get_role_name(), states_of(top)
            if role in TOP and "showing" in states:
                found.append((top, told(top, role, states) | {"program": name}))
        return found

    def walk(self, element, depth, window):
        for number in range(min(element.get_child_count(), MOST_CHILDREN)):
            if self.seen >= MOST_SEEN or depth > MOST_DEPTH or time.monotonic() > self.until:
                self.cut = True
                return
            child = element.get_child_at_index(number)
            if child is None:
                continue
            self.seen += 1
            states = states_of(child)
            role = child.get_role_name()
            if "showing" in states:
                self.elements.append(told(child, role, states) | {"window": window})
            # A page that is shown may itself not say so.
            if "showing" in states or role in ("page tab", "page tab list"):
                self.walk(child, depth + 1, window)


def look(asked):
    """The windows, and where it is to be deep the elements of the one in front."""
    context = GLib.MainContext.default()
    for _ in range(2000):
        if not context.iteration(False):
            break
    return Look().take(asked.get("deep", True))


def hand(asked):
    """Runs xdotool with each of the lists of words, one after the other."""
    until = time.monotonic() + INPUT_S
    for words in asked["calls"]:
        left = max(0.1, until - time.monotonic())
        done = subprocess.run(["xdotool", *words], capture_output=True, timeout=left)
        if done.returncode:
            return {"fault": (done.stderr or done.stdout).decode(errors="replace")[-300:].strip() or "xdotool failed"}
    return {}


def main():
    Atspi.set_timeout(CALL_MS, CALL_MS)
    tasks = {"look": look, "hand": hand}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = tasks[asked["do"]](asked)
        except (GLib.Error, RuntimeError) as e:
            answer = {"fault": f"the accessibility bus does not answer: {str(e)[:200]}"}
        except subprocess.TimeoutExpired:
            answer = {"fault": "the keys could not be pressed in time"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
