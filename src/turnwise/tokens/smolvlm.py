"""A `renderers.Renderer` for SmolVLM and Idefics3: the words of their template, and pictures as their processor's ids.

A picture stands for the ids that the processor would put there, told from its size alone; where in the ids it stands
comes with them. Text that looks like a picture's mark, or ends a turn, is only text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from renderers.base import Message, RenderedTokens, ToolSpec

from turnwise.pictures.layout import PictureLayout
from turnwise.tokens.chatml import ChatMLRenderer, RenderedPieces, described, text_in
from turnwise.tokens.pictured import SeeingPieces, parts_of, taken

_AROUND, _SEEN, _WHOLE, _END = "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"


class SmolVLMRenderer(ChatMLRenderer):
    """SmolVLM's chat over a `tokenizers` file. Tools, which its template does not know, are described as ChatML's."""

    later_systems = True

    def __init__(self, tokenizer_file: Path, layout: PictureLayout) -> None:
        super().__init__(tokenizer_file, None)
        self.layout = layout
        self._end = self._special(_END)
        self._stops = [self._end, *self._stops[1:]]
        self._newline = []  # it belongs to the words of the next turn
        self._opening = self.encode("\nAssistant:")
        self.placeholder = self._special(_SEEN)
        self._around, self._whole = [self._special(_AROUND)], self._mark(_WHOLE)
        self._break, self._last_break = self.encode("\n"), self.encode("\n\n")

    def render(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """All messages as ids, each token with the index of its message (-1 for scaffolding), and the pictures."""
        rendered = SeeingPieces(messages)
        rendered.add([self._start], -1)
        tooled = described(tools)
        if tooled and messages and messages[0]["role"] != "system":
            self._words(rendered, -1, "system", [tooled], first=True)
            tooled = None
        for i, message in enumerate(messages):
            parts = self._parts(message)
            if i == 0 and tooled:
                parts = [*parts, f"\n\n{tooled}"]
            self._words(rendered, i, message["role"], parts, first=len(rendered.ids) == 1)
        if add_generation_prompt:
            rendered.add(self._opening, -1)
        elif messages:
            rendered.add(self._break, -1)
        return rendered.result()

    def _turns(self, rendered: RenderedPieces, messages: list[Message]) -> None:
        for i, message in enumerate(messages):
            self._words(rendered, i, message["role"], self._parts(message), first=False)

    def _collecting(self, messages: list[Message]) -> RenderedPieces:
        return SeeingPieces(messages)

    def _answer_text(self, message: Message) -> str:
        return f" {text_in(message).removeprefix(' ')}"

    def _parts(self, message: Message) -> list[str | dict[str, Any]]:
        """Words, and pictures as they were taken in: their hash and size."""
        if (parts := parts_of(message)) is not None:
            return parts
        text = text_in(message)  # an answer begins with the blank that the model sampled behind the colon
        return [text.removeprefix(" ") if message["role"] == "assistant" else text]

    def _words(
        self, rendered: RenderedPieces, index: int, role: str, parts: list[str | dict[str, Any]], *, first: bool
    ) -> None:
        blank = "" if parts and isinstance(parts[0], dict) else " "
        text = f"{'' if first else chr(10)}{role.capitalize()}:{blank}"
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            rendered.add(self.encode(text), index)
            text = ""
            assert isinstance(rendered, SeeingPieces)
            self._see(rendered, index, part)
        rendered.add(self.encode(text), index)
        rendered.add([self._end], index)

    def _see(self, rendered: SeeingPieces, index: int, image: dict[str, Any]) -> None:
        """Add a picture's ids. Raises ValueError for one that was not taken in, so that its size is not known."""
        sha256, width, height = taken(image)
        tiling = self.layout.tiling(width, height)
        tile = [self.placeholder] * self.layout.tokens
        ids: list[int] = []
        for row in range(1, tiling.rows + 1):
            for column in range(1, tiling.columns + 1):
                ids += [*self._around, *self._mark(f"<row_{row}_col_{column}>"), *tile]
            ids += self._break if row < tiling.rows else self._last_break
        ids += [*self._around, *self._whole, *tile, *self._around]
        sizes = {"width": width, "height": height, "shown_width": tiling.width, "shown_height": tiling.height}
        rendered.see(ids, index, sha256, sizes | {"placeholder": self.placeholder})

    def _mark(self, token: str) -> list[int]:
        """A token of the processor's, or its text where the vocabulary has none."""
        found = self.tokenizer.token_to_id(token)
        return self.encode(token) if found is None else [found]
