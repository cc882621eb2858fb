"""What a person asks in a request: their own last words, without what agents put around them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agents.known import BLOCKS, ENVELOPES, INTERNAL
from turnwise.messages import text_of
from turnwise.patterns import between
from turnwise.types import Message

LONGEST = 2000
"""Characters of a question that are looked at: its beginning and its end, where a long paste has its words."""


def question_of(messages: Sequence[Message]) -> str:
    """The person's words of the current turn; empty where there are none.

    While calls and their results go on, the question is the one that they serve: so is the set of skills, and the
    prompt is bridged.
    """
    for message in reversed(messages):
        if message.role == "user":
            text = _clipped(text_of(message))
            if not any(begins.search(text[:80]) for begins in INTERNAL) and (words := own_words_of(text)):
                return words
    return ""


def own_words_of(text: str) -> str:
    """A message without the envelope of its channel and the notes of an agent."""
    for name in sorted(BLOCKS):
        for start, end in reversed(list(between(text, f"<{name}>", f"</{name}>"))):
            text = f"{text[:start]} {text[end:]}"
    for envelope in ENVELOPES:
        text = envelope.sub(" ", text)
    return " ".join(text.split())


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} {text[-LONGEST // 2 :]}"
