"""What one step adds to an answer: pieces of reasoning, content and tool calls, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(slots=True)
class CallPiece:
    """A piece of tool call number ``index``: its ``name`` once, at the start, then its ``arguments`` (JSON text).

    ``last``: the call is known to end here. Who cannot know leaves it False.
    """

    index: int
    name: str | None = None
    arguments: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer's text."""

    kind: Literal["reasoning", "content"]
    text: str


Piece = TextPiece | CallPiece


class AnswerParts:
    """What one step added to the answer: ``pieces`` in order. Made by kind, reasoning comes first and calls last.

    ``given``: pieces of choices as an upstream sent them, which go out as they came: those of the choices behind the
    first, and of the first one its log-probs.
    """

    __slots__ = ("given", "pieces")

    def __init__(self, reasoning: str = "", content: str = "", calls: Sequence[CallPiece] = ()) -> None:
        self.pieces: list[Piece] = []
        self.given: list[dict[str, Any]] = []
        self.add("reasoning", reasoning)
        self.add("content", content)
        self.pieces += calls

    def __bool__(self) -> bool:
        return bool(self.pieces or self.given)

    def __repr__(self) -> str:
        return f"AnswerParts({self.pieces})"

    def add(self, kind: Literal["reasoning", "content"], text: str) -> None:
        if text:
            self.pieces.append(TextPiece(kind, text))

    def extend(self, more: AnswerParts) -> None:
        """Add what came after it."""
        self.pieces += more.pieces

    @property
    def reasoning(self) -> str:
        return self._text("reasoning")

    @property
    def content(self) -> str:
        return self._text("content")

    @property
    def calls(self) -> list[CallPiece]:
        return [piece for piece in self.pieces if isinstance(piece, CallPiece)]

    def _text(self, kind: str) -> str:
        return "".join(piece.text for piece in self.pieces if isinstance(piece, TextPiece) and piece.kind == kind)
