"""A conversation as the steps of an agent: what it saw, thought and said, what it called, and what came of that.

Pure. It takes any agent's messages, of a saved trajectory or of a recorded session, and guesses nothing: what is not
there is empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.messages import call_answered, calls_of, images_of, text_of, thinking_in
from turnwise.patterns import pattern
from turnwise.types import Message

CallsIn = Callable[[str], Sequence[tuple[str, Mapping[str, Any]]]]
"""The calls in the words of an answer, for agents that write them as text."""
_PLACE = pattern(r"(?:^|[^\d])\((\d{1,5}), (\d{1,5})\)")


@dataclass(slots=True)
class AgentStep:
    """One answer. ``picture``: the address of the last picture that was shown before it; ``saw``: the words. ``calls``
    have a name and arguments as text. ``clicks``: places in that picture, in its pixels; two for a drag."""

    number: int
    saw: str = ""
    picture: str | None = None
    thought: str = ""
    said: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    feedback: list[str] = field(default_factory=list)
    clicks: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AgentStory:
    """``before``: what the agent was told at first, by role. ``after``: what was said to its last answer."""

    before: list[tuple[str, str]]
    steps: list[AgentStep]
    after: str


def story_of(messages: Sequence[Message], calls_in: CallsIn | None = None) -> AgentStory:
    """The steps in messages in their order; ``calls_in`` reads calls that an answer has as text."""
    before: list[tuple[str, str]] = []
    steps: list[AgentStep] = []
    heard: list[str] = []
    picture: str | None = None
    for message in messages:
        if message.role == "assistant":
            steps.append(_step(len(steps) + 1, message, picture, heard if steps else [], calls_in))
            heard = []
            continue
        picture = next((image.url for image in reversed(images_of(message))), picture)
        text = text_of(message)
        if not steps:
            before.append((message.role, text))
        elif call_answered(message) is not None and len(steps[-1].feedback) < len(steps[-1].calls):
            add_feedback(steps[-1], text)
        else:
            heard.append(text)
    return AgentStory(before, steps, "\n\n".join(heard))


def _step(
    number: int, message: Message, picture: str | None, heard: Sequence[str], calls_in: CallsIn | None
) -> AgentStep:
    words = text_of(message)
    step = AgentStep(number, "\n\n".join(heard), picture, thinking_in(message), words)
    calls = [(call.name, _given(call.arguments), call.arguments) for call in calls_of(message)]
    if not calls and calls_in is not None:
        calls = [(name, given, json.dumps(dict(given), ensure_ascii=False)) for name, given in calls_in(words)]
    for name, given, text in calls:
        step.calls.append((name, text))
        if places := _places(given):
            step.clicks.append(places)
    return step


def _places(given: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Where a call acts, by its arguments: a place, or two of a drag."""
    pairs = [("x", "y")] if "x" in given else [("x1", "y1"), ("x2", "y2")]
    found = []
    for across, down in pairs:
        x, y = given.get(across), given.get(down)
        if not _is_pixel(x) or not _is_pixel(y):
            return ()
        found.append((round(x), round(y)))  # type: ignore[arg-type]
    return tuple(found)


def _is_pixel(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 100_000


def add_feedback(step: AgentStep, feedback: str) -> None:
    """What was said of the next call of a step. Where a click went that named no place is read of it."""
    step.feedback.append(feedback)
    if len(step.feedback) > len(step.calls):
        return
    name = step.calls[len(step.feedback) - 1][0]
    if name in ("click", "hover") and len(step.clicks) < len(step.feedback):
        found = _PLACE.search(feedback[:2000])
        if found:
            step.clicks.append(((int(found[1]), int(found[2])),))


def _given(arguments: str) -> Mapping[str, Any]:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}
