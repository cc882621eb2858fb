"""What `turnwise doctor` says of an engine that runs at an address of its own. Changes nothing there."""

from __future__ import annotations

from typing import Literal

from turnwise.config import Config
from turnwise.engines.choose import token_engine
from turnwise.engines.upstream import make_upstream
from turnwise.engines.vllm import RAW_LOGPROBS, VllmEngine
from turnwise.errors import EngineError

Remark = tuple[Literal["ok", "note", "fault"], str]


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
            if isinstance(engine, VllmEngine) and config.train.enabled:
                remarks += await _vllm(engine)
        except EngineError as e:
            remarks.append(("fault", f"{url}: {e}"))
        finally:
            await engine.close()
    return remarks


async def _vllm(engine: VllmEngine) -> list[Remark]:
    remarks: list[Remark] = []
    if not await engine.takes_adapters():
        remarks.append(
            (
                "fault",
                f"{engine.url} takes no adapters while it serves, so no version can be published; start it with "
                "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or set train.enabled = false",
            )
        )
    if not await engine.logprobs_follow_temperature():
        remarks.append(("note", RAW_LOGPROBS.format(url=engine.url)))
    return remarks


def _silent(url: str) -> Remark:
    return "fault", f"nothing answers at {url}; start the engine there (docs/engines.md), or change engine.url"
