"""Conversations as token ids: what the gateway would have asked the model with, and what it would have answered.

Each answer gets the prompt that the gateway makes for it, bridged from the turn before where that is exact and rendered
anew where not (a family that drops earlier thinking). Prompt and answer are ids joined as ids. Only the tokens of
answers, with the one that ends each, are learned.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwise.errors import DataError, EngineError
from turnwise.messages import thinking_in
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.training.batching import TokenText
from turnwise.training.sft.conversations import SHOWN_FAULTS, Dialogue

Taught = tuple[int, int]
"""Where in a text's ids an answer begins and ends."""


@dataclass(slots=True)
class LearnedText:
    """Ids, and the answers in them that are learned."""

    ids: array[int]
    taught: list[Taught]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation as texts of ids: one, unless its template rewrites what was said before."""

    line: int
    texts: list[LearnedText]

    @property
    def tokens(self) -> int:
        return sum(len(text.ids) for text in self.texts)

    @property
    def learned(self) -> int:
        return sum(end - start for text in self.texts for start, end in text.taught)

    @property
    def digest(self) -> bytes:
        """Of what is learned: two conversations with one digest are the same."""
        seen = hashlib.sha256()
        for text in self.texts:
            seen.update(text.ids.tobytes())
            seen.update(repr(text.taught).encode())
        return seen.digest()


@dataclass(slots=True)
class Told:
    """What became of the conversations on their way, for a person."""

    cut: int = 0
    too_long: int = 0
    unwritten: int = 0
    thoughts: int = 0
    lines: list[int] = field(default_factory=list)

    def sentences(self, context: int) -> list[str]:
        found = []
        if self.cut:
            found.append(f"{self.cut} conversations longer than {context} tokens end with the last answer that fits")
        if self.too_long:
            shown = ", ".join(map(str, self.lines[:SHOWN_FAULTS])) + (", …" if len(self.lines) > SHOWN_FAULTS else "")
            found.append(f"{self.too_long} left out, whose first answer ends behind {context} tokens (lines {shown})")
        if self.unwritten:
            found.append(
                f"{self.unwritten} answers are context only: the model's template does not write them as asked"
            )
        if self.thoughts:
            found.append(f"the thinking of {self.thoughts} answers is left out: this model's template has none")
        return found


def encode_all(
    renderer: PromptRenderer, conversations: Sequence[Dialogue], context: int, alive: Callable[[], None]
) -> tuple[list[Encoded], Told]:
    """All conversations that fit. Raises DataError where a template takes one not at all, or none is left."""
    found, told, faults = [], Told(), Counter[str]()
    first: dict[str, int] = {}
    for conversation in conversations:
        alive()
        try:
            encoded = encode(renderer, conversation, context, told)
        except EngineError as e:
            faults[str(e)] += 1
            first.setdefault(str(e), conversation.line)
            continue
        if encoded is not None:
            found.append(encoded)
    if faults:
        said = "\n".join(f"  line {first[why]}: {why}" for why, _ in faults.most_common(SHOWN_FAULTS))
        raise DataError(f"{faults.total()} conversations cannot be written for this model\n{said}")
    if not found:
        said = "; ".join(told.sentences(context))
        raise DataError(f"no conversation is left to learn from: {said}; raise --context, or shorten them")
    return found, told


def encode(renderer: PromptRenderer, conversation: Dialogue, context: int, told: Told) -> Encoded | None:
    """A conversation as the gateway and the model would have had it; None where nothing of it can be learned.

    It ends with the last answer that fits into ``context`` tokens: half an answer would teach to stop in the middle, or
    not to stop.
    """
    messages, tools = conversation.messages, conversation.tools
    texts: list[LearnedText] = []
    last: tuple[int, list[int], list[int]] | None = None
    fits = True
    for at, message in enumerate(messages):
        if message.role != "assistant":
            continue
        prompt = _prompt(renderer, conversation, at, last)
        answer = renderer.answer(messages[:at], message, tools)
        if answer is None:
            told.unwritten += at in conversation.taught
            last = None
            continue
        if len(prompt.ids) + len(answer) > context:
            fits = False
            break
        last = at, prompt.ids, answer
        if thinking_in(message) and not renderer.grammar.reasoning:
            told.thoughts += 1
        _add(texts, prompt.ids, answer, at in conversation.taught)
    texts = [text for text in texts if text.taught]
    if texts:
        told.cut += not fits
        return Encoded(conversation.line, texts)
    if not fits:
        told.too_long += 1
        told.lines.append(conversation.line)
    return None


def texts_of(encoded: Encoded, number: int) -> list[TokenText]:
    """Each answer that is learned and the ids before it; ``number`` names the conversation."""
    return [
        TokenText(number, text.ids[:start].tolist(), text.ids[start:end].tolist())
        for text in encoded.texts
        for start, end in text.taught
    ]


def _prompt(
    renderer: PromptRenderer, conversation: Dialogue, at: int, last: tuple[int, list[int], list[int]] | None
) -> Prompt:
    messages, tools = conversation.messages, conversation.tools
    if last is not None:
        before, prompt_ids, answer_ids = last
        added = messages[before + 1 : at]
        bridged = renderer.bridge(prompt_ids, answer_ids, None, added, tools) if added else None
        if bridged is not None:
            return bridged
    return renderer.render(messages[:at], tools)


def _add(texts: list[LearnedText], prompt: list[int], answer: list[int], learned: bool) -> None:
    """Put a turn into the text that it goes on from, or begin a new one."""
    ids = array("i", [*prompt, *answer])
    taught = [(len(prompt), len(ids))] if learned else []
    last = texts[-1] if texts else None
    if last is not None and len(last.ids) <= len(prompt) and ids[: len(last.ids)] == last.ids:
        last.ids, last.taught = ids, last.taught + taught
    else:
        texts.append(LearnedText(ids, taught))
