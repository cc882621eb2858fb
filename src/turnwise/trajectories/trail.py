"""A trail: what a judge of a whole trajectory is to look at. Data alone, and its form in JSON.

Pictures are PNG; every text of it is of an agent or of a page, and so untrusted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.errors import DataError

LAST_PAGES = 3
"""Pages that a judge is shown, the newest last (OpenWebRL, A.4)."""


@dataclass(frozen=True, slots=True)
class ShownPage:
    """What stood in the window at one moment: as text, and as a picture where one was taken."""

    text: str
    picture: bytes | None = None


@dataclass(frozen=True, slots=True)
class TrailStep:
    """One answer: its words, its calls as text, and what the environment said to each of them."""

    said: str
    calls: tuple[str, ...]
    feedback: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trail:
    """``task``: what was asked for. ``pages``: the last that were seen, at most `LAST_PAGES`. ``answer``: of `done`;
    None where there was none. ``reference``: what is known of a right answer, from whoever wrote the task."""

    task: str
    steps: tuple[TrailStep, ...]
    pages: tuple[ShownPage, ...]
    answer: str | None = None
    reference: str | None = None


def as_json(trail: Trail) -> dict[str, Any]:
    """The trail as plain data; pictures in base64."""
    return {
        "task": trail.task,
        "steps": [{"said": s.said, "calls": list(s.calls), "feedback": list(s.feedback)} for s in trail.steps],
        "pages": [
            {"text": page.text} | ({} if page.picture is None else {"png": base64.b64encode(page.picture).decode()})
            for page in trail.pages
        ],
        "answer": trail.answer,
        "reference": trail.reference,
    }


def from_json(given: object) -> Trail:
    """The trail of such data. Raises DataError where it is none."""
    try:
        return _read(given)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as e:
        raise DataError(f"this is no trail of an episode ({type(e).__name__}: {str(e)[:80]})") from None


def _read(given: Mapping[str, Any]) -> Trail:
    steps = [TrailStep(_text(s["said"]), _texts(s["calls"]), _texts(s["feedback"])) for s in given["steps"]]
    pages = [
        ShownPage(_text(page["text"]), base64.b64decode(page["png"], validate=True) if "png" in page else None)
        for page in given["pages"]
    ]
    answer, reference = given.get("answer"), given.get("reference")
    return Trail(
        _text(given["task"]),
        tuple(steps),
        tuple(pages),
        None if answer is None else _text(answer),
        None if reference is None else _text(reference),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"a list was expected, not {type(values).__name__}")
    return tuple(map(_text, values))
