"""A `renderers.Renderer` for Qwen3-VL: its template's ids, and pictures as the ids that its processor would put there.

`renderers` has one that makes pixels of every picture; here the size of a picture is enough. Words that look like a
picture's mark, or end a turn, are only words.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

from renderers.base import Message, RenderedTokens, ToolSpec

from turnwise.errors import PictureRefused
from turnwise.pictures.patches import PatchLayout
from turnwise.tokens.chatml import RenderedPieces, words_in
from turnwise.tokens.pictured import SeeingPieces, parts_of, taken
from turnwise.tokens.qwen25 import Qwen25Renderer, described

_SEEN, _OPENS, _CLOSES = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"
Parts = list[str | dict[str, Any]]


class QwenSeeingRenderer(Qwen25Renderer):
    """The chat of Qwen3-VL's instruct models over a `tokenizers` file."""

    def __init__(self, tokenizer_file: Path, layout: PatchLayout) -> None:
        super().__init__(tokenizer_file, None)
        self.layout = layout
        self.placeholder = self._special(_SEEN)
        self._before, self._behind = [self._special(_OPENS)], [self._special(_CLOSES)]

    def render(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """All messages as ids, each token with the index of its message (-1 for scaffolding), and the pictures."""
        rendered = SeeingPieces(messages)
        told = bool(messages) and messages[0]["role"] == "system"
        offered = described(tools)
        if told or offered:
            system = _words(messages[0]) + offered if told else offered.lstrip("\n")
            self._turn(rendered, 0 if told else -1, "system", system)
        self._turns(rendered, messages, start=int(told))
        if add_generation_prompt:
            rendered.add(self._opening, -1)
        return rendered.result()

    def _collecting(self, messages: list[Message]) -> RenderedPieces:
        return SeeingPieces(messages)

    def _turns(self, rendered: RenderedPieces, messages: list[Message], start: int = 0) -> None:
        asked = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
        i = start
        while i < len(messages):
            message = messages[i]
            if message["role"] == "tool":
                # Results that follow each other share a turn, which counts as the last one's.
                parts: Parts = []
                while i < len(messages) and messages[i]["role"] == "tool":
                    parts += ["\n" if parts else "", "<tool_response>\n", *_parts(messages[i]), "\n</tool_response>"]
                    i += 1
                self._parted(rendered, i - 1, "user", parts)
                continue
            if message["role"] == "user":
                self._parted(rendered, i, "user", _parts(message))
            elif message["role"] == "assistant":
                _refuse_pictures(message)
                self._turn(rendered, i, "assistant", self._said(message, i > asked))
            else:
                self._turn(rendered, i, message["role"], _words(message))
            i += 1

    def _said(self, message: Message, lately: bool) -> str:
        """What an answer says; ``lately``: since the last question, where it may say its thoughts as well."""
        return self._answer_text(message)

    def _parted(self, rendered: RenderedPieces, index: int, role: str, parts: Parts) -> None:
        """A turn of words and pictures: what stands between two marks is one text."""
        rendered.add([self._start], index)
        text = f"{role}\n"
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            rendered.add([*self.encode(text), *self._before], index)
            text = ""
            assert isinstance(rendered, SeeingPieces)
            self._see(rendered, index, part)
            rendered.add(self._behind, index)
        rendered.add([*self.encode(text), self._end], index)
        rendered.add(self._newline, -1)

    def _see(self, rendered: SeeingPieces, index: int, image: dict[str, Any]) -> None:
        """Add a picture's ids. Raises ValueError for one that was not taken in, and for one that is too thin."""
        sha256, width, height = taken(image)
        try:
            grid = self.layout.grid(width, height)
        except PictureRefused as e:
            raise ValueError(str(e)) from e
        sizes = {"width": width, "height": height, "shown_width": grid.width, "shown_height": grid.height}
        ids = [self.placeholder] * (grid.rows * grid.columns)
        rendered.see(ids, index, sha256, sizes | {"placeholder": self.placeholder})


class QwenThinkingRenderer(QwenSeeingRenderer):
    """The same of its thinking models: the prompt opens the thoughts of an answer. Those from before the last question
    are left out of a prompt that is written anew, as its template has it, but where they are asked for."""

    _keeps_all = False

    def __init__(self, tokenizer_file: Path, layout: PatchLayout) -> None:
        super().__init__(tokenizer_file, layout)
        self._opening = [*self._opening, *self.encode("<think>\n")]

    def keeping_all(self) -> QwenThinkingRenderer:
        """The same with all thoughts, each as it was sampled."""
        keeping = copy(self)
        keeping._keeps_all = True
        return keeping

    def answer_ids(self, message: Message) -> list[int]:
        """The ids with which the model would have given this answer, whose thoughts the prompt has opened."""
        thought, said = _thought(message), self._answer_text(message).lstrip("\n")
        return [*self.encode(f"{thought}\n</think>\n\n{said}"), self._end]

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: list[ToolSpec] | None = None,
    ) -> RenderedTokens | None:
        """As ever; None behind an answer that was cut off in its thoughts, which would stay open."""
        if "</think>" not in self.tokenizer.decode(previous_completion_ids, skip_special_tokens=False):
            return None
        return super().bridge_to_next_turn(previous_prompt_ids, previous_completion_ids, new_messages, tools=tools)

    def _said(self, message: Message, lately: bool) -> str:
        said, thought = super()._said(message, lately), _thought(message)
        kept = "<think>\n{}\n</think>\n\n{}"
        return kept.format(thought, said.lstrip("\n")) if (lately or self._keeps_all) and thought else said


def _thought(message: Message) -> str:
    said: Any = message.get("reasoning_content")
    return said.strip("\n") if isinstance(said, str) else ""


def _words(message: Message) -> str:
    """What a message of words alone says. Raises ValueError."""
    _refuse_pictures(message)
    return words_in(message)


def _refuse_pictures(message: Message) -> None:
    """Raises ValueError where a message has a picture, for which the template has no place there."""
    if parts_of(message) is not None:
        raise ValueError(
            f"a picture in a message of the {message['role']}; they have a place in those of users and tools"
        )


def _parts(message: Message) -> Parts:
    parts = parts_of(message)
    return [words_in(message)] if parts is None else parts
