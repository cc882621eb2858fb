"""Messages to token ids for the served model: which renderer it takes, whole prompts, and bridged ones.

A bridged prompt is the previous prompt and the ids that were sampled, verbatim, plus the ids of what was added. It is
only made where the renderer can prove that; otherwise the whole conversation is rendered anew.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from renderers.base import ParsedResponse, RenderedTokens, Renderer, create_renderer, load_tokenizer

from turnwise.errors import EngineError, ModelError
from turnwise.messages import history_to_chat
from turnwise.pictures.layout import layout_of
from turnwise.pictures.placed import PlacedPicture, inserted
from turnwise.tokens.answer_parser import CLOSE_THINK, OPEN_THINK, AnswerGrammar
from turnwise.tokens.chatml import ChatMLRenderer
from turnwise.tokens.pictured import IMAGE
from turnwise.tokens.qwen_seeing import QwenSeeingRenderer
from turnwise.tokens.renderer_choice import (
    keeping_thinking,
    qwen25_renderer,
    renderer_config,
    seeing_renderer,
    thinking_switch,
)
from turnwise.tokens.smolvlm import SmolVLMRenderer
from turnwise.types import Message

_CHATML_SYSTEM_MARK = "<|im_start|>system\n"

GRAMMARS = {
    "ChatMLRenderer": AnswerGrammar(reasoning=False, calls="json", space=""),
    "Qwen25Renderer": AnswerGrammar(reasoning=False, calls="json", untagged=True),
    "SmolVLMRenderer": AnswerGrammar(reasoning=False, calls="json", space=""),
    "Qwen3Renderer": AnswerGrammar(reasoning=True, calls="json"),
    "QwenSeeingRenderer": AnswerGrammar(reasoning=False, calls="json"),
    "QwenThinkingRenderer": AnswerGrammar(reasoning=True, calls="json"),
    "Qwen3VLRenderer": AnswerGrammar(reasoning=True, calls="json"),
    "Qwen35Renderer": AnswerGrammar(reasoning=True, calls="tagged"),
    "Qwen36Renderer": AnswerGrammar(reasoning=True, calls="tagged"),
    "Qwen38Renderer": AnswerGrammar(reasoning=True, calls="tagged"),
    "GLM45Renderer": AnswerGrammar(reasoning=True, calls="tagged"),
}
"""How the model families that stream write their answers, by their renderer. Any other family's answer is read when it
is complete, by its renderer's own parser."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids [P] of a prompt, and where in them a hint for the last user message would go (None: no user message).

    The last ``prefilled`` of them are the beginning of the answer itself. ``placed`` are starts and ends of ids that no
    message has: words that were put behind questions; ``pictures`` are those that stand in it.
    """

    ids: list[int]
    hint_at: int | None
    bridged: bool
    prefilled: int = 0
    placed: tuple[tuple[int, int], ...] = ()
    pictures: tuple[PlacedPicture, ...] = ()

    @property
    def asked(self) -> list[int]:
        """The ids up to where the answer begins."""
        return self.ids[: len(self.ids) - self.prefilled]

    def with_words(self, ids: list[int]) -> Prompt:
        """The prompt with these ids at the end of its last user message, and the place for a hint behind them. Ids are
        inserted among ids: joined as text, tokens could merge with those of the person's words."""
        assert self.hint_at is not None and not self.prefilled
        end = self.hint_at + len(ids)
        whole = [*self.ids[: self.hint_at], *ids, *self.ids[self.hint_at :]]
        pictures = inserted(self.pictures, self.hint_at, len(ids))
        return replace(self, ids=whole, hint_at=end, placed=(*self.placed, (self.hint_at, end)), pictures=pictures)

    def begun(self, answer: list[int]) -> Prompt:
        """The prompt with the beginning of an answer behind it, as ids of its own: never joined as text."""
        return replace(self, ids=[*self.ids, *answer], prefilled=len(answer))


class PromptRenderer:
    """The one renderer of a served model. Its methods take CPU time: call them off the event loop.

    `thinking` has the renderers that ask the model to think first, and not to, where its template has such a switch;
    `keeping` gives, of any of them, the one whose prompts keep all that was thought.
    """

    def __init__(
        self,
        renderer: Renderer,
        decode: Callable[[list[int]], str],
        encode: Callable[[str], list[int]],
        thinking: dict[bool, Renderer] | None = None,
        keeping: Callable[[Renderer], Renderer] | None = None,
    ) -> None:
        self.renderer = renderer
        self.decode = decode
        self.encode = encode
        self._thinking = thinking or {}
        self._keeping = keeping
        self._kept: dict[bool | None, Renderer] = {}
        self._openings = {wish: _opening(r) for wish, r in self._thinking.items()}
        self.stop_token_ids = renderer.get_stop_token_ids()
        self._closers = set(self.stop_token_ids)
        self.grammar = GRAMMARS.get(type(renderer).__name__, AnswerGrammar(reasoning=True, calls="whole"))

    @property
    def sees(self) -> bool:
        """Whether pictures have a place in this model's prompts."""
        return isinstance(self.renderer, SmolVLMRenderer | QwenSeeingRenderer)

    @property
    def default_system(self) -> str | None:
        """What our own renderers say in front of a conversation without a system message, if anything."""
        return getattr(self.renderer, "default_system", None)

    def ends_in_reasoning(self, prompt_ids: list[int]) -> bool:
        """Whether the prompt itself opened the reasoning that the answer goes on with."""
        return self.grammar.reasoning and self.decode(prompt_ids[-4:]).rstrip().endswith(OPEN_THINK)

    def reasoning_tokens(self, response_ids: list[int], in_reasoning: bool) -> int:
        """Tokens of the answer that are reasoning: those between its tags, or up to the end without a closing one."""
        if not self.grammar.reasoning:
            return 0
        opened = 0 if in_reasoning else self._tokens_until(OPEN_THINK, response_ids)
        if opened is None or (opened and not self.decode(response_ids[:opened]).lstrip().startswith(OPEN_THINK)):
            return 0
        closed = self._tokens_until(CLOSE_THINK, response_ids)
        if closed is None:
            return len(response_ids) - opened
        text = self.decode(response_ids[:closed])
        tag = 1  # tokens that the closing tag is made of
        while len(self.decode(response_ids[: closed - tag])) > text.rindex(CLOSE_THINK):
            tag += 1
        return max(0, closed - tag - opened)

    def _tokens_until(self, tag: str, ids: list[int]) -> int | None:
        """The least number of ids whose text has the tag; None where the whole has not."""
        if tag not in self.decode(ids):
            return None
        return bisect_left(range(len(ids)), True, key=lambda count: tag in self.decode(ids[:count]))

    def parse(
        self, response_ids: list[int], tools: list[dict[str, Any]] | None, prompt_ids: list[int]
    ) -> ParsedResponse:
        """What the renderer of the model family reads in a complete answer to a prompt."""
        return self._renderer_of(prompt_ids).parse_response(response_ids, tools=_shown(tools), prompt_ids=prompt_ids)

    def render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None,
        thinking: bool | None = None,
        keep_thinking: bool = False,
    ) -> Prompt:
        """The whole conversation as a prompt. `thinking`: whether the model is asked to think first (None: its way).
        `keep_thinking`: thoughts from before the last question stay, where the family can write them.

        Raises EngineError (400) for a conversation that the family has no prompt for: some want a user's message.
        """
        try:
            rendered = self._asking(thinking, keep_thinking).render(
                _shown_messages(messages),
                tools=_shown(tools),
                add_generation_prompt=True,
            )
        except (ValueError, TemplateError) as e:
            raise EngineError(f"this model's template does not take the conversation: {e}", 400) from e
        hint_at = self._hint_at(rendered, messages)
        return Prompt(rendered.token_ids, hint_at, bridged=False, pictures=_pictures(rendered))

    def answer(self, before: list[Message], answer: Message, tools: list[dict[str, Any]] | None) -> list[int] | None:
        """The ids with which the model would have given this answer, up to the token that ends it.

        ``before`` are the messages that it answers. None where the family's template does not write the
        answer behind a prompt as it is asked with, so that no ids are the model's own.
        Raises EngineError (400) for a conversation that the family has no prompt for.
        """
        [shown] = _shown_messages([answer])
        if isinstance(self.renderer, ChatMLRenderer):
            return self.renderer.answer_ids(shown)
        asked = self.render(before, tools).ids
        try:
            whole = self.renderer.render_ids(_shown_messages([*before, answer]), tools=_shown(tools))
        except (ValueError, TemplateError) as e:
            raise EngineError(f"this model's template does not take the conversation: {e}", 400) from e
        rest = whole[len(asked) :]
        if whole[: len(asked)] != asked:
            # A tokenizer may merge the end of the prompt with the beginning of the answer, which no engine does.
            text, opening = self.decode(whole), self.decode(asked)
            rest = self.encode(text[len(opening) :]) if text.startswith(opening) else []
        ends = [k for k, i in enumerate(rest) if i in self._closers]
        if ends:
            return rest[: ends[-1] + 1]
        return [*rest, self.stop_token_ids[0]] if rest and self.stop_token_ids else None  # closed by what comes next

    def bridge(
        self,
        prompt_ids: list[int],
        response_ids: list[int],
        hint_at: int | None,
        added: list[Message],
        tools: list[dict[str, Any]] | None,
        thinking: bool | None = None,
        keep_thinking: bool = False,
    ) -> Prompt | None:
        """The previous turn's ids extended by `added`, or None when that cannot be proven: where the family's template
        drops what was thought before a question, only if that is to stay (`keep_thinking`).

        `hint_at` is the previous turn's: it still holds when `added` has no user message. Of the pictures it has those
        of `added`: who keeps the previous turn knows its own.
        """
        renderer, asked = self._asking(thinking, keep_thinking), self._asking(thinking)
        opening = next((self._openings[wish] for wish, r in self._thinking.items() if r is asked), None)
        if opening is not None and prompt_ids[-len(opening) :] != opening:
            return None  # the previous answer was asked for in the other way, and a template writes its past otherwise
        try:
            rendered = renderer.bridge_to_next_turn(
                prompt_ids,
                response_ids,
                _shown_messages(added),
                tools=_shown(tools),
            )
        except ValueError as e:
            raise EngineError(f"this model's template does not take the conversation: {e}", 400) from e
        if rendered is None:
            return None
        known = len(prompt_ids) + len(response_ids)
        if rendered.token_ids[:known] != [*prompt_ids, *response_ids]:
            return None  # a renderer that breaks its promise must not break ours
        new_hint_at = self._hint_at(rendered, added)
        hint_at = hint_at if new_hint_at is None else new_hint_at
        return Prompt(rendered.token_ids, hint_at, bridged=True, pictures=_pictures(rendered))

    def _renderer_of(self, prompt_ids: list[int]) -> Renderer:
        """The one that wrote a prompt, told by where the answer begins: some read an answer by what they asked for."""
        for wish, opening in sorted(self._openings.items(), key=lambda item: -len(item[1])):
            if prompt_ids[-len(opening) :] == opening:
                return self._thinking[wish]
        return self.renderer

    def _asking(self, thinking: bool | None, keep_thinking: bool = False) -> Renderer:
        asked = self.renderer if thinking is None else self._thinking.get(thinking, self.renderer)
        if not keep_thinking or self._keeping is None:
            return asked
        if thinking not in self._kept:  # made once it is asked for: most models never are
            self._kept[thinking] = self._keeping(asked)
        return self._kept[thinking]

    def _hint_at(self, rendered: RenderedTokens, messages: list[Message]) -> int | None:
        """The offset just before the token that closes the last user message, or behind a message that has none."""
        user = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)
        owners = rendered.message_indices
        end = next((k for k in range(len(owners) - 1, -1, -1) if owners[k] == user), None)
        if user is None or end is None:
            return None
        at = end  # some templates attribute a line break after the closing token to the message
        while at > 0 and owners[at - 1] == user and rendered.token_ids[at] not in self._closers:
            at -= 1
        opens = at == 0 or owners[at - 1] != user  # the token with which a message begins closes none
        return end + 1 if opens or rendered.token_ids[at] not in self._closers else at


def load_renderer(model: Path | str) -> PromptRenderer:
    """The renderer for a model folder or hub id: one of `renderers`, or ours for plain ChatML, Qwen2.5 and models that
    see."""
    folder = Path(model)
    layout = layout_of(folder) if folder.is_dir() else None
    if layout is None and folder.is_dir() and _is_plain_chatml(folder):
        chatml = ChatMLRenderer(folder / "tokenizer.json", _default_system(folder))
        return PromptRenderer(chatml, chatml.tokenizer.decode, chatml.encode)
    try:
        tokenizer = load_tokenizer(str(model))
        if layout is not None:
            seeing = seeing_renderer(folder, tokenizer, layout)
            keeping = partial(keeping_thinking, tokenizer)
            return PromptRenderer(seeing, seeing.tokenizer.decode, seeing.encode, None, keeping)
        own = qwen25_renderer(folder, tokenizer) if folder.is_dir() else None
        if own is not None:
            return PromptRenderer(own, own.tokenizer.decode, own.encode)
        config = renderer_config(folder, tokenizer) if folder.is_dir() else None
        renderer = create_renderer(tokenizer, config)
        encode = partial(tokenizer.encode, add_special_tokens=False)
        switch, keeping = thinking_switch(tokenizer, renderer), partial(keeping_thinking, tokenizer)
        return PromptRenderer(renderer, tokenizer.decode, encode, switch, keeping)
    except Exception as e:
        raise ModelError(f"no renderer for the model {model}: {e}") from e


def _shown(tools: list[dict[str, Any]] | None) -> Any:
    """OpenAI's `tools` with what a model is shown of them. Templates write out the whole of it, so the shape stays."""
    if not tools:
        return None
    shown = ("name", "description", "parameters")
    return [
        {"type": "function", "function": {key: tool["function"][key] for key in shown if key in tool["function"]}}
        for tool in tools
    ]


def _shown_messages(messages: list[Message]) -> Any:
    """The messages in OpenAI's chat shape, which renderers and templates take."""
    return history_to_chat(messages)


def _pictures(rendered: RenderedTokens) -> tuple[PlacedPicture, ...]:
    """The pictures among the ids, where the renderer places any."""
    media = rendered.multi_modal_data
    if media is None or IMAGE not in media.mm_hashes:
        return ()
    of_each = zip(media.mm_hashes[IMAGE], media.mm_placeholders[IMAGE], media.mm_items[IMAGE], strict=True)
    return tuple(PlacedPicture(sha256, at.offset, at.offset + at.length, **about) for sha256, at, about in of_each)


def _opening(renderer: Renderer) -> list[int]:
    """The ids that a prompt ends with: where the answer begins."""
    asked: list[Any] = [{"role": "user", "content": "?"}]
    return renderer.render_ids(asked, add_generation_prompt=True)[len(renderer.render_ids(asked)) :]


def _is_plain_chatml(folder: Path) -> bool:
    """ChatML without tools, thinking or any other rule of its own: nothing but roles and contents in the template."""
    template = _template(folder)
    return "<|im_start|>" in template and not any(word in template for word in ("tool", "think", "reasoning"))


def _default_system(folder: Path) -> str | None:
    """The system message that the template itself puts first, read from the template's text."""
    template = _template(folder)
    if _CHATML_SYSTEM_MARK not in template:
        return None
    return template.split(_CHATML_SYSTEM_MARK, 1)[1].split("<|im_end|>", 1)[0]


def _template(folder: Path) -> str:
    """The chat template with escaped line breaks resolved, or an empty string."""
    file = folder / "chat_template.jinja"
    if file.exists():
        text = file.read_text(encoding="utf-8")
    else:
        config = folder / "tokenizer_config.json"
        text = json.loads(config.read_text(encoding="utf-8")).get("chat_template", "") if config.exists() else ""
    return text.replace("\\n", "\n") if isinstance(text, str) else ""
