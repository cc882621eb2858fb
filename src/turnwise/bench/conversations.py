"""The requests of the latency bench: single questions, and agents' histories that grow by what was said.

Bodies are put together from bytes made beforehand, so that making the load costs next to nothing. Every conversation
opens with words of its own: no cache can know it before its first request.
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
        self.growing = growing
        rest = max(0, size - MESSAGE_BYTES)
        self._opening = _text(rng, min(size, MESSAGE_BYTES) - 24)
        pairs = rest // (2 * MESSAGE_BYTES)
        filler = [_message(role, _text(rng, MESSAGE_BYTES)) for _ in range(pairs) for role in ("assistant", "user")]
        self._filler = b"".join(b"," + message for message in filler)
        self._answer = b"," + _message("assistant", answer)
        self._replies = [b"," + _message("user", f"{i} " + _text(rng, REPLY_BYTES)) for i in range(TURNS)]

    def __iter__(self) -> Iterator[bytes]:
        """One client's bodies, without end."""
        while True:
            history = _message("user", f"task {next(_numbers)}: {self._opening}") + self._filler
            for reply in self._replies if self.growing else self._replies[:1]:
                yield _HEAD + history + b"]}"
                history += self._answer + reply


def _text(rng: random.Random, size: int) -> str:
    words = ""
    while len(words) < size:
        words += " ".join(rng.choices(_WORDS, k=40)) + " "
    return words[: max(size, 1)]


def _message(role: str, content: str) -> bytes:
    return f'{{"role":"{role}","content":"{content}"}}'.encode()
