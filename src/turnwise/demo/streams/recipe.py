"""What the demo of a stream plays, as data: which tasks, how many, what its server is told, what may be changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from turnwise import machine
from turnwise.environments.actors import RecordedActor
from turnwise.environments.base import Task
from turnwise.environments.transcript import Form
from turnwise.errors import ConfigError

FIRST_SHOWN, FIRST_TRIED, FIRST_EXAMINED = 1_000, 100_000, 900_000
"""Where the seeds begin of tasks whose solutions are shown, that are tried, and that are examined: none is in two."""
SEEDS_OF_A_RUN = 1_000
KV_CACHE_MB = 1024
"""What the engine has read of all tasks of a round stays there until their last try."""

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class StreamScale:
    """How large a run is. ``shown``, ``examined`` and ``unseen`` are seeds of each family, of which ``before`` are
    examined, with one try each, when nothing was learned yet; ``samples``: tries at each later. ``rounds`` of
    ``tasks`` tasks, each tried ``group`` times, are the most that are played, in ``rounds_s``."""

    shown: int
    examined: int
    unseen: int
    before: int
    samples: int
    rounds: int
    tasks: int
    group: int
    rounds_s: float


@dataclass(frozen=True, slots=True)
class StreamRecipe:
    """A stream's demo. Tasks of the families ``seen`` are learned from; of ``unseen`` they are examined alone.

    ``tasks`` makes the task of a family with a seed, None where this machine cannot play it; ``solver`` an actor that
    solves one and writes down how. ``stream`` has the keys of `[streams.NAME]` that differ from its defaults.
    ``minibatch``: groups of an optimiser step. ``most_steps``: answers that an episode has.
    """

    name: str
    stream: str
    """Of the settings: two demos may play tasks of one stream."""
    title: str
    family: str
    """What a family is called."""
    families: str
    seen: Sequence[str]
    unseen: Sequence[str]
    whole: StreamScale
    quick: StreamScale
    check: Callable[[], None]
    task: Callable[[str, int], Task | None]
    solver: Callable[[Task, Form], RecordedActor]
    lr: float
    minibatch: int
    most_steps: int
    answer_tokens: int
    temperature: float
    parallel: int
    context: int
    sft_epochs: int
    sft_lr: float
    sft_tokens: int
    own: Mapping[str, object]
    around: Callable[[Path], AbstractContextManager[object]] = nullcontext
    """What has to run beside the server, in its home, for as long as it does."""

    def tasks_for(self, names: Sequence[str], first: int, number: int, seed: int) -> list[Task]:
        """Tasks of these families that this run alone has, seed by seed and family by family."""
        begin = first + seed * SEEDS_OF_A_RUN
        made = [self.task(name, begin + i) for i in range(number) for name in names]
        return [task for task in made if task is not None]

    def check_switches(self, switches: Switches) -> None:
        """Raises ConfigError for one that would change nothing here."""
        if not switches.dynamic_sampling and self.own.get("dynamic_sampling") is False:
            raise ConfigError("--switch dynamic_sampling=false is how this stream is played anyway")

    def settings(self, scale: StreamScale, seed: int, switches: Switches) -> dict[str, dict[str, object]]:
        """What the server is told beside its defaults.

        No skills, and no judge: outcomes are all there is to learn from. No gate and no KL, which both hold a
        policy near the base model, while the warm start has led it away on purpose. The rate is that of an adapter that
        is to move within some ten updates. What the limit of steps ended is scored: a task takes no more of them here.
        """
        return {
            "engine": {"max_model_len": self.context, "kv_cache_mb": KV_CACHE_MB},
            "judge": {"enabled": False},
            "skills": {"enabled": False, "evolve": False},
            "gate": {"enabled": False, "probe_share": 0.0},
            "train": {"lr": switches.lr or self.lr, "seed": seed, "threads": threads()},
            f"streams.{self.stream}": {
                "method": "grpo",
                "beta_kl": 0.0,
                "dynamic_sampling": switches.dynamic_sampling,
                "groups": scale.tasks,
                "minibatch": self.minibatch,
                "group_size": scale.group,
                "max_steps": max(switches.steps or (self.most_steps,)),
                "cut_off": "score",
                "max_tokens": self.answer_tokens,
                "temperature": self.temperature,
                **self.own,
                **({"epochs": switches.epochs} if switches.epochs is not None else {}),
            },
        }


@dataclass(frozen=True, slots=True)
class Switches:
    """What may be changed of a recipe, so that its worth is seen: ``sft_epochs`` 0 leaves the warm start out;
    ``epochs`` are passes of an update over its groups; ``steps`` the answers of an episode, one number or a course of
    them, each for an equal part of the rounds. None: as the recipe has it."""

    sft_epochs: int | None = None
    dynamic_sampling: bool = True
    epochs: int | None = None
    steps: tuple[int, ...] = ()
    lr: float | None = None

    def steps_of(self, recipe: StreamRecipe, round_: int, rounds: int) -> int:
        """How many answers an episode of this round has, the first of which is 0."""
        course = self.steps or (recipe.most_steps,)
        return course[min(len(course) * round_ // max(rounds, 1), len(course) - 1)]


AS_IT_IS = Switches()


def read_switches(given: Sequence[str]) -> Switches:
    """Switches as `epochs=4` or `steps=2,4`. Raises ConfigError."""
    found = Switches()
    for each in given:
        name, _, value = each.partition("=")
        try:
            match name:
                case "sft_epochs":
                    found = replace(found, sft_epochs=_whole(value, 0))
                case "epochs":
                    found = replace(found, epochs=_whole(value, 1))
                case "steps":
                    found = replace(found, steps=tuple(_whole(part, 1) for part in value.split(",")))
                case "dynamic_sampling":
                    found = replace(found, dynamic_sampling={"true": True, "false": False}[value])
                case "lr":
                    found = replace(found, lr=float(value))
                case _:
                    raise KeyError(name)
        except (ValueError, KeyError):
            raise ConfigError(
                f"--switch takes sft_epochs=N (0: no warm start), epochs=N, steps=N or N,M, dynamic_sampling=true or "
                f"false, and lr=RATE, not {each[:60]!r}"
            ) from None
    return found


def _whole(text: str, least: int) -> int:
    if (number := int(text)) < least:
        raise ValueError(text)
    return number


def threads() -> int:
    """Of the trainer: all cores, or half of them where others are at work on this machine: threads of one operation
    wait for each other, and one that has no core holds up all."""
    cores = machine.cores()
    return cores if os.getloadavg()[0] < cores else max(1, cores // 2)
