"""The first check of a skill: the failing turns that it was made of are asked again, with it and without it.

The engine is asked for them directly, at temperature 0, one after the other: nothing of it is a turn, is recorded or is
trained on. What an answer is worth is told by what the failure showed: whether a call fits its tool's
definition, whether a program that was missing is run again, or how much of what the person said of the answer is in it.
Where none of this tells anything, nothing is decided.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from renderers.base import ToolCallParseStatus

from turnwise.capabilities import CAPABILITIES
from turnwise.config import Config
from turnwise.engines.base import Engine, SamplingParams
from turnwise.engines.choose import token_engine
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import TurnwiseError
from turnwise.evolving.evidence import ShownTurn
from turnwise.gateway.turn.injecting import with_block
from turnwise.gateway.versions import adapter_name
from turnwise.gateway.wire.request import ModelRequest
from turnwise.gateway.wire.thinking import asked_thinking, keeps_thinking
from turnwise.journal import Journal, WholeTurn
from turnwise.journal.skills.replays import ReplayResult, ReplayState
from turnwise.judges.sources.commands import shell_command
from turnwise.messages import calls_of, text_of, with_text
from turnwise.models import resolve_model
from turnwise.patterns import pattern
from turnwise.skills.serving import block_of
from turnwise.skills.skill_file import parse
from turnwise.skills.wishes import tells_nothing
from turnwise.tokens.rendering import Prompt, PromptRenderer, load_renderer
from turnwise.types import MODEL_NAME, Message, Skill, ToolCall

log = logging.getLogger(__name__)

ANSWER_TOKENS = 96
MOST_TOKENS = 1800
"""Longest prompt that is asked again; the local engine gives log-probs of no longer one."""
BETTER, WORSE = 0.1, -0.75
"""Change in how much of what the person said is in the answer (nats per token) from which it is better, or worse.

Measured on 12 wishes of 12 kinds, each with an answer that follows it, one that does not, and another that does not:
docs/skills.md has the figures. An answer that is merely another one changes by -0.51 to 0.26.
"""
MOST_TRIES = 4
"""Times that an engine is asked which does not answer in time."""

Outcome = Literal["better", "worse", "same", "unclear"]
Worth = Callable[[WholeTurn, "ReplayedAnswer", "ReplayedAnswer"], Awaitable[Outcome]]
"""Compares the answer to a turn without the skill and the one with it."""


@dataclass(frozen=True, slots=True)
class ReplayedAnswer:
    """An answer: its ``text``, the ids without the closing one, and its calls; ``broken`` calls could not be read."""

    text: str
    ids: tuple[int, ...]
    calls: tuple[ToolCall, ...] = ()
    broken: int = 0


class Replayer:
    """Asks failing turns again. ``engine`` is None where none takes token ids, and ``why`` says so."""

    def __init__(self, config: Config, journal: Journal, urls: Sequence[str]) -> None:
        self._config, self._settings, self._journal = config, config.skills, journal
        able = CAPABILITIES[config.engine.kind]
        urls = config.engine.addresses or urls
        self.why = "" if able.token_ids and urls else "the engine takes messages, or none was named"
        self._engine: Engine | None = None if self.why else token_engine(config, urls[:1])
        self._scores = self._engine if able.given_logprobs and isinstance(self._engine, VllmEngine) else None
        self._renderer: PromptRenderer | None = None

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    async def replay(self, turns: Sequence[ShownTurn], skill: Skill, tries: int = 0) -> ReplayResult:
        """What becomes of failing turns with this skill. Never raises for an engine: it "waits" where that is away.

        ``tries``: how often it was asked before. Takes no longer than ``skills.replay_s``.
        """
        if self._engine is None:
            return ReplayResult("unclear", f"not asked again: {self.why}", unclear=len(turns))
        found: list[Outcome] = []
        fault = ""
        try:
            async with asyncio.timeout(self._settings.replay_s):
                for turn in list(turns)[-self._settings.replay_turns :]:
                    found.append(await self._seen(turn, skill))
        except TimeoutError:
            fault = f"the engine took longer than {self._settings.replay_s:g} s"
        except TurnwiseError as e:
            log.info("failing turns cannot be asked again now: %s", e)
            fault = "the engine did not answer"
        return result_of(found, fault, tries + 1)

    async def _seen(self, shown: ShownTurn, skill: Skill) -> Outcome:
        """The outcome of one turn. What an odd turn breaks is said, and keeps no other turn from being asked again."""
        try:
            return await self._outcome(shown, skill)
        except (TurnwiseError, TimeoutError):
            raise
        except Exception:
            log.exception("turn %s cannot be asked again", shown.turn_id)
            return "unclear"

    async def _outcome(self, shown: ShownTurn, skill: Skill) -> Outcome:
        turn = await asyncio.to_thread(self._journal.turns.get, shown.turn_id)
        worth = None if turn is None else self._worth_of(shown, turn)
        if turn is None or worth is None:
            return "unclear"
        stood = await asyncio.to_thread(self._stood, turn.id, skill.name)
        without = await self._ask(turn, stood)
        told = None if without is None else await self._ask(turn, [*stood, skill])
        if without is None or told is None:
            return "unclear"
        if told.text == without.text and told.calls == without.calls:
            return "same"
        return await worth(turn, without, told)

    def _worth_of(self, shown: ShownTurn, turn: WholeTurn) -> Worth | None:
        """What tells two answers of this turn apart; None where nothing does."""
        if shown.evidence == "tool.bad_call":
            return _by(lambda answer: calls_fit(answer, turn.tools))
        if shown.evidence == "tool.command_not_found":
            missing = missing_programs(turn)
            return _by(lambda answer: avoids(answer, missing)) if missing else None
        said = " ".join(shown.said)
        if self._scores is None or not said or all(tells_nothing(sentence) for sentence in shown.said):
            return None

        async def by_what_was_said(turn: WholeTurn, without: ReplayedAnswer, told: ReplayedAnswer) -> Outcome:
            before, after = [await self._fit(turn, said, answer) for answer in (without, told)]
            if before is None or after is None:
                return "unclear"
            change = after - before
            return "better" if change >= BETTER else "worse" if change <= WORSE else "same"

        return by_what_was_said

    async def _fit(self, turn: WholeTurn, said: str, answer: ReplayedAnswer) -> float | None:
        """How much likelier (nats per token) an answer is where what the person said of the first one stands behind the
        question, by the base model and without any skill; None where there is nothing to compare."""
        assert self._scores is not None
        prompts = [await self._prompt(turn, [], asked) for asked in (turn.messages, hinted(turn.messages, said))]
        if not answer.ids or any(p is None for p in prompts):
            return None
        bare, with_hint = [await self._scores.logprobs_of(p, list(answer.ids)) for p in prompts if p is not None]
        return (sum(with_hint) - sum(bare)) / len(answer.ids)

    async def _ask(self, turn: WholeTurn, skills: Sequence[Skill]) -> ReplayedAnswer | None:
        """The likeliest answer with these skills; None where the prompt is too long."""
        assert self._engine is not None
        prompt = await self._prompt(turn, skills, turn.messages)
        if prompt is None:
            return None
        renderer = await self._family()
        stops = tuple(renderer.stop_token_ids)
        params = SamplingParams(ANSWER_TOKENS, 0.0, 1.0, -1, 0, (), stops)
        model = adapter_name(await asyncio.to_thread(self._journal.versions.latest))
        ids: list[int] = []
        async with aclosing(self._engine.generate(model, prompt, params, affinity=turn.session_id)) as chunks:
            async for chunk in chunks:
                ids += chunk.token_ids
        kept = ids[:-1] if ids and ids[-1] in stops else ids
        return await asyncio.to_thread(_read, renderer, kept, turn, prompt)

    async def _prompt(self, turn: WholeTurn, skills: Sequence[Skill], messages: list[Message]) -> list[int] | None:
        """The ids of a prompt, made as the gateway makes it; None where it is too long to be asked again, or
        has pictures."""
        renderer = await self._family()

        def made() -> Prompt:
            named = sorted(skills, key=lambda skill: skill.name)
            block = block_of(named, self._settings.max_tokens) if named else ""
            request = ModelRequest(MODEL_NAME, messages, turn.tools, record=turn.params)
            request = with_block(request, block, renderer.default_system)
            thinking = asked_thinking(turn.params)
            return renderer.render(request.messages, turn.tools, thinking, keeps_thinking(request))

        prompt = await asyncio.to_thread(made)
        return prompt.ids if len(prompt.ids) <= MOST_TOKENS and not prompt.pictures else None

    async def _family(self) -> PromptRenderer:
        if self._renderer is None:
            self._renderer = await asyncio.to_thread(load_renderer, resolve_model(self._config.model.path))
        return self._renderer

    def _stood(self, turn_id: str, but: str) -> list[Skill]:
        """The skills in a turn's prompt, but an earlier text of this one."""
        versions = self._journal.skills.versions(self._journal.skills.used(turn_id)).values()
        return [parse(v.content, f"the recorded skill {v.name}") for v in versions if v.name != but]


def result_of(found: Sequence[Outcome], fault: str, tries: int) -> ReplayResult:
    """What the outcomes come to. A ``fault`` counts where none was judged: those before it are decided on."""
    counts = {kind: found.count(kind) for kind in ("better", "worse", "same", "unclear")}
    judged = len(found) - counts["unclear"]
    state: ReplayState
    if fault and not judged:
        last = tries >= MOST_TRIES
        state, why = ("unclear", f"{fault}, {tries} times") if last else ("waits", fault)
    elif not judged:
        state, why = "unclear", "nothing tells whether an answer to these turns is better"
    elif counts["worse"]:
        state, why = "failed", f"it made {counts['worse']} of {judged} failing turns worse"
    elif not counts["better"]:
        state, why = "failed", f"it made none of {judged} failing turns better"
    else:
        state, why = "passed", f"it made {counts['better']} of {judged} failing turns better, and none worse"
    return ReplayResult(state, why, **counts, tries=tries)


def _by(grade: Callable[[ReplayedAnswer], bool | None]) -> Worth:
    """The outcome where each answer is right, wrong, or neither can be told."""

    async def compared(_: WholeTurn, without: ReplayedAnswer, told: ReplayedAnswer) -> Outcome:
        before, after = grade(without), grade(told)
        if before is None or after is None:
            return "unclear"
        return "same" if before == after else "better" if after else "worse"

    return compared


def hinted(messages: Sequence[Message], said: str) -> list[Message]:
    """The messages with what the person said later behind their last question."""
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=None)
    if last is None:
        return list(messages)
    asked = messages[last]
    return [*messages[:last], with_text(asked, f"{text_of(asked)}\n\n({said})"), *messages[last + 1 :]]


def calls_fit(answer: ReplayedAnswer, tools: Sequence[dict[str, Any]] | None) -> bool | None:
    """Whether every call of an answer is one that its tool's definition allows; None where it calls nothing."""
    if answer.broken:
        return False
    if not answer.calls:
        return None
    known = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools or ()}
    return all(call.name in known and _fits(call.arguments, known[call.name]) for call in answer.calls)


_BETWEEN = pattern(r"&&|\|\||[;|\n]")
_WORDS = pattern(r"[\w./+-]+")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict
}  # fmt: skip


def _fits(arguments: str, parameters: Any) -> bool:
    """Whether arguments are a JSON object with all that is required, nothing unknown, and values of the right types."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return False
    schema: dict[str, Any] = parameters if isinstance(parameters, dict) else {}
    named, required = schema.get("properties"), schema.get("required")
    named = named if isinstance(named, dict) else {}
    if not isinstance(given, dict) or not all(key in given for key in _names(required)):
        return False
    if named and not schema.get("additionalProperties") and not set(given) <= set(named):
        return False
    for key, value in given.items():
        wanted = named.get(key, {}).get("type") if isinstance(named.get(key), dict) else None
        right = _TYPES.get(wanted) if isinstance(wanted, str) else None
        if right is not None and (not isinstance(value, right) or (isinstance(value, bool) and wanted != "boolean")):
            return False
    return True


def _names(required: Any) -> list[str]:
    """The names in a list; a definition comes from outside and may hold anything."""
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def programs(calls: Sequence[ToolCall]) -> frozenset[str]:
    """The programs that shell calls run: the first word of each command of a line."""
    lines = [shell_command(call.name, call.arguments) or "" for call in calls]
    parts = [part.split() for line in lines for part in _BETWEEN.split(line)]
    return frozenset(words[0] for words in parts if words)


def missing_programs(turn: WholeTurn) -> frozenset[str]:
    """Of the programs that a turn's calls run, those that the tools' reports name; all where they name none."""
    run = programs(calls_of(turn.answer) if turn.answer else ())
    reports = _WORDS.findall(" ".join(text_of(message) for message in turn.next_state))
    return run & {word.rstrip(".") for word in reports} or run


def avoids(answer: ReplayedAnswer, missing: Collection[str]) -> bool | None:
    """Whether an answer runs something, and none of these programs; None where it runs nothing."""
    run = programs(answer.calls)
    return None if not run else run.isdisjoint(missing)


def _read(renderer: PromptRenderer, ids: list[int], turn: WholeTurn, prompt: list[int]) -> ReplayedAnswer:
    text = renderer.decode(ids)
    if not turn.tools:
        return ReplayedAnswer(text, tuple(ids))
    found = renderer.parse(ids, turn.tools, prompt).tool_calls
    whole = [call for call in found if call.status is ToolCallParseStatus.OK]
    calls = tuple(ToolCall(call.name or "", json.dumps(call.arguments or {})) for call in whole)
    return ReplayedAnswer(text, tuple(ids), calls, len(found) - len(whole))
