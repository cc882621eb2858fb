"""Verdicts on saved trajectories, a line each in one file for all judges; and such verdicts as conversations to learn.

A line has the session, whose verdict it is, what it said, and what is known: the verifier's word, where there was one.
A person may put a ``label`` into any line, which counts before that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.judges.trajectory.agreement import confusion
from turnwise.judges.trajectory.prompt import judge_prompt
from turnwise.judges.trajectory.verdict import as_words
from turnwise.trajectories.record import SavedTrajectory

VERIFIER = "verifier"
"""The name of the judge whose verdicts are those of the tasks' own verifiers."""


@dataclass(frozen=True, slots=True)
class CollectedVerdict:
    """What one judge said of one trajectory. ``success``: None where its reply had no verdict. ``label``: whether the
    task was done, as its verifier or a person says; None where nobody does."""

    session: str
    judge: str
    success: bool | None
    reply: str
    label: bool | None
    tokens: tuple[int, int] = (0, 0)

    def line(self) -> str:
        said = {"session": self.session, "judge": self.judge, "success": self.success, "label": self.label}
        return json.dumps(said | {"reply": self.reply, "tokens": list(self.tokens)}, ensure_ascii=False)


def is_complete(saved: SavedTrajectory) -> bool:
    """Whether a judge would be asked: the episode ended by itself, and no rule decides it. A failure of the machine, a
    limit and answers out of form are nobody's to judge."""
    return (
        saved.trail is not None
        and saved.failure is None
        and saved.cut_off is None
        and saved.details.get("ended") != "format"
        and bool(saved.trail.steps)
    )


def label_of(saved: SavedTrajectory) -> bool | None:
    """What the task's verifier says; None where a judge gave the reward."""
    return saved.succeeded if saved.verified and saved.reward is not None else None


def verified(saved: SavedTrajectory) -> CollectedVerdict | None:
    """The verifier's word as a verdict, in the words of a judge; None where there is no verifier."""
    label = label_of(saved)
    return None if label is None else CollectedVerdict(saved.session, VERIFIER, label, as_words(label), label)


def collect(
    trajectories: Iterable[SavedTrajectory],
    known: Sequence[CollectedVerdict],
    name: str,
    ask: Callable[[SavedTrajectory], CollectedVerdict | None],
) -> Iterator[tuple[SavedTrajectory, CollectedVerdict]]:
    """A verdict of the judge of this name on each complete trajectory that it has not judged yet."""
    judged = {verdict.session for verdict in known if verdict.judge == name}
    for saved in trajectories:
        if is_complete(saved) and saved.session not in judged:
            judged.add(saved.session)
            found = ask(saved)
            if found is not None:
                yield saved, replace(found, judge=name)


def conversation(saved: SavedTrajectory, verdict: CollectedVerdict, pictures: bool = False) -> str | None:
    """What a judge is sent of this trajectory, and the reply, as a line for `turnwise sft`; None without a verdict. The
    pages stand there as text, or with ``pictures`` as a judge that sees is shown them."""
    if saved.trail is None or verdict.success is None:
        return None
    messages = [*judge_prompt(saved.trail, pictures), {"role": "assistant", "content": verdict.reply}]
    return json.dumps({"messages": messages}, ensure_ascii=False)


def verdicts_in(path: Path) -> list[CollectedVerdict]:
    """The verdicts of a file; none where it is not there yet. Raises DataError with the line that is wrong."""
    if not path.exists():
        return []
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # which no text of JSON has in it
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the verdicts {path} cannot be read: {e}") from e
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_verdict(json.loads(line)))
            except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as e:
                raise DataError(
                    f"{path} line {number}: {type(e).__name__} {str(e)[:80]}; a verdict has session, judge, success "
                    "(true, false or null) and label (the same)"
                ) from None
    return found


def _verdict(row: Any) -> CollectedVerdict:
    if not isinstance(row, dict) or not all(isinstance(row[key], str) for key in ("session", "judge")):
        raise TypeError("session and judge are texts")
    for key in ("success", "label"):
        if row[key] is not None and not isinstance(row[key], bool):
            raise TypeError(f"{key} is true, false or null")
    tokens = row.get("tokens", [0, 0])
    return CollectedVerdict(
        row["session"],
        row["judge"],
        row["success"],
        str(row.get("reply", "")),
        row["label"],
        (int(tokens[0]), int(tokens[1])),
    )


def agreement(verdicts: Sequence[CollectedVerdict], teacher: str | None = None) -> dict[str, Any]:
    """Of each judge in a file: how it stands to the labels, and to the verdicts of ``teacher``.

    Each figure is over the trajectories that both sides have a word on. Raises DataError for an unknown teacher.
    """
    by_judge: dict[str, dict[str, CollectedVerdict]] = {}
    for verdict in verdicts:
        by_judge.setdefault(verdict.judge, {})[verdict.session] = verdict
    if teacher is not None and teacher not in by_judge:
        raise DataError(f"there is no judge {teacher!r} in the file, only {', '.join(sorted(by_judge)) or 'none'}")
    labels = {v.session: v.label for v in verdicts if v.label is not None}
    taught = {s: v.success is True for s, v in by_judge.get(teacher or "", {}).items()}
    judges = {}
    for name, own in by_judge.items():
        judges[name] = {
            "verdicts": len(own),
            "unreadable": sum(verdict.success is None for verdict in own.values()),
            "tokens": sum(sum(verdict.tokens) for verdict in own.values()),
            "labels": _against(own, labels),
            "teacher": _against(own, taught) if teacher is not None and name != teacher else None,
        }
    return {"trajectories": len({v.session for v in verdicts}), "teacher": teacher, "judges": judges}


def _against(own: dict[str, CollectedVerdict], so: dict[str, bool]) -> dict[str, Any]:
    both = [session for session in own if session in so]
    return confusion([own[session].success for session in both], [so[session] for session in both]).figures()
