"""What can be said of an engine at an address of its own, for `doctor` and before a start. Changes nothing there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Literal

from turnwise.capabilities import sees_pictures
from turnwise.config import Config
from turnwise.engines.base import Engine
from turnwise.engines.choose import token_engine
from turnwise.engines.sglang import SglangEngine
from turnwise.engines.token_route import NO_PICTURES
from turnwise.engines.upstream.client import make_upstream
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import ConfigError, EngineError
from turnwise.models import longest_context

log = logging.getLogger(__name__)

Remark = tuple[Literal["ok", "note", "silent", "fault"], str]
"""``silent``: nothing answers there now. That is a fault for `doctor`, while a server waits for its engine."""

EXAMINATION_S = 30.0
"""A start waits at most this long for an engine to say what it can."""


async def refuse_impossible(config: Config) -> None:
    """Before a start: raises ConfigError where an engine that answers cannot do what is configured."""
    try:
        async with asyncio.timeout(EXAMINATION_S):
            remarks = await examine_engine(config)
    except TimeoutError:
        log.warning("the engine did not say within %.0f s what it can; see `turnwise doctor`", EXAMINATION_S)
        return
    if faults := [text for level, text in remarks if level == "fault"]:
        raise ConfigError("; ".join(faults))
    for level, text in remarks:
        if level != "ok":
            log.warning(text)


async def examine_engine(config: Config) -> list[Remark]:
    """One remark or more for each address of the configured engine; none for the local engine."""
    kind = config.engine.kind
    if kind == "upstream":
        upstream = make_upstream(config)
        answers = await upstream.healthy()
        await upstream.close()
        return [("ok", f"something answers at {upstream.url}") if answers else _silent(upstream.url)]
    remarks: list[Remark] = []
    for url in config.engine.addresses:
        engine = token_engine(config, [url])
        try:
            if not await engine.healthy():
                remarks.append(_silent(url))
                continue
            remarks.append(("ok", f"{kind} at {url}, {await engine.max_model_len()} tokens of context"))
            if config.train.enabled:
                remarks += await _for_training(engine)
            if sees_pictures(config.model.path):
                remarks += await _for_pictures(engine)
        except EngineError as e:
            remarks.append(("fault", f"{url}: {e}"))
        finally:
            await engine.close()
    return remarks


async def context_of(config: Config) -> int | None:
    """Longest prompt plus answer at the configured engine, the least of its replicas'; None where none of them says."""
    kind = config.engine.kind
    if kind == "local":
        return min(config.engine.max_model_len, longest_context(config.model.path) or config.engine.max_model_len)
    if kind == "upstream":
        return config.engine.upstream_context
    told: list[int] = []
    for url in config.engine.addresses:
        engine = token_engine(config, [url])
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(EXAMINATION_S / 3):
                told.append(await engine.max_model_len())
        await engine.close()
    return min(told, default=None)


async def _for_training(engine: Engine) -> list[Remark]:
    remarks: list[Remark] = []
    if isinstance(engine, VllmEngine | SglangEngine):
        if not await engine.takes_adapters():
            remarks.append(("fault", engine.no_adapters))
        if not await engine.logprobs_follow_temperature():
            remarks.append(("note", engine.logprob_check.advice))
    return remarks


async def _for_pictures(engine: Engine) -> list[Remark]:
    if isinstance(engine, VllmEngine) and not await engine.takes_pictures():
        return [("fault", NO_PICTURES.format(url=engine.url))]
    return []


def _silent(url: str) -> Remark:
    return "silent", f"nothing answers at {url}; start the engine there (docs/engines.md), or change engine.url"
