"""Puts an answer's pieces in an order in which each tool call is whole before anything else comes.

Formats with one open block at a time need that; an upstream may mix the pieces of parallel calls. Nothing is held back
that comes in order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.tokens.answer_pieces import CallPiece, Piece


class OneAtATime:
    """Feed it all pieces, then `finish`."""

    def __init__(self) -> None:
        self._open: int | None = None
        self._ended = False  # the open call is known to be complete
        self._arguments = ""
        self._begun: set[int] = set()
        self._waiting: list[Piece] = []

    def feed(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces that may be written now."""
        self._waiting += pieces
        ready: list[Piece] = []
        while self._waiting and self._pass(ready):
            pass
        return ready

    def finish(self) -> list[Piece]:
        """No more pieces come: what is left, call after call."""
        ready: list[Piece] = []
        while self._waiting:
            self._ended = True
            ready += self.feed([])
        return ready

    def _pass(self, ready: list[Piece]) -> bool:
        """Move what may go from the waiting pieces to `ready`; gives whether any moved."""
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            if isinstance(piece, CallPiece) and piece.index == self._open:
                ready.append(CallPiece(piece.index, None, piece.arguments, piece.last))
                self._arguments += piece.arguments
                self._ended = self._ended or piece.last
            elif self._waiting or not self._free():
                self._waiting.append(piece)
            elif not isinstance(piece, CallPiece):
                self._open = None
                ready.append(piece)
            elif piece.index not in self._begun and piece.name is not None:
                self._begun.add(piece.index)
                self._open, self._ended, self._arguments = piece.index, piece.last, piece.arguments
                ready.append(piece)
            # else it comes after its call was complete, and there is no place for it
        return len(self._waiting) < len(waiting)

    def _free(self) -> bool:
        self._ended = self._ended or is_complete(self._arguments)
        return self._open is None or self._ended


def is_complete(arguments: str) -> bool:
    """Whether a call's arguments are a whole JSON object."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
