"""Asks an engine the same questions of several versions: ids in, ids out, nothing is recorded anywhere.

An engine at an address of its own is asked there, beside whatever else it serves. The local engine of a running server
answers nobody but its gateway, so one is started for the comparison, on a socket that nobody else can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from turnwise.config import Config
from turnwise.engines.base import BASE_MODEL, Engine, SamplingParams, merged
from turnwise.engines.choose import token_engine
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import ConfigError, EngineError, EngineUnreachable, TurnwiseError
from turnwise.judges.signals.own_engine import own_engine
from turnwise.versions.known import Usable

LIMIT_S = 300.0
"""Seconds that one answer may take."""
AT_ONCE = 4
"""Questions that the engine has at a time."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """The ids of an answer, whether it ended by itself, and each one's log-prob under the base model, where known."""

    ids: list[int]
    ended: bool
    base_logprobs: list[float] | None


@dataclass(frozen=True, slots=True)
class Asking:
    """How questions are asked: the most tokens of an answer, and the temperature (0: the likeliest token each time)."""

    tokens: int
    temperature: float = 0.0
    seed: int = 0


def ask_all(
    config: Config,
    versions: Sequence[Usable],
    prompts: Sequence[Sequence[int]],
    asking: Asking,
    ends: Sequence[int],
    told: Callable[[str], None],
) -> list[list[RawAnswer | None]]:
    """Each version's answers to the prompts; None for one that the engine's context does not hold.

    Raises TurnwiseError where no engine answers.
    """
    if config.engine.kind == "upstream":
        raise ConfigError('engine.kind = "upstream" relays to a model elsewhere and serves no versions to compare')
    with _addresses(config, told) as urls:
        return asyncio.run(_ask_versions(config, urls, versions, prompts, asking, ends, told))


@contextlib.contextmanager
def _addresses(config: Config, told: Callable[[str], None]) -> Iterator[list[str]]:
    if config.engine.addresses:
        yield [config.engine.addresses[0]]
        return
    told("starting an engine")
    with own_engine(config, config.versions_dir) as url:
        yield [url]


async def _ask_versions(
    config: Config,
    urls: Sequence[str],
    versions: Sequence[Usable],
    prompts: Sequence[Sequence[int]],
    asking: Asking,
    ends: Sequence[int],
    told: Callable[[str], None],
) -> list[list[RawAnswer | None]]:
    engine = token_engine(config, urls)
    try:
        found = []
        for version in versions:
            told(f"asking {f'version {version.number}' if version.number else 'the base model'}")
            async with _served(engine, version) as name:
                found.append(await _ask(engine, name, prompts, asking, ends))
        return found
    except EngineUnreachable as e:
        raise TurnwiseError(f"no engine answers at {urls[0]}: {e}; start it, or see `turnwise doctor`") from e
    finally:
        await engine.close()


@contextlib.asynccontextmanager
async def _served(engine: Engine, version: Usable) -> AsyncIterator[str]:
    """The engine's name of a version, which it holds inside of this; not the gateway's own name for it."""
    if version.folder is None:
        yield BASE_MODEL
        return
    name = f"compare-v{version.number}-{uuid.uuid4().hex[:8]}"  # two comparisons may share an engine
    await engine.load_adapter(name, version.folder.absolute())
    try:
        yield name
    finally:
        with contextlib.suppress(EngineError):
            await engine.unload_adapter(name)


async def _ask(
    engine: Engine, name: str, prompts: Sequence[Sequence[int]], asking: Asking, ends: Sequence[int]
) -> list[RawAnswer | None]:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: Sequence[int]) -> RawAnswer | None:
        async with free, asyncio.timeout(LIMIT_S):
            return await _answer(engine, name, list(prompt), asking, ends)

    try:
        return await asyncio.gather(*(one(prompt) for prompt in prompts))
    except TimeoutError:
        raise TurnwiseError(f"the engine took longer than {LIMIT_S:g} s for an answer; ask for fewer tokens") from None


async def _answer(
    engine: Engine, name: str, prompt: list[int], asking: Asking, ends: Sequence[int]
) -> RawAnswer | None:
    longest = await engine.max_model_len()
    most = min(asking.tokens, longest - len(prompt))
    if most < 1:
        return None
    params = SamplingParams(most, asking.temperature, 1.0, 0, asking.seed, (), tuple(ends))
    stream: AsyncGenerator = engine.generate(name, prompt, params)
    async with aclosing(stream) as chunks:
        parts = [chunk async for chunk in chunks]
    whole = merged(parts)
    return RawAnswer(
        whole.token_ids, whole.finish_reason == "stop", await _under_the_base(engine, prompt, whole.token_ids)
    )


async def _under_the_base(engine: Engine, prompt: list[int], answer: list[int]) -> list[float] | None:
    """Log-probs of the answer under the base model, where this engine gives those of given tokens."""
    if not isinstance(engine, VllmEngine) or not answer:
        return None
    try:
        return await engine.logprobs_of(prompt, answer)
    except EngineUnreachable:
        raise
    except EngineError:
        return None
