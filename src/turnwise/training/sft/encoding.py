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
from dataclasses import dataclass, field, replace

from turnwise.errors import DataError, EngineError
from turnwise.messages import thinking_in, with_latest_pictures
from turnwise.pictures.placed import PlacedPicture
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.training.batching import TokenText
from turnwise.training.sft.conversations import SHOWN_FAULTS, Dialogue
from turnwise.types import Message

Taught = tuple[int, int]
"""Where in a text's ids an answer begins and ends."""


@dataclass(slots=True)
class LearnedText:
    """Ids, the answers in them that are learned, and the pictures that stand in them."""

    ids: array[int]
    taught: list[Taught]
    pictures: tuple[PlacedPicture, ...] = ()


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
            seen.update(repr((text.taught, text.pictures)).encode() if text.pictures else repr(text.taught).encode())
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
    last: _Turn | None = None
    fits = True
    for at, message in enumerate(messages):
        if message.role != "assistant":
            continue
        before = messages[:at]
        if conversation.keep_pictures is not None:
            before = with_latest_pictures(before, conversation.keep_pictures)
        prompt = _prompt(renderer, before, conversation, last)
        answer = renderer.answer(before, message, tools)
        if answer is None:
            told.unwritten += at in conversation.taught
            last = None
            continue
        if len(prompt.ids) + len(answer) > context:
            fits, last = False, None
            if conversation.keep_pictures is None:
                break
            continue  # a later prompt may be shorter, in which words stand for these pictures
        last = _Turn([*before, message], prompt, answer)
        if thinking_in(message) and not renderer.grammar.reasoning:
            told.thoughts += 1
        _add(texts, prompt, answer, at in conversation.taught)
    texts = [text for text in texts if text.taught]
    if texts:
        told.cut += not fits
        return Encoded(conversation.line, texts)
    if not fits:
        told.too_long += 1
        told.lines.append(conversation.line)
    return None


@dataclass(frozen=True, slots=True)
class _Turn:
    """The messages up to an answer and with it, as its prompt shows them; that prompt, and the ids of the answer."""

    messages: list[Message]
    prompt: Prompt
    answer: list[int]


def texts_of(encoded: Encoded, number: int) -> list[TokenText]:
    """Each answer that is learned, the ids before it and the pictures in these; ``number`` names the conversation."""
    return [
        TokenText(
            number,
            text.ids[:start].tolist(),
            text.ids[start:end].tolist(),
            tuple(picture for picture in text.pictures if picture.end <= start),
        )
        for text in encoded.texts
        for start, end in text.taught
    ]


def _prompt(renderer: PromptRenderer, before: list[Message], conversation: Dialogue, last: _Turn | None) -> Prompt:
    """The prompt that these messages make, bridged from the turn before where they only go on from it."""
    if last is not None:
        known = len(last.messages)
        added = before[known:]
        if added and before[:known] == last.messages:
            keep = conversation.keep_thinking
            bridged = renderer.bridge(last.prompt.ids, last.answer, None, added, conversation.tools, keep_thinking=keep)
            if bridged is not None:
                return replace(bridged, pictures=(*last.prompt.pictures, *bridged.pictures))
    return renderer.render(before, conversation.tools, keep_thinking=conversation.keep_thinking)


def _add(texts: list[LearnedText], prompt: Prompt, answer: list[int], learned: bool) -> None:
    """Put a turn into the text that it goes on from, or begin a new one."""
    ids = array("i", [*prompt.ids, *answer])
    taught = [(len(prompt.ids), len(ids))] if learned else []
    last = texts[-1] if texts else None
    if (
        last is not None
        and len(last.ids) <= len(prompt.ids)
        and ids[: len(last.ids)] == last.ids
        and prompt.pictures[: len(last.pictures)] == last.pictures
        and all(picture.start >= len(last.ids) for picture in prompt.pictures[len(last.pictures) :])
    ):
        last.ids, last.taught, last.pictures = ids, last.taught + taught, prompt.pictures
    else:
        texts.append(LearnedText(ids, taught, prompt.pictures))
