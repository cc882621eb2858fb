"""From sampled ids to text while they come: whole characters only, and nothing that may still become a stop string.

Pure bookkeeping around the tokenizer's own decoder; never changes or drops an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"


class Decoder(Protocol):
    """The one method of a tokenizer that is needed here."""

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str: ...


class TextStream:
    """The text of one answer. ``push`` an id, then ``take`` what is safe to show."""

    def __init__(self, decoder: Decoder, stop: Sequence[str] = (), *, skip_special_tokens: bool = True) -> None:
        self._decoder = decoder
        self._stop = tuple(stop)
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        # Decoding a window [start:] beside the part of it already read [start:read] gives the new text in constant
        # time, and keeps a decoder that strips a leading space from doing so in the middle of the answer.
        self._start = 0
        self._read = 0
        self._text = ""
        self._shown = 0

    def push(self, token_id: int) -> str | None:
        """Add an id; returns the stop string that it completed, if any, after cutting the text before it."""
        self._ids.append(token_id)
        searched = len(self._text)
        self._advance(final=False)
        return self._match(searched)

    def finish(self) -> str | None:
        """Let out what was held back, as replacement characters where bytes are missing. Returns as ``push``."""
        searched = len(self._text)
        self._advance(final=True)
        stop = self._match(searched)
        self._stop = ()
        return stop

    def take(self) -> str:
        """Text not taken yet, without a tail that may still grow into a stop string."""
        end = len(self._text) - self._held_back()
        new = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        return new

    def _advance(self, *, final: bool) -> None:
        seen = self._decode(self._ids[self._start : self._read])
        window = self._decode(self._ids[self._start :])
        if len(window) > len(seen) and (final or not window.endswith(REPLACEMENT)):
            self._text += window[len(seen) :]
            self._start, self._read = self._read, len(self._ids)

    def _match(self, searched: int) -> str | None:
        hits = []
        for stop in self._stop:
            at = self._text.find(stop, max(0, searched - len(stop) + 1))
            if at >= 0:
                hits.append((at, stop))
        if not hits:
            return None
        at, stop = min(hits)
        self._text = self._text[:at]
        self._stop = ()
        return stop

    def _held_back(self) -> int:
        longest = 0
        for stop in self._stop:
            for n in range(min(len(stop) - 1, len(self._text) - self._shown), longest, -1):
                if self._text.endswith(stop[:n]):
                    longest = n
                    break
        return longest

    def _decode(self, ids: list[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=self._skip) if ids else ""
