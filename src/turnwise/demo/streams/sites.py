"""What the demo of the sites plays: questions and small changes on a shop, a tracker and a wiki that run beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from turnwise.config import load_config
from turnwise.demo.streams.recipe import StreamRecipe, StreamScale
from turnwise.environments.actors import RecordedActor
from turnwise.environments.base import Task
from turnwise.environments.browser.chromium import program
from turnwise.environments.browser.kind import KIND
from turnwise.environments.site_tasks.oracle import SiteOracle
from turnwise.environments.site_tasks.table import case_of, named, task_of
from turnwise.environments.sites.install import interpreter
from turnwise.environments.sites.keepers import running, sites_folder
from turnwise.environments.transcript import Form

SEEN = (
    "wiki-pieces",
    "wiki-town",
    "wiki-hook",
    "wiki-year",
    "wiki-owner",
    "shop-cheapest",
    "shop-remove",
    "tracker-phone",
)
UNSEEN = ("wiki-component", "shop-quantity")
"""Each has a sibling among those that are learned from. All ten are solved in two to four answers, on pages of which a
small model reads the whole conversation in 4,000 tokens."""


def _check() -> None:
    program()
    interpreter()


def _around(home: Path) -> AbstractContextManager[object]:
    needed = sorted({family.site for family in named((*SEEN, *UNSEEN))})
    return running(sites_folder(load_config(None, {"home": home})), needed)


def _task(name: str, seed: int) -> Task:
    return task_of(named((name,))[0], seed)


def _solver(task: Task, form: Form) -> RecordedActor:
    name, _, seed = task.id.rpartition("-")
    return RecordedActor(SiteOracle(case_of(named((name,))[0], int(seed)).moves), KIND, task, form)


RECIPE = StreamRecipe(
    name="sites",
    stream="web",
    title="Sites",
    family="family",
    families="families",
    seen=SEEN,
    unseen=UNSEEN,
    whole=StreamScale(shown=5, examined=3, unseen=3, before=1, samples=2, rounds=6, tasks=8, group=6, rounds_s=1500.0),
    quick=StreamScale(shown=1, examined=1, unseen=1, before=1, samples=1, rounds=1, tasks=2, group=4, rounds_s=120.0),
    check=_check,
    task=_task,
    solver=_solver,
    lr=2e-4,
    minibatch=8,
    most_steps=5,
    answer_tokens=48,
    temperature=0.8,
    parallel=4,
    context=6144,
    sft_epochs=2,
    sft_lr=5e-4,
    sft_tokens=3072,
    own={"aggregation": "trajectory-sum", "epochs": 2},
    around=_around,
)
