"""The prompt of a turn, bridged from the turn before it where that is exact, and how its answer is sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.config import Config
from turnwise.engines.base import SamplingParams
from turnwise.gateway.wire.request import ModelRequest, unsupported, without_prefill
from turnwise.gateway.wire.thinking import is_bound, keeps_thinking, thinking_of
from turnwise.journal import Journal, Turn
from turnwise.models import answer_defaults
from turnwise.pictures.placed import PlacedPicture
from turnwise.tokens.forced_calls import forced_call
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.types import Message

LEAST_TEMPERATURE = 0.05
"""Below it, sampling is greedy: log-probs at such temperatures only measure rounding."""


class Prompting:
    """Makes prompts for the served model. Without a renderer, in front of an upstream, they are empty."""

    def __init__(self, config: Config, journal: Journal, renderer: PromptRenderer | None) -> None:
        self._journal = journal
        self._renderer = renderer
        self.defaults = answer_defaults(config.model)

    def whole(self, request: ModelRequest, behind: str = "") -> Prompt:
        """The prompt of a request alone, with these words behind its last question. Raises ApiError (400) where there
        are no tokens."""
        if self._renderer is None:
            raise unsupported("count_tokens", "this engine does not take token ids, so there is nothing to count")
        asked = without_prefill(request)
        prompt = self._renderer.render(asked.messages, asked.tools, thinking_of(asked), keeps_thinking(asked))
        return self._begun(self._placed(prompt, behind), asked)

    def prompt(
        self, request: ModelRequest, parent: Turn | None, added: list[Message], session_id: str, behind: str = ""
    ) -> tuple[Prompt, bool]:
        """The prompt, bridged from its parent by what was `added` where that is exact, and whether it is stored as an
        extension. The words `behind` stand behind the last question: in a bridged prompt behind the parent's questions
        as well, as they did there. Raises ApiError (400) for what this model cannot be bound to."""
        renderer, tools = self._renderer, request.tools
        if renderer is None:
            return Prompt([], None, False), False
        thinking, keep = thinking_of(request), keeps_thinking(request)
        prompt, extends = None, False
        if parent is not None and _bridgeable(parent) and self._journal.lookups.same_tools(parent, tools):
            prompt_ids, response_ids = self._journal.lookups.ids(parent)
            prompt = renderer.bridge(prompt_ids, response_ids, parent.hint_at, added, tools, thinking, keep)
            extends = prompt is not None and parent.session_id == session_id
            if prompt is not None:
                asked_anew = any(message.role == "user" for message in added)
                pictures = (*self._pictures(parent), *prompt.pictures)
                prompt = replace(prompt, placed=parent.placed, pictures=pictures)
                prompt = self._placed(prompt, behind if asked_anew else "")
        if prompt is None:
            prompt = renderer.render(request.messages, tools, thinking, keep)
            prompt = self._placed(prompt, behind)
        if is_bound(request) and renderer.ends_in_reasoning(prompt.ids):
            bonds = {request.structured_field: request.structured, "structured_outputs": request.grammar}
            field = next((name for name, bond in bonds.items() if bond is not None), "tool_choice")
            raise unsupported(field, "this model thinks first, which no grammar allows; ask for it in words")
        return self._begun(prompt, request), extends

    def sampling(self, request: ModelRequest, room: int) -> SamplingParams:
        """How the engine is to sample, with `room` tokens left in the model's context."""
        asked = request.sampling
        temperature = 1.0 if asked.temperature is None else asked.temperature
        greedy = temperature < LEAST_TEMPERATURE or asked.top_p == 0
        return SamplingParams(
            max_tokens=min(request.max_tokens or self.defaults.max_tokens or room, room),
            temperature=0.0 if greedy else temperature,
            top_p=asked.top_p or 1.0,
            top_k=-1 if not asked.top_k else asked.top_k,
            seed=asked.seed,
            stop=request.stops,
            stop_token_ids=() if self._renderer is None else tuple(self._renderer.stop_token_ids),
            structured=request.structured,
            call=self._call(request),
            grammar=request.grammar,
            min_p=asked.min_p or 0.0,
            frequency_penalty=asked.frequency_penalty or 0.0,
            presence_penalty=asked.presence_penalty or 0.0,
            repetition_penalty=asked.repetition_penalty or 1.0,
        )

    def _placed(self, prompt: Prompt, behind: str) -> Prompt:
        if not behind or prompt.hint_at is None or self._renderer is None:
            return prompt
        return prompt.with_words(self._renderer.encode(behind))

    def _pictures(self, parent: Turn) -> tuple[PlacedPicture, ...]:
        """Those in the prompt of the turn before; nothing is looked up for a model that sees none."""
        return self._journal.lookups.pictures(parent.id) if self._renderer is not None and self._renderer.sees else ()

    def _begun(self, prompt: Prompt, request: ModelRequest) -> Prompt:
        """The prompt with the beginning of the answer that the client wrote, if it did. Raises ApiError (400)."""
        if not request.prefill or self._renderer is None:
            return prompt
        if self._renderer.ends_in_reasoning(prompt.ids):
            raise unsupported("messages", "this model thinks first, so no beginning of its answer can be given")
        return prompt.begun(self._renderer.encode(request.prefill))

    def _call(self, request: ModelRequest) -> dict[str, Any] | None:
        if request.tool_choice is None or request.tools is None or self._renderer is None:
            return None
        return forced_call(request.tool_choice, request.tools, self._renderer.grammar.space)


def _bridgeable(parent: Turn) -> bool:
    """Whether a prompt with the same tools (they stand in it) may go on from what the parent's engine sampled.

    Not after a stop string: the client never saw it, so the history it sends is another text.
    """
    if parent.packed_response_ids is None or not parent.response_tokens:
        return False
    return parent.stop_string is None
