"""The limits of the gate: when what was trained may serve."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.sections import Seconds, Section


class GateConfig(Section):
    """When a trained version may serve."""

    enabled: bool = Field(
        default=True, description="Compare a candidate with its parent and the base model before it is published."
    )
    probe_share: float = Field(
        default=0.08,
        ge=0,
        le=0.5,
        description="Share of sessions that are set aside for the gate, never trained on.",
    )
    probe_after: int = Field(
        default=12, ge=0, description="The first sessions of a home, of which none is set aside: all are learned from."
    )
    probes: int = Field(default=8, ge=1, description="Turns of set-aside sessions that the gate looks at.")
    answers: int = Field(default=6, ge=0, description="Answers that it samples from a candidate; 0: none.")
    answer_tokens: int = Field(default=128, ge=16, description="Longest of them, in tokens.")
    answers_s: Seconds = Field(
        default=300.0, description="Longest time for sampling so many once; after it they count as not measured."
    )
    max_step_kl: float = Field(
        default=0.5,
        gt=0,
        description="Farthest from parent or told base model, in nats per token.",
    )
    max_drift_kl: float = Field(
        default=0.8,
        gt=0,
        description="Farthest from the base model, told the hints or not, in nats per token.",
    )
    max_answer_drift: float = Field(
        default=0.8,
        gt=0,
        description="Most that its own answers may be less likely under the base model, told the hints or not, "
        "than under itself, in nats per token.",
    )
    max_off_topic: float = Field(
        default=0.85,
        gt=0,
        description="Most that its answers may lose of what ties them to their questions, as a share of the base's.",
    )
    max_lost_right: float = Field(
        default=0.25,
        gt=0,
        description="Which share of simple questions that the base model answers right it may answer wrong. What "
        "telling it the hints costs is excused, at most half of a loss.",
    )
    max_praise_lost: float = Field(
        default=5.0,
        gt=0,
        description="Nats that a token of an answer may lose which was praised and follows the wishes: the worst token "
        "of each, the median of two such answers or more.",
    )
    max_lost_words: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="By which share fewer of its answers may have words that the person asks for and praises than of "
        "the parent's.",
    )
    max_echo: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="How many more of its answers, as a share, may say a wish back than of the parent's and the told "
        "base model's.",
    )
    max_nll_rise: float = Field(default=0.5, gt=0, description="Most a well-judged answer may lose, in nats per token.")
    max_general_rise: float = Field(
        default=0.5, gt=0, description="Most the answers of the general probe may lose, in nats per token."
    )
    max_repetition: float = Field(
        default=0.15,
        gt=0,
        le=1,
        description="How many more of the 4-grams in its answers, as a share, may be repetitions than in the base "
        "model's, told the hints or not. Of three answers and more the one that repeats itself most is left out.",
    )
    max_length_ratio: float = Field(
        default=2.5,
        gt=1,
        description="How much longer or shorter its answers may be than recorded ones, its parent's, "
        "the base model's and the told base model's.",
    )
    max_unended: float = Field(
        default=0.5, gt=0, le=1, description="How many more of its answers, as a share, may go on without an end."
    )
    unmeasured: Literal["pass", "hold"] = Field(
        default="pass", description="What a check that could not be made means: the rest decides, or nothing passes."
    )
