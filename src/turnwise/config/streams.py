"""The sections `[streams.NAME]`: how the rollouts of each kind of task are learned from, beside a person's turns.

The defaults of each are those of the papers that trained such agents (OpenClaw-RL, OpenWebRL).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from turnwise.config.sections import Seconds, Section, TrainConfig
from turnwise.methods import METHODS, OF_ROLLOUTS, PERSONAL, method_of_rollouts

Averaged = Literal["turn-mean", "token-mean", "trajectory-sum", "trajectory-mean"]


class StreamConfig(Section):
    """How the rollouts of a kind of task are learned from (see algorithms.md)."""

    method: Annotated[str, AfterValidator(method_of_rollouts)] = Field(
        default="step_groups", description=f"What an outcome says of each step: {', '.join(OF_ROLLOUTS)}."
    )
    weight: float = Field(default=1.0, gt=0, description="Weight of its loss beside that of the other streams.")
    aggregation: Averaged = Field(default="turn-mean", description="How token losses are averaged.")
    beta_kl: float = Field(default=0.01, ge=0, description="Weight of the KL to the base model.")
    epochs: int = Field(default=1, ge=1, description="Passes over its groups of an update.")
    groups: int = Field(default=8, ge=1, description="Whole groups that start an update, and the most in one.")
    minibatch: int | None = Field(default=None, ge=1, description="Groups per optimiser step; unset: all of them.")
    group_size: int = Field(
        default=8, ge=1, le=1024, description="Rollouts of a group whose client does not say how many there are."
    )
    group_wait_s: Seconds = Field(
        default=3600.0, description="A group that is not complete this long after its first request is closed."
    )
    incomplete: Literal["use", "exclude"] = Field(
        default="use", description="What becomes of the rollouts that did arrive in such a group."
    )
    dynamic_sampling: bool = Field(
        default=False, description="Drop groups whose outcomes are all alike, and wait for others in their place."
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="Steps of a rollout; a request for another is refused. Unset: no limit."
    )
    votes: int = Field(
        default=1,
        ge=0,
        le=15,
        description="Votes of a model judge on each step, with `step_groups`; 0: the outcome alone counts.",
    )
    cut_off: Literal["mask", "score"] = Field(
        default="mask",
        description="What a rollout is worth that a limit ended (steps, context, time): nothing, or what its verifier "
        "says.",
    )
    open_groups: int = Field(
        default=256, ge=1, description="Groups that wait for their rollouts at a time; a request for another is a 429."
    )
    parallel: int | None = Field(
        default=None, ge=1, description="Rollouts that `turnwise rollout` plays at a time. Unset: its `--parallel`."
    )
    pictures: bool = Field(
        default=False, description="Send the agent screenshots as well, where the environment has a screen."
    )
    keep_pictures: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Latest screenshots in a request; a few words stand in place of older ones.",
    )
    temperature: float = Field(default=1.0, ge=0, le=2, description="Where the client names none.")
    max_tokens: int = Field(default=8192, ge=1, description="Longest answer of a client without a limit.")

    @model_validator(mode="after")
    def _whole_rollouts_are_dropped(self) -> StreamConfig:
        if self.dynamic_sampling and METHODS[self.method].scores:
            raise ValueError(
                f"dynamic_sampling drops groups with equal outcomes, and the method {self.method!r} learns from votes "
                'on steps as well; set dynamic_sampling = false, or method = "grpo"'
            )
        return self


TRACKS: dict[str, dict[str, Any]] = {
    "terminal": {"groups": 16, "group_size": 8, "max_steps": 10},
    "swe": {"groups": 8, "group_size": 8, "max_steps": 20},
    "tools": {"groups": 32, "group_size": 8},
    "desktop": {"groups": 8, "group_size": 8, "max_steps": 30, "votes": 3},
    "openenv": {"groups": 8, "group_size": 8, "max_steps": 30},
    "verifiers": {"groups": 32, "group_size": 8, "max_steps": 10},
    "web": {
        "method": "grpo",
        "aggregation": "trajectory-sum",
        "dynamic_sampling": True,
        "groups": 48,
        "group_size": 5,
        "max_steps": 15,
        "cut_off": "score",  # an episode that meets a limit has failed (OpenWebRL, A.4)
        "epochs": 2,
        "beta_kl": 0.0,
        "temperature": 0.8,
        "max_tokens": 1024,
    },
}
"""What each stream's defaults are where they differ from those of `StreamConfig`. A new stream is a line here and a
field below."""


def _track(name: str) -> StreamConfig:
    return StreamConfig(**TRACKS[name])


class StreamsConfig(Section):
    """The streams of rollouts. A person's turns are the stream `personal`, whose settings are those of `train`."""

    terminal: StreamConfig = Field(default=_track("terminal"), description="Commands in a shell.")
    swe: StreamConfig = Field(default=_track("swe"), description="Changes to a repository, checked by its tests.")
    tools: StreamConfig = Field(default=_track("tools"), description="Calls of given tools.")
    desktop: StreamConfig = Field(default=_track("desktop"), description="Programs with windows, a mouse and keys.")
    openenv: StreamConfig = Field(default=_track("openenv"), description="Environments of OpenEnv servers.")
    verifiers: StreamConfig = Field(default=_track("verifiers"), description="Tasksets of `verifiers`.")
    web: StreamConfig = Field(default=_track("web"), description="Pages in a browser.")

    @field_validator(*TRACKS, mode="before")
    @classmethod
    def _with_the_defaults_of_its_track(cls, given: object, info: Any) -> object:
        return TRACKS[info.field_name] | given if isinstance(given, dict) else given

    def named(self, name: str) -> StreamConfig | None:
        """The stream of this name, or None."""
        return getattr(self, name) if name in TRACKS else None

    def items(self) -> Iterator[tuple[str, StreamConfig]]:
        """Each with its name."""
        return ((name, getattr(self, name)) for name in TRACKS)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the samples of one stream are trained on, beside what all share (`TrainConfig`).

    ``minibatch``: samples of an optimiser step, or groups where they have some. ``weight``: of the stream's loss.
    """

    method: str
    aggregation: Averaged
    beta_kl: float
    epochs: int
    minibatch: int
    weight: float = 1.0


def of_person(train: TrainConfig) -> Recipe:
    """The recipe of the personal stream."""
    return Recipe(train.method, train.aggregation, train.beta_kl, train.epochs, train.minibatch)


def recipes(train: TrainConfig, streams: StreamsConfig) -> dict[str, Recipe]:
    """The recipe of each stream."""
    return {PERSONAL: of_person(train)} | {
        name: Recipe(s.method, s.aggregation, s.beta_kl, s.epochs, s.minibatch or s.groups, s.weight)
        for name, s in streams.items()
    }
