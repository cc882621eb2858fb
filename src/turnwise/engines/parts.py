"""What one step adds to an answer: pieces of reasoning, content and tool calls, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """What one piece of text added to the answer: `pieces` in their order, and views of them by kind.

    Made from its views, it has reasoning before content before calls. A view grows at the end: `parts.content += more`.
    """

    __slots__ = ("_texts", "calls")

    def __init__(self, reasoning: str = "", content: str = "", calls: list[CallPiece] | None = None) -> None:
        self._texts: list[tuple[int, TextPiece]] = []  # each with the number of the call pieces before it
        self.calls: list[CallPiece] = []
        self.add("reasoning", reasoning)
        self.add("content", content)
        self.calls = [] if calls is None else calls

    def __bool__(self) -> bool:
        return bool(self._texts or self.calls)

    def __repr__(self) -> str:
        return f"AnswerParts({self.pieces})"

    @property
    def pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        done = 0
        for before, text in self._texts:
            pieces += [*self.calls[done:before], text]
            done = before
        return pieces + self.calls[done:]

    def add(self, kind: Literal["reasoning", "content"], text: str) -> None:
        if text:
            self._texts.append((len(self.calls), TextPiece(kind, text)))

    def extend(self, more: AnswerParts) -> None:
        """Add what came after it."""
        before = len(self.calls)
        self._texts += [(before + at, text) for at, text in more._texts]
        self.calls += more.calls

    @property
    def reasoning(self) -> str:
        return self._view("reasoning")

    @reasoning.setter
    def reasoning(self, text: str) -> None:
        self.add("reasoning", text[len(self.reasoning) :])

    @property
    def content(self) -> str:
        return self._view("content")

    @content.setter
    def content(self, text: str) -> None:
        self.add("content", text[len(self.content) :])

    def _view(self, kind: str) -> str:
        return "".join(text.text for _, text in self._texts if text.kind == kind)
