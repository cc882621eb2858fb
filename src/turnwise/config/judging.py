"""The section `[judge]`: how what comes back to an answer becomes a verdict, and how whole trajectories are judged."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from turnwise.config.sections import Seconds, Section


class TrajectoryJudgeConfig(Section):
    """The model that says of a whole trajectory whether its task was done, where a task has no verifier (web.md)."""

    url: str | None = Field(default=None, description="OpenAI-compatible endpoint; unset: that of `judge.url`.")
    model: str | None = Field(default=None, description="Model name at that endpoint; unset: `judge.model`.")
    api_key_env: str | None = Field(
        default=None, description="Environment variable with the endpoint's key; unset: that of `judge.api_key_env`."
    )
    pictures: Literal["auto", "never", "require"] = Field(
        default="auto",
        description="Send the last three screenshots (`auto`: their text in their place where the model refuses them; "
        "`require`: then there is no reward), or `never`.",
    )
    temperature: float = Field(default=0.0, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int = Field(default=512, ge=1, description="Longest reply, in tokens.")
    timeout_s: Seconds = Field(default=120.0, description="Time limit of one call; later there is no reward.")


class JudgeConfig(Section):
    """How next states become verdicts and hints."""

    enabled: bool = Field(default=True, description="Run the judge.")
    kind: Literal["signals", "model", "signals-then-model"] = Field(
        default="signals",
        description="Free signals alone, model votes alone, or signals first and the model where they abstain "
        '(`"signals"`, `"model"`, `"signals-then-model"`).',
    )
    votes: int = Field(default=1, ge=1, le=15, description="Model calls per turn (m).")
    url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint of the judge model; unset: the gateway."
    )
    model: str = Field(default="turnwise@base", description="Model name at that endpoint.")
    api_key_env: str = Field(
        default="TURNWISE_JUDGE_API_KEY", description="Environment variable with the endpoint's key."
    )
    temperature: float = Field(default=0.6, ge=0, le=2, description="Sampling temperature of a vote.")
    max_tokens: int = Field(default=512, ge=1, description="Longest reply of a score vote, in tokens.")
    hint_max_tokens: int = Field(default=512, ge=1, description="Longest reply of a hint vote, in tokens.")
    timeout_s: Seconds = Field(default=60.0, description="Time limit of one vote.")
    max_attempts: int = Field(default=4, ge=1, description="Tries before a turn is excluded as 'no valid vote'.")
    retry_s: Seconds = Field(default=5.0, description="First wait after a failed try; doubles each time.")
    lease_s: Seconds = Field(default=120.0, description="A judge that is silent for this long loses the turn.")
    deadline_s: Seconds = Field(
        default=10.0, description="Longest reading of one turn's texts; then the process that reads them is killed."
    )
    concurrency: int = Field(default=4, ge=1, description="Turns judged at once.")

    trajectory: TrajectoryJudgeConfig = Field(default=TrajectoryJudgeConfig(), description="Whole trajectories.")

    @field_validator("kind", mode="before")
    @classmethod
    def _renamed(cls, given: object) -> object:
        if given == "cascade":
            raise ValueError("this kind is called 'signals-then-model'; write that")
        return given
