"""The requests of the latency bench: single questions, and agents' histories that grow by what was said.

Bodies are put together from bytes made beforehand, so that making the load costs next to nothing. Every message but the
engine's own answer begins with its conversation's number: no cache, of prefixes or of messages, can know one before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

TURNS = 10
"""Requests of one growing conversation, before the next one opens."""

MESSAGE_BYTES = 2_000
"""A longer history is made of messages of this size, from both sides, as an agent's is."""

REPLY_BYTES = 200
_HEAD = b'{"model":"turnwise","stream":true,"max_tokens":64,"messages":['
_END = b"]}"
_NUMBER = "\0"
"""Where the number of the conversation goes: a character that no JSON has."""
_WORDS = [
    "the",
    "file",
    "was",
    "changed",
    "by",
    "a",
    "test",
    "that",
    "reads",
    "every",
    "line",
    "and",
    "then",
    "returns",
    "how",
    "many",
    "of",
    "them",
    "begin",
    "with",
    "a",
    "number",
    "so",
    "please",
    "look",
    "at",
    "what",
    "it",
    "prints",
    "first",
    "before",
    "you",
    "call",
    "another",
    "tool",
    "or",
    "write",
    "more",
    "code",
    "into",
    "this",
    "folder",
    "again",
]
_numbers = itertools.count()


class Histories:
    """Bodies of `size` bytes of messages; `answer` is what the engine says, and so what a growing history repeats."""

    def __init__(self, size: int, growing: bool, answer: str) -> None:
        rng = random.Random(size)
        pairs = max(0, size - MESSAGE_BYTES) // (2 * MESSAGE_BYTES)
        opening = [_message("user", f"task {_NUMBER}: " + _text(rng, min(size, MESSAGE_BYTES) - 24))]
        for role in ("assistant", "user") * pairs:
            opening.append(_message(role, f"{_NUMBER} " + _text(rng, MESSAGE_BYTES - 10)))
        said = "," + _message("assistant", answer) + ","
        replies = [_message("user", f"{_NUMBER} {i} " + _text(rng, REPLY_BYTES)) for i in range(1, TURNS)]
        self._opening = _pieces(",".join(opening))
        self._replies = [_pieces(said + reply) for reply in replies] if growing else []

    def __iter__(self) -> Iterator[bytes]:
        """One client's bodies, without end."""
        while True:
            number = b"%09d" % next(_numbers)
            history = number.join(self._opening)
            yield _HEAD + history + _END
            for reply in self._replies:
                history += number.join(reply)
                yield _HEAD + history + _END


def _pieces(text: str) -> list[bytes]:
    """What stands between the places of the number, so that one join makes a body of any size."""
    return text.encode().split(_NUMBER.encode())


def _text(rng: random.Random, size: int) -> str:
    words = ""
    while len(words) < size:
        words += " ".join(rng.choices(_WORDS, k=40)) + " "
    return words[: max(size, 1)]


def _message(role: str, content: str) -> str:
    return f'{{"role":"{role}","content":"{content}"}}'
