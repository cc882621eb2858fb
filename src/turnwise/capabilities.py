"""What each kind of engine can do, as data, and the combinations of settings that are therefore refused.

The check runs when the configuration is read, so that nothing starts which cannot work. docs/engines.md shows the same
table; a test compares the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config import Config

VISION_TYPES = frozenset({"idefics3", "smolvlm", "qwen3_vl"})
"""Values of `model_type` whose pictures are understood here: a Llama or Qwen3 that reads, behind a tower that sees."""

Kind = Literal["local", "vllm", "sglang", "upstream"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be asked of a kind of engine: what is not named it cannot."""

    token_ids: bool = False
    """Takes token ids and gives the sampled ids."""
    logprobs: bool = False
    """Gives the log-prob of each sampled token."""
    adapters: bool = False
    """Loads a trained version while it serves, and serves several versions at once."""
    models: bool = False
    """Loads a version that is a whole model beside the others, as it loads an adapter."""
    structured: bool = False
    """Holds an answer to a JSON schema."""
    grammars: bool = False
    """Takes vLLM's `structured_outputs`, and holds an answer to what they say."""
    forced_calls: bool = False
    """Makes the model call a tool, or the one that is named."""
    images: bool = False
    """Is told the images in a message, not their marks alone; whether its model sees them is for it to say."""
    external: bool = False
    """Runs at an address of its own, which `engine.url` must give; else turnwise starts it."""
    replicas: bool = False
    """Several addresses may be given."""
    pooling: bool = False
    """Gives hidden states of the base model, which the free judge reads what a person says by."""

    given_logprobs: bool = False
    """Gives the log-probs of given tokens: new skills are checked by them."""

    @property
    def trainable(self) -> bool:
        """Whether what it answers can be trained on and what is trained can be served."""
        return self.token_ids and self.logprobs and self.adapters


CAPABILITIES: dict[Kind, Capabilities] = {
    "local": Capabilities(
        token_ids=True, logprobs=True, adapters=True, models=True, images=True, pooling=True, given_logprobs=True
    ),
    "vllm": Capabilities(
        token_ids=True,
        logprobs=True,
        adapters=True,
        structured=True,
        grammars=True,
        forced_calls=True,
        images=True,
        external=True,
        replicas=True,
        given_logprobs=True,
    ),
    "sglang": Capabilities(token_ids=True, logprobs=True, adapters=True, structured=True, external=True, replicas=True),
    "upstream": Capabilities(structured=True, grammars=True, forced_calls=True, images=True, external=True),
}


def capabilities(config: Config) -> Capabilities:
    """Of the configured engine. Anthropic's API is asked for no schema and no grammar."""
    able = CAPABILITIES[config.engine.kind]
    return replace(able, structured=False, grammars=False) if config.engine.api == "anthropic" else able


ANTHROPIC_LACKS = ("seed", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "verbosity")
"""Settings for which Anthropic's API has no word."""


def unhonoured(config: Config) -> tuple[str, ...]:
    """Settings of a request that the configured engine cannot honour, and that an answer can do without."""
    return ANTHROPIC_LACKS if config.engine.api == "anthropic" else ()


def check(config: Config) -> None:
    """Raises ConfigError for settings that cannot work together, saying what to change."""
    engine, able = config.engine, capabilities(config)
    kind = f'engine.kind = "{engine.kind}"'
    external = " or ".join(f'"{name}"' for name, can in CAPABILITIES.items() if can.external)
    several = " or ".join(f'"{name}"' for name, can in CAPABILITIES.items() if can.replicas)
    urls = engine.addresses
    if engine.url is not None and engine.urls:
        raise ConfigError(
            "engine.url and engine.urls are both set; keep engine.urls for several replicas, or engine.url"
        )
    if len(urls) > 1 and not able.replicas:
        raise ConfigError(
            f"{kind} has one server, but {len(urls)} are named; name one, or set engine.kind to {several}"
        )
    if urls and not able.external:
        raise ConfigError(
            f"{kind} starts its own engine, so engine.url must not be set; remove it, or set engine.kind to {external}"
        )
    if able.external and not urls:
        raise ConfigError(f'{kind} needs the address of its server; set engine.url, or engine.kind = "local"')
    for url in urls:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"engine.url must begin with http:// or https:// and name a host, not {url!r}")
    if len(set(urls)) < len(urls):
        raise ConfigError("engine.urls names a replica twice; name each once")
    if config.train.enabled and not able.trainable:
        lacks = " and ".join(_LACKS[f.name] for f in fields(able) if f.name in _LACKS and not getattr(able, f.name))
        raise ConfigError(
            f"{kind} has no {lacks}, so it cannot be trained; set train.enabled = false, or another engine"
        )
    if config.train.enabled and config.train.weights == "full" and not able.models:
        able_ones = " or ".join(f'"{name}"' for name, can in CAPABILITIES.items() if can.models)
        raise ConfigError(
            f'{kind} cannot take up a whole model while it serves, as train.weights = "full" publishes it; set '
            f'train.weights = "lora", or engine.kind = {able_ones}'
        )
    if engine.kind != "upstream" and sees_pictures(config.model.path):
        _check_vision(config, able)
    if engine.kind != "upstream" and (engine.model is not None or engine.api != "openai"):
        raise ConfigError(f'engine.model and engine.api belong to engine.kind = "upstream", not to {kind}; remove them')


def sees_pictures(path: str) -> bool:
    """Whether a model folder holds a model whose pictures are understood here; False where that cannot be read."""
    try:
        config = json.loads((Path(path).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("model_type") in VISION_TYPES


def _check_vision(config: Config, able: Capabilities) -> None:
    """Raises ConfigError for what a model that sees pictures cannot be served or trained with."""
    model = f"the model in {config.model.path} sees pictures"
    if not able.images:
        told = " or ".join(f'"{name}"' for name, can in CAPABILITIES.items() if can.images and can.token_ids)
        raise ConfigError(
            f'{model}, and engine.kind = "{config.engine.kind}" takes token ids without them; set engine.kind = {told}'
        )
    if config.train.enabled and config.train.backend != "local":
        raise ConfigError(f'{model}, and is trained by one process alone; set train.backend = "local"')


_LACKS = {"token_ids": "token ids", "logprobs": "log-probs", "adapters": "adapters"}
