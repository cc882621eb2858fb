"""A recorded session for a person to read: what each turn adds to what was said before, and what it is about.

Pure. Clients resend the whole history with every request, and only turns that are sampled token by token are stored
without it; what a client lays out anew counts as said before, as it does for lineage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.journal import Turn
from turnwise.judges.sources.visible import visible
from turnwise.messages import digest_of, from_chat, text_of
from turnwise.types import Message, TurnKind

LOOKED_AT = 20_000
"""Characters of a message in which its first words are looked for."""
ABOUT_CHARS = 60
"""Length of what a session is said to be about."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A turn: so many messages of another one's context, then its own, its answer last. Each stands for its text."""

    base: str | None
    kept: int
    own: list[str]

    @property
    def length(self) -> int:
        return self.kept + len(self.own)


class Transcript:
    """Is told the turns of a session in their order, and says what is new in each."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}
        self._last: str | None = None

    def new(self, turn: Turn, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of a turn's messages, as they are stored, those that came after the turn that it goes on from."""
        base = turn.parent_id if turn.parent_id in self._steps else self._last
        sent = [digest_of(from_chat(message)) for message in messages]
        if turn.extends_parent:
            shared, seen, own = self._steps[base].length if base else 0, 0, sent
        else:
            shared, seen = _known(self._context(base), sent)
            own = sent[shared:]
        answer = [digest_of(turn.answer)] if turn.answer else []
        self._steps[turn.id] = _Step(base, shared, own + answer)
        if turn.kind == TurnKind.MAIN:
            self._last = turn.id
        return messages[seen:]

    def _context(self, turn_id: str | None) -> list[str]:
        parts: list[list[str]] = []
        end = None
        while turn_id is not None:
            step = self._steps[turn_id]
            parts.append(step.own if end is None else step.own[: max(0, end - step.kept)])
            end = step.kept if end is None else min(end, step.kept)
            turn_id = step.base
        return [one for part in reversed(parts) for one in part]


def _known(context: list[str], sent: list[str]) -> tuple[int, int]:
    """How many messages a history shares with an earlier one from its start, and how many of it are no news.

    Where a client changed what came before, its history is known up to the earlier one's last answer.
    """
    differ = (i for i, (before, now) in enumerate(zip(context, sent, strict=False)) if before != now)
    shared = next(differ, min(len(context), len(sent)))
    if shared == len(context) or context[-1] not in sent:
        return shared, shared
    return shared, len(sent) - sent[::-1].index(context[-1])


def about(messages: list[Message]) -> str:
    """The first words of a conversation that are a person's own: agents put blocks of theirs before them."""
    for message in messages:
        if message.role != "user":
            continue
        words = " ".join(_without_blocks(visible(text_of(message)[:LOOKED_AT])).split())
        if words:
            return words if len(words) <= ABOUT_CHARS else f"{words[: ABOUT_CHARS - 1].rstrip()}…"
    return ""


def _without_blocks(text: str) -> str:
    """Without the `<name>…</name>` that it begins with."""
    text = text.lstrip()
    while text.startswith("<") and (name := text[1 : text.find(">")]).replace("-", "").replace("_", "").isalnum():
        end = text.find(f"</{name}>")
        if end < 0:
            break
        text = text[end + len(name) + 3 :].lstrip()
    return text
