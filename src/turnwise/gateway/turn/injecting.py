"""The skills in a request's prompt: a block at the end of the system message, and wishes behind the person's question.

The record keeps the client's messages as they came, and finds its history by these; the prompt's ids have the skills,
as they are what was sampled from. Where in the ids a wish stands is recorded, too: what is learned leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.gateway.turn.prompting import Prompting
from turnwise.gateway.wire.request import ModelRequest
from turnwise.journal import Journal, Turn
from turnwise.messages import saying
from turnwise.skills.compressing.prompts import ShortPrompt, ShortPrompts
from turnwise.skills.serving import NO_SKILLS, ChosenSkills, ServingSkills
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.types import Message, Text

LEAST_ROOM = 256
"""Tokens that skills must leave for an answer; where they do not, the prompt is made without them."""
JOIN = "\n"
"""Between a question and the wishes behind it."""


@dataclass(frozen=True, slots=True)
class ToldPrompt:
    """A prompt with its skills, and the request as it was told them. ``extends``: it is stored as an extension of its
    parent's. ``compression``: which shorter system prompt stands in for the client's."""

    prompt: Prompt
    extends: bool
    request: ModelRequest
    skills: ChosenSkills
    compression: int | None = None


class Injecting:
    """Makes prompts with the skills that serve."""

    def __init__(
        self,
        journal: Journal,
        prompting: Prompting,
        renderer: PromptRenderer | None,
        skills: ServingSkills | None,
        short: ShortPrompts | None = None,
    ) -> None:
        self._journal = journal
        self._prompting = prompting
        self._default_system = renderer and renderer.default_system
        self._has_ids = renderer is not None
        self._skills = skills
        self._short = short

    def whole(self, request: ModelRequest, version: int) -> Prompt:
        """The prompt of a request that begins a conversation, with the skills that it would get. Raises ApiError."""
        chosen = NO_SKILLS if self._skills is None else self._skills.chosen(request.messages, policy=version)
        request = _shortened(request, self._short.of(request.messages) if self._short else None)
        behind = _joined(chosen) if self._by_ids(chosen) else ""
        prompt = self._prompting.whole(self._with(request, chosen), behind)
        if behind and not prompt.placed:
            prompt = self._prompting.whole(self._with(request, chosen.in_one_block()))
        return prompt

    def prompt(
        self,
        request: ModelRequest,
        parent: Turn | None,
        added: list[Message],
        session_id: str,
        *,
        main: bool,
        version: int,
        limit: int,
    ) -> ToldPrompt:
        """The prompt of a request that goes on from `parent` by what was `added`. A main turn has skills, where they
        leave room for an answer within the `limit` of the model. Raises ApiError (400)."""
        chosen, had = NO_SKILLS, self._had(parent)
        if self._skills is not None and main:
            chosen = self._skills.chosen(request.messages, session_id, had, version)
        short = self._short.of(request.messages, request.tools, session_id) if self._short and main else None
        which = None if short is None else short.id
        if parent is not None and parent.compression != which:
            parent = None  # its prompt begins with another text
        request = _shortened(request, short)
        told = self._told(request, parent, added, session_id, chosen, had)
        if chosen.versions and limit - len(told.prompt.ids) < LEAST_ROOM:
            told = self._told(request, parent, added, session_id, chosen.without(), had)
        return replace(told, compression=which)

    def _had(self, parent: Turn | None) -> tuple[int, ...]:
        """The versions of skills in a turn's prompt, in order. Nothing is looked up where there never was a skill."""
        if parent is None or self._skills is None or not self._skills.ever:
            return ()
        return self._journal.skills.used(parent.id)

    def _told(
        self,
        request: ModelRequest,
        parent: Turn | None,
        added: list[Message],
        session_id: str,
        skills: ChosenSkills,
        had: tuple[int, ...],
    ) -> ToldPrompt:
        """The prompt, bridged from its parent's where that has the very same skills, in the same places."""
        told = self._with(request, skills)
        by_ids = self._by_ids(skills)
        if parent is not None and (had != tuple(sorted(skills.versions)) or bool(parent.placed) != by_ids):
            parent = None
        behind = _joined(skills) if by_ids else ""
        prompt, extends = self._prompting.prompt(told, parent, added, session_id, behind)
        if behind and not prompt.placed:
            return self._told(request, None, added, session_id, skills.in_one_block(), had)
        return ToldPrompt(prompt, extends, told, skills)

    def _by_ids(self, skills: ChosenSkills) -> bool:
        """Whether wishes are put behind the question as ids; where an upstream takes words, they are words, too."""
        return bool(skills.behind) and self._has_ids

    def _with(self, request: ModelRequest, skills: ChosenSkills) -> ModelRequest:
        """The request with what of the skills is words in its messages."""
        if skills.behind and not self._has_ids:
            with_wishes = _behind_question(request.messages, _joined(skills))
            if with_wishes is None:
                skills = skills.in_one_block()
            else:
                request = replace(request, messages=with_wishes)
        return with_block(request, skills.block, self._default_system)


def _shortened(request: ModelRequest, short: ShortPrompt | None) -> ModelRequest:
    return request if short is None else replace(request, messages=short.put_into(request.messages))


def with_block(request: ModelRequest, block: str, default_system: str | None) -> ModelRequest:
    """The request with a block behind what its system message says, or the model's own where it has none; as it is
    where there is no block."""
    if not block:
        return request
    first, *rest = request.messages
    if first.role != "system":
        said = f"{default_system}\n\n{block}" if default_system else block
        return replace(request, messages=[saying("system", said), *request.messages])
    return replace(request, messages=[_and_then(first, f"\n\n{block}"), *rest])


def _joined(skills: ChosenSkills) -> str:
    return f"{JOIN}{skills.behind}"


def _behind_question(messages: list[Message], words: str) -> list[Message] | None:
    """The messages with words behind the last one of a user; None where there is none."""
    at = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
    return None if at is None else [*messages[:at], _and_then(messages[at], words), *messages[at + 1 :]]


def _and_then(message: Message, words: str) -> Message:
    parts = message.parts
    last = parts[-1] if parts else None
    if isinstance(last, Text):
        return Message(message.role, (*parts[:-1], Text(f"{last.text}{words}")), message.name)
    return Message(message.role, (*parts, Text(words.lstrip())), message.name)
