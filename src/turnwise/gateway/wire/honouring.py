"""Settings that the configured engine has no way to honour: left out and named, or refused by a strict server.

Only what changes how an answer is chosen is left out. What changes its form (a schema, a call that must be made) is
refused by every server: whoever asks for it reads the answer by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.capabilities import unhonoured
from turnwise.config import Config
from turnwise.gateway.wire.request import ModelRequest, unsupported

_NEUTRAL = {"min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1}


def as_honoured(request: ModelRequest, config: Config) -> ModelRequest:
    """The request as the engine can take it, with the names of what was left out. Raises ApiError (400) if strict."""
    names = [name for name in unhonoured(config) if _asks_for(request, name)]
    if not names:
        return request
    if config.server.strict:
        raise unsupported(names[0], "the engine has no such setting; leave it out")
    fields = {name: None for name in names if name != "verbosity"}  # which stands in the record alone
    return replace(request, sampling=replace(request.sampling, **fields), ignored=(*request.ignored, *names))


def verbosity_of(record: dict[str, Any]) -> str | None:
    """How much to say, in the words of either of OpenAI's APIs."""
    return within(record, "text", "verbosity") if record.get("verbosity") is None else record["verbosity"]


def within(record: dict[str, Any], name: str, key: str) -> Any:
    given = record.get(name)
    return given.get(key) if isinstance(given, dict) else None


def _asks_for(request: ModelRequest, name: str) -> bool:
    value = verbosity_of(request.record) if name == "verbosity" else getattr(request.sampling, name)
    return value is not None and value != _NEUTRAL.get(name)
