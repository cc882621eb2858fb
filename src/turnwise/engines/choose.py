"""The client of the configured engine."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.capabilities import CAPABILITIES
from turnwise.config import Config
from turnwise.engines.base import Engine
from turnwise.engines.http import key_from
from turnwise.engines.replicas import Replicas
from turnwise.engines.sglang import SglangEngine
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import ConfigError

LOCAL_ENGINE_KEY = "TURNWISE_LOCAL_ENGINE_KEY"
"""Environment variable in which a supervisor hands the local engine and the gateway the key of this start."""


def token_engine(config: Config, urls: Sequence[str]) -> Engine:
    """The client of an engine that takes token ids, or of its replicas. Raises ConfigError for a kind that does not."""
    if not CAPABILITIES[config.engine.kind].token_ids:
        raise ConfigError(f'engine.kind = "{config.engine.kind}" takes messages, not token ids')
    client = SglangEngine if config.engine.kind == "sglang" else VllmEngine
    stall_s = config.server.engine_stall_s
    key = key_from(config.engine.api_key_env if config.engine.addresses else LOCAL_ENGINE_KEY)
    if len(urls) == 1:
        return client(urls[0], stall_s, key)
    return Replicas({url: client(url, stall_s, key) for url in urls})
