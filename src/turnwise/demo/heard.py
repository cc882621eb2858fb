"""What became of what the person said: whether it was judged, which wish was heard in it, and which version learned it.

It asks a home as any user would, by `turnwise sessions show` and `turnwise versions list`, and reaches into nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.types import Exclusion, TurnState

ASK_LIMIT_S = 60.0

BECAME = {
    TurnState.SERVED: "not judged yet",
    TurnState.WAITING: "not judged yet",
    TurnState.JUDGING: "not judged yet",
    TurnState.JUDGED: "judged",
    TurnState.READY: "waits for an update",
    TurnState.LEASED: "in an update that was under way",
}
LEFT_OUT = {
    Exclusion.NO_SIGNAL: "neither praise nor blame nor a wish was heard in it",
    Exclusion.NO_VALID_VOTE: "the judge could not judge it",
    Exclusion.NOT_TRAINABLE: "the answer has nothing to learn from",
    Exclusion.STALE: "too many versions had come since the answer",
    Exclusion.SUPERSEDED: "another answer took the place of this one",
    Exclusion.SET_ASIDE: "its conversation is kept aside, for the gate to try versions on",
    Exclusion.REFUSED_BY_GATE: "the gate refused the updates that it was in",
}
"""Why a turn is never trained on, where the journal's own words are not plain enough for a report."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the person said to an answer, the judge's score and hint, and what became of the turn.

    ``left_out``: the journal's reason of a turn that is excluded. ``learned_by``: the versions that were trained on it.
    """

    said: str
    score: int | None
    hint: str | None
    state: str
    left_out: str | None = None
    learned_by: list[int] = field(default_factory=list)

    def became(self) -> str:
        """What became of it, in a few plain words."""
        of = f" by version{'s' * (len(self.learned_by) > 1)} {' and '.join(map(str, self.learned_by))}"
        learned = "learned" + of * bool(self.learned_by)
        if self.state == TurnState.TRAINED:
            return learned
        if self.state == TurnState.EXCLUDED:
            reason = Exclusion(self.left_out)  # the journal excludes no turn without one
            now = f"left out: {LEFT_OUT.get(reason, reason)}"
        else:
            now = BECAME[TurnState(self.state)]
        return f"{now}; {learned} before" if self.learned_by else now


async def heard_in(home: Path, sessions: Sequence[str]) -> tuple[list[Heard], list[str]]:
    """What the person said in these sessions, and what could not be read: names of sessions, and the versions."""
    unread: list[str] = []
    versions = await _ask(home, "versions", "list")
    if versions is None:
        unread.append("the list of versions")
    learned = {version["number"]: set(version["turn_ids"]) for version in versions or []}
    heard: list[Heard] = []
    for name in sessions:
        session = await _ask(home, "sessions", "show", name)
        if session is None:
            unread.append(name)
            continue
        heard += _in_session(session, learned)
    return heard, unread


async def _ask(home: Path, *words: str) -> Any:
    """What a command of turnwise says as JSON; None where it says none."""
    command = [sys.executable, "-P", "-m", "turnwise", *words, "--home", str(home), "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    try:
        told, _ = await asyncio.wait_for(process.communicate(), ASK_LIMIT_S)
        return json.loads(told)
    except (TimeoutError, json.JSONDecodeError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _in_session(session: dict[str, Any], learned: dict[int, set[str]]) -> list[Heard]:
    """The turns to which the person said something, judged or not."""
    found = []
    for turn in session["turns"]:
        said = [m.get("content") or "" for m in turn["next_state"] or [] if m.get("role") == "user"]
        if not said:
            continue
        last = turn["verdicts"][-1] if turn["verdicts"] else {"score": None, "hint": None}
        by = sorted(number for number, turns in learned.items() if turn["id"] in turns)
        found.append(Heard(str(said[-1]), last["score"], last["hint"], turn["state"], turn["exclusion"], by))
    return found
