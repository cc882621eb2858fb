"""Solves tasks of MiniWoB++ from the text that an agent sees: a rule for each, and nothing else of the page.

It shows that a task can be solved by text alone, and its episodes are what a model is fine-tuned on. A rule sees one
observation and gives calls; a task that takes more than one step is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from turnwise.environments.base import Action, Call, Observation
from turnwise.patterns import anchored

_ELEMENT = anchored(r'(<(?:[^"]|"[^"]*")*?) at \((\d+), (\d+)\)(.*)')
"""A line of an element, its place, and what is said behind it. What stands between quotation marks is no place."""


@dataclass(frozen=True, slots=True)
class SeenElement:
    """A line of an observation. ``kind``: of an input its type. ``name`` and ``value`` are "" where it has none.

    ``marks``: what else is said of it (checked, focused).
    """

    tag: str
    kind: str
    name: str
    value: str
    x: int
    y: int
    marks: frozenset[str] = frozenset()

    def click(self) -> Call:
        return Call("click", {"x": self.x, "y": self.y})


class Unsolved(Exception):
    """The page does not have what the rule looks for."""


@dataclass(frozen=True, slots=True)
class SeenPage:
    """What is seen: the goal, and the elements below it."""

    goal: str
    elements: Sequence[SeenElement]

    def of(self, *tags: str) -> list[SeenElement]:
        return [e for e in self.elements if e.tag in tags]

    def named(self, name: str, *tags: str) -> SeenElement:
        """The last element of this name, case apart: what is named in the goal's own line stands before it."""
        found = [e for e in self.elements if e.name.casefold() == name.casefold() and (not tags or e.tag in tags)]
        if not found:
            raise Unsolved(f"nothing is named {name!r}")
        return found[-1]

    def first(self, *tags: str) -> SeenElement:
        if not (found := self.of(*tags)):
            raise Unsolved(f"there is no {tags[0]}")
        return found[0]

    def quoted(self, n: int = 0) -> str:
        """The n-th text in quotation marks of the goal."""
        parts = self.goal.split('"')[1::2]
        if n >= len(parts):
            raise Unsolved("the goal quotes nothing")
        return parts[n]

    def submit(self) -> Call:
        named = (e for e in self.of("button") if e.name.casefold() in ("submit", "login"))
        return next(named, self.of("button")[-1]).click()

    def typed(self, *texts: str) -> list[Call]:
        """Each text into a field of its own, then submit."""
        fields = [e for e in self.of("input", "textarea") if e.kind in ("text", "password")]
        if len(fields) < len(texts):
            raise Unsolved("there are too few fields")
        found: list[Call] = []
        for field, text in zip(fields, texts, strict=False):
            found += [field.click(), Call("write", {"text": text})]
        return [*found, self.submit()]


MOST_AT_ONCE = 6
"""Boxes that one answer checks: with all that is said of each, an answer stays short."""
Rule = Callable[[SeenPage], Sequence[Call]]


def _after(text: str, word: str) -> str:
    return text.split(word, 1)[1] if word in text else ""


def _chosen(s: SeenPage) -> list[str]:
    """The names in "Select A, B and click Submit."."""
    return [name.strip() for name in _after(s.goal, "Select ").rsplit(" and click", 1)[0].split(",")]


def _checkboxes(s: SeenPage) -> list[Call]:
    names = [] if _chosen(s) == ["nothing"] else _chosen(s)
    left = [box for name in names if "checked" not in (box := s.named(name, "input")).marks]
    clicks = [box.click() for box in left[:MOST_AT_ONCE]]
    return clicks if len(left) > MOST_AT_ONCE else [*clicks, s.submit()]


def _dialog(s: SeenPage) -> list[Call]:
    name = s.quoted()
    return [s.named("Close" if name == "x" else name, "button").click()]


def _sum(text: str) -> int:
    left, sign, right = text.replace("=", " ").split()[:3]
    a, b = int(left), int(right)
    return {"+": a + b, "-": a - b, "x": a * b}[sign]


def _arithmetic(s: SeenPage) -> list[Call]:
    return s.typed(str(_sum(next(e.name for e in s.of("div") if e.name.endswith("=")))))


def _algebra(s: SeenPage) -> list[Call]:
    left, right = next(e.name for e in s.of("div") if "=" in e.name and "x" in e.name).split("=")
    first, sign, second = left.split()
    total = int(right)
    if first == "x":
        return s.typed(str(total - int(second) if sign == "+" else total + int(second)))
    return s.typed(str(total - int(first) if sign == "+" else int(first) - total))


def _word(s: SeenPage) -> list[Call]:
    number = int("".join(sign for sign in _after(s.goal, "Find the ").split()[0] if sign.isdigit()))
    words = s.first("p").name.replace(",", "").replace(".", "").split()
    return s.typed(words[number - 1])


def _table(s: SeenPage) -> list[Call]:
    key = _after(s.goal, "value of ").rsplit(" into", 1)[0]
    cells = [e.name for e in s.of("td")]
    return s.typed(cells[cells.index(key) + 1])


def _widget(s: SeenPage) -> list[Call]:
    wanted = s.quoted()
    found = [e for e in s.elements if wanted in (e.tag, e.kind) or (wanted == "text" and e.kind == "text")]
    if not found:
        raise Unsolved(f"there is no {wanted}")
    return [found[-1].click()]


def _parity(s: SeenPage) -> list[Call]:
    numbers = [e for e in s.of("div") if e.name.lstrip("-").isdigit()]
    found = []
    for number in numbers:
        name = "Odd" if int(number.name) % 2 else "Even"
        found.append(min((e for e in s.of("button") if e.name == name), key=lambda e, y=number.y: abs(e.y - y)).click())
    return [*found, s.submit()]


def _list(s: SeenPage) -> list[Call]:
    wanted = _after(s.goal, "Select ").rsplit(" from the list", 1)[0]
    field = s.first("select")
    # The keys choose in a list that has the focus; its own window could not be clicked into.
    return [field.click(), Call("press_keys", {"keys": ["Escape"]}), Call("write", {"text": wanted}), s.submit()]


def _collapsible(s: SeenPage) -> list[Call]:
    section = s.first("h3")
    return [s.submit()] if "focused" in section.marks else [section.click(), Call("wait", {"seconds": 1})]


def _nth_field(s: SeenPage) -> list[Call]:
    number = int("".join(sign for sign in _after(s.goal, "into the ").split()[0] if sign.isdigit()))
    return [s.of("input")[number - 1].click()]


def _grid(s: SeenPage) -> list[Call]:
    across, down = (int(part) for part in _after(s.goal, "(").split(")")[0].split(","))
    dots = s.of("circle")
    xs, ys = sorted({e.x for e in dots}), sorted({e.y for e in dots})
    if len(xs) != 5 or len(ys) != 5:
        raise Unsolved("this is no grid of 5 by 5")
    return [Call("click", {"x": xs[across + 2], "y": ys[2 - down]})]


RULES: dict[str, Rule] = {
    "click-test": lambda s: [s.first("button").click()],
    "click-test-2": lambda s: [s.named("ONE", "button").click()],
    "click-button": lambda s: [s.named(s.quoted(), "button").click()],
    "click-button-sequence": lambda s: [s.named(name, "button").click() for name in ("ONE", "TWO")],
    "click-link": lambda s: [s.named(s.quoted(), "span").click()],
    "click-option": lambda s: _checkboxes(s),
    "click-checkboxes": _checkboxes,
    "click-checkboxes-large": _checkboxes,
    "click-checkboxes-transfer": _checkboxes,
    "click-dialog": lambda s: [s.named("Close", "button").click()],
    "click-dialog-2": _dialog,
    "click-tab": lambda s: [s.named(_after(s.goal, "Click on ").rstrip("."), "a").click()],
    "click-widget": _widget,
    "click-collapsible": _collapsible,
    "choose-list": _list,
    "enter-text": lambda s: s.typed(s.quoted()),
    "enter-text-2": lambda s: s.typed(s.quoted().upper() if "upper case" in s.goal else s.quoted().lower()),
    "enter-text-dynamic": lambda s: s.typed(s.quoted()),
    "enter-password": lambda s: s.typed(s.quoted(), s.quoted()),
    "login-user": lambda s: s.typed(s.quoted(0), s.quoted(1)),
    "focus-text": lambda s: [s.first("input").click()],
    "focus-text-2": _nth_field,
    "simple-arithmetic": _arithmetic,
    "simple-algebra": _algebra,
    "find-word": _word,
    "read-table": _table,
    "odd-or-even": _parity,
    "grid-coordinate": _grid,
    "text-transform": lambda s: s.typed("".join(e.name for e in s.of("span"))),
}


class MiniwobOracle:
    """Plays one task of this name by its rule; gives up where the rule does not fit what is seen."""

    def __init__(self, name: str) -> None:
        self._rule = RULES[name]
        self._goal: str | None = None

    def act(self, observation: Observation) -> Action | None:
        screen = screen_of(observation.text, self._goal)
        self._goal = screen.goal
        try:
            return Action(tuple(self._rule(screen)))
        except (Unsolved, ValueError, LookupError, StopIteration):
            return None


def screen_of(text: str, goal: str | None = None) -> SeenPage:
    """An observation, read. ``goal``: what it was, where it was told before."""
    parts = text.split("\n\n")
    elements = list(elements_in(parts[-1]))
    return SeenPage(goal if goal is not None else parts[-2] if len(parts) > 1 else "", elements[1:])


def elements_in(page: str) -> Iterator[SeenElement]:
    """Those of a page's text; the first is what asks for the goal."""
    for line in page.splitlines():
        if (found := _ELEMENT.match(line)) is None:
            continue
        said, x, y, rest_of_line = found.groups()
        marks = {mark for mark in ("checked", "disabled") if said.endswith(f" {mark}") or f'" {mark}' in said}
        marks |= {"focused"} if rest_of_line.startswith(" focused") else set()
        tag, _, rest = said.removesuffix(" disabled").removesuffix(" checked")[1:].partition(">")
        kind, _, quoted = rest.partition('"')
        quoted, _, value = quoted.partition('" value "') if '" value "' in quoted else (quoted, "", "")
        if kind.endswith("value "):
            kind, quoted, value = kind.removesuffix("value "), "", quoted
        name = quoted.removesuffix('"')
        yield SeenElement(tag, kind.strip(), name, value.removesuffix('"'), int(x), int(y), frozenset(marks))
