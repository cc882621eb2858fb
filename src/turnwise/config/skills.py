"""Skills: what is put into prompts, and how skills are made."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.sections import Seconds, Section


class SkillsConfig(Section):
    """Skills: short instructions that are put into the prompts they fit (see skills.md)."""

    enabled: bool = Field(default=True, description="Put fitting skills of the library into the prompts of main turns.")
    retrieval: Literal["hybrid", "template"] = Field(
        default="hybrid",
        description="'hybrid': by meaning and words; 'template': a category that is named brings all of its skills.",
    )
    threshold: float = Field(
        default=0.205, ge=0, le=1, description="How well a skill must fit: 0 takes any, 1 only one that is named."
    )
    most: int = Field(default=3, ge=1, le=20, description="Most skills in one prompt.")
    max_tokens: int = Field(
        default=600, ge=50, description="Room for them in a prompt, in tokens of three bytes; one is always taken."
    )
    embedding_url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint for the vectors of skills; unset: word vectors, here."
    )
    embedding_model: str = Field(default="", description="Model name at that endpoint.")
    embedding_api_key_env: str = Field(
        default="TURNWISE_EMBEDDING_API_KEY", description="Environment variable with the endpoint's key."
    )
    embedding_timeout_s: Seconds = Field(default=2.0, description="Longest wait of a turn for a question's vector.")
    placing: Literal["auto", "system", "question"] = Field(
        default="auto",
        description="Where a person's wish stands in a prompt: 'system', with other skills at the end of the system "
        "message; 'question', its bare sentence behind their last question, until the weights learned it; 'auto': by "
        "the model, 'question' for the embedded ones.",
    )
    keep_older_generations: bool = Field(
        default=False, description="Train also on turns that were made before skills last came of failures."
    )
    evolve: bool = Field(
        default=True,
        description="Make skills of what a person wishes, and of failures of one kind that come again. "
        "Weights learn the wishes all the same, and no failure that a skill was made of.",
    )
    failures_before: int = Field(default=3, ge=1, description="Failures of one kind that a skill is made of.")
    evolver_url: str | None = Field(
        default=None,
        description="OpenAI-compatible endpoint of a model that writes skills; unset: the person's words are quoted.",
    )
    evolver_model: str = Field(default="turnwise@base", description="Model name at that endpoint.")
    evolver_api_key_env: str = Field(
        default="TURNWISE_EVOLVER_API_KEY", description="Environment variable with that endpoint's key."
    )
    evolver_timeout_s: Seconds = Field(default=120.0, description="Time limit of one request to it.")
    replay: bool = Field(
        default=True,
        description="Ask the failing turns again before a skill that was made of them is used; "
        "it is used where that helps, or where nothing can be told.",
    )
    replay_turns: int = Field(default=3, ge=1, le=20, description="Most of them that are asked again.")
    replay_s: Seconds = Field(default=60.0, description="Longest time that takes; then it is tried again later.")
    withhold_share: float = Field(
        default=0.1, ge=0, le=0.5, description="Share of sessions without a candidate, to see what it does; 0: none."
    )
