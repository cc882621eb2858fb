"""Shorter system prompts: off unless an endpoint is named that makes them."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.sections import Seconds, Section


class CompressConfig(Section):
    """Long system prompts of agents, made shorter by a model of one's choice (see skills.md)."""

    url: str | None = Field(
        default=None,
        description="OpenAI-compatible endpoint of a model that shortens system prompts; unset: they stay as they are.",
    )
    model: str = Field(default="turnwise@base", description="Model name at that endpoint.")
    api_key_env: str = Field(
        default="TURNWISE_COMPRESS_API_KEY", description="Environment variable with that endpoint's key."
    )
    timeout_s: Seconds = Field(default=300.0, description="Time limit of one request to it.")
    from_tokens: int = Field(
        default=1500, ge=1, description="Shorter ones, in tokens of three bytes, are left as they are."
    )
