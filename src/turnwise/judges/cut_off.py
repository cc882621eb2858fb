"""Answers that a token limit cut off: what came back because of the cut says nothing about the answer.

The limit was set by the client or the context, not by the model. A person who asks for the rest, and the error of a
tool whose call was cut in the middle of its arguments, are left out before anything is judged; all else counts.
"""

from __future__ import annotations

import json
from dataclasses import replace

from turnwise.judges.text import sentences
from turnwise.messages import call_answered, calls_of, text_of, with_text
from turnwise.patterns import any_of
from turnwise.types import JudgeTask, Message

NOTE = (
    "The answer was cut off by a token limit that it did not set: that it ends early does not count against it, what "
    "it says until there does."
)
"""What the model judge is told of such an answer."""

_OF_THE_CUT = any_of(
    r"\bcuts? (?:it(?:self)? |you(?:rself)? |that )?(?:off|short)\b",
    r"\b(?:mid|half)[- ]?(?:sentence|word|way|thought|answer)\b",
    r"\bin the middle of (?:a|an|the|your|that) (?:\w+ )?(?:sentence|word|answer|list|line|code|function)\b",
    r"\b(?:is|was|got|are|were|looks|seems|came out|it's|that's) (?:\w+ )?"
    r"(?:truncated|incomplete|unfinished|not finished|not complete)\b",
    r"\byou (?:just |suddenly )?(?:stopped|broke off|ended|did(?:n't| not) finish)\b",
    r"\b(?:what|where)(?: is|'s| are|) the rest\b|\bthe rest (?:of (?:it|that|the|your)|is missing|please)",
    r"^\W*(?:(?:please|ok(?:ay)?|and|yes|sure|can you|could you)\W+)*(?:continue|go on|keep going|carry on)\b",
    r"^\W*(?:(?:please|and|can you|could you)\W+)*finish (?:it|that|your|the)\b",
)


def apart_from_the_cut(task: JudgeTask) -> JudgeTask | None:
    """The task without what came back because its answer was cut off; None when nothing else came back.

    A task whose answer was not cut off is returned as it is.
    """
    if not task.cut_off:
        return task
    broken = {call.id for call in calls_of(task.answer) if not _whole(call.arguments)}
    rest = [m for m in map(_without_the_cut, task.next_state) if m is not None and call_answered(m) not in broken]
    return replace(task, next_state=rest) if rest else None


def _without_the_cut(message: Message) -> Message | None:
    if message.role != "user":
        return message
    said = sentences(text_of(message))
    kept = [s for s in said if not _OF_THE_CUT.search(s)]
    if len(kept) == len(said):
        return message
    return with_text(message, "\n".join(kept)) if kept else None


def _whole(arguments: str) -> bool:
    """Whether the arguments of a call are one JSON object, as a call that was not cut off has them."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
