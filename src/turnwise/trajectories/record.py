"""Trajectories as lines of a file: the task, what was said and done, what came of it, and what a judge would look at.

`turnwise rollout --save` and `turnwise eval` write them; the judge's commands and the viewer read them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.trajectories.trail import Trail, as_json, from_json

MOST_OF_A_LINE = 256 << 20
"""Characters of a trajectory; its pictures are in it."""


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """One answer of a model: tokens of its prompt and of itself, what it thought before it, and the last picture that
    it was shown, which later histories leave out."""

    prompt_tokens: int
    completion_tokens: int
    thought: str = ""
    picture: bytes | None = None


@dataclass(frozen=True, slots=True)
class SavedTrajectory:
    """One rollout that ended. ``messages`` are in OpenAI's chat shape; ``verified``: a verifier gave its reward, not a
    judge; ``spent``: of each answer, where a model gave them."""

    session: str
    task_id: str
    environment: str
    prompt: str
    reward: float | None
    failure: str | None = None
    cut_off: str | None = None
    steps: int = 0
    verified: bool = True
    level: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Mapping[str, Any]] = ()
    spent: Sequence[AnswerCost] = ()
    trail: Trail | None = None
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.reward is not None and self.reward >= 1


def written_trajectory(saved: SavedTrajectory) -> str:
    """A trajectory as a line."""
    said = {name: getattr(saved, name) for name in SavedTrajectory.__slots__}
    said["spent"] = [[s.prompt_tokens, s.completion_tokens, s.thought, _coded(s.picture)] for s in saved.spent]
    said["trail"] = None if saved.trail is None else as_json(saved.trail)
    said |= {"messages": list(saved.messages), "details": dict(saved.details)}
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace").decode()


def _coded(picture: bytes | None) -> str | None:
    return None if picture is None else base64.b64encode(picture).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def saved_trajectories(path: Path) -> Iterator[SavedTrajectory]:
    """Those of a file, in their order. A last line that was cut off by a kill is left out; any other that cannot be
    read is a DataError with its number."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MOST_OF_A_LINE), ""), 1):
                if not line.strip():
                    continue
                try:
                    yield _read(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, DataError) as e:
                    if not line.endswith("\n"):
                        return
                    raise DataError(
                        f"{path} line {number} is no trajectory ({type(e).__name__}: {str(e)[:80]}); give a file of "
                        "`turnwise rollout --save` or `turnwise eval`"
                    ) from None
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the trajectories {path} cannot be read: {e}") from e


def _read(given: Any) -> SavedTrajectory:
    if not isinstance(given, dict) or not isinstance(given["session"], str) or not isinstance(given["prompt"], str):
        raise TypeError("a session and a prompt are texts")
    known = {name: given[name] for name in SavedTrajectory.__slots__ if name in given}
    known["spent"] = [AnswerCost(int(p), int(c), str(t), _decoded(png)) for p, c, t, png in given.get("spent", [])]
    known["trail"] = None if given.get("trail") is None else from_json(given["trail"])
    details, messages = given.get("details", {}), given.get("messages", [])
    if not isinstance(details, dict):
        raise TypeError("details are an object")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise TypeError("messages are a list of objects")
    tokens = details.get("judge_tokens", [0, 0])
    if not isinstance(tokens, list) or [type(count) for count in tokens] != [int, int]:
        raise TypeError("judge_tokens are two whole numbers")
    reward = given.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, (int, float))):
        raise TypeError("a reward is a number")
    return SavedTrajectory(**known)
