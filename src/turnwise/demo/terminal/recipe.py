"""What the demo of the terminal plays, as data: which tasks, how many, and what its server is told and why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.environments.base import Task
from turnwise.environments.terminal.families.table import missing, named

SEEN = (
    "append-line",
    "copy-file",
    "join-files",
    "make-link",
    "sort-lines",
    "count-lines",
    "count-matching",
    "keep-matching",
    "first-or-last",
    "change-case",
    "replace-word",
    "gzip-file",
)
"""Families that are learned from: one command solves each of their tasks."""
UNSEEN = ("without-repeats", "reverse-order", "make-executable", "delete-kind", "one-field", "json-read")
"""Families that are examined alone."""
LEVEL = 1
FIRST_SHOWN, FIRST_TRIED, FIRST_EXAMINED = 1_000, 100_000, 900_000
"""Where the seeds begin of tasks whose solutions are shown, that are tried, and that are examined: none is in two."""
SEEDS_OF_A_RUN = 1_000

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class TerminalScale:
    """How large a run is. ``shown``, ``examined`` and ``unseen`` are seeds of each family; ``samples``: tries at each
    examined task, but one before anything was learned. ``rounds`` of ``tasks`` tasks, each tried ``group`` times, are
    the most that are played, in ``rounds_s``."""

    shown: int
    examined: int
    unseen: int
    samples: int
    rounds: int
    tasks: int
    group: int
    rounds_s: float


WHOLE = TerminalScale(shown=3, examined=4, unseen=2, samples=2, rounds=8, tasks=8, group=8, rounds_s=330.0)
QUICK = TerminalScale(shown=2, examined=1, unseen=1, samples=1, rounds=1, tasks=4, group=4, rounds_s=120.0)

SFT_EPOCHS, SFT_LR, SFT_TOKENS = 2, 5e-4, 256
MOST_STEPS = 2
ANSWER_TOKENS = 48
TEMPERATURE = 0.6
PARALLEL = 12


def settings(scale: TerminalScale, seed: int) -> dict[str, dict[str, object]]:
    """What the server is told beside its defaults.

    No judge and no skills: outcomes are all there is to learn from. No gate and no KL, which both hold a policy near
    the base model, while the warm start has led it away on purpose. The rate is that of an adapter that is to move
    within some ten updates. What the limit of steps ended is scored: two steps are all that a task takes here.
    """
    return {
        "engine": {"max_model_len": 1024},
        "judge": {"enabled": False},
        "skills": {"enabled": False, "evolve": False},
        "gate": {"enabled": False, "probe_share": 0.0},
        "train": {"lr": 2e-4, "seed": seed, "threads": threads()},
        "streams.terminal": {
            "method": "grpo",
            "beta_kl": 0.0,
            "dynamic_sampling": True,
            "groups": scale.tasks,
            "minibatch": 2,
            "group_size": scale.group,
            "max_steps": MOST_STEPS,
            "cut_off": "score",
            "max_tokens": ANSWER_TOKENS,
            "temperature": TEMPERATURE,
        },
    }


def threads() -> int:
    """Of the trainer: all cores, or half of them where others are at work on this machine: threads of one operation
    wait for each other, and one that has no core holds up all."""
    cores = os.cpu_count() or 1
    return cores if os.getloadavg()[0] < cores else max(1, cores // 2)


def tasks_for(names: Sequence[str], first: int, number: int, seed: int) -> list[Task]:
    """Tasks of these families that this run alone has, seed by seed and family by family; none whose programs are
    missing."""
    begin = first + seed * SEEDS_OF_A_RUN
    here = [family for family in named(names) if not missing(family)]
    return [family.task(begin + i, LEVEL) for i in range(number) for family in here]
