"""The families of tasks on sites, and tasks of them as a file has them; on request with the calls that solve each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from turnwise.environments.base import Task, TaskOutcome
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.site_tasks import shop, tracker, wiki
from turnwise.environments.site_tasks.base import SiteCase, SiteFamily
from turnwise.environments.site_tasks.oracle import SiteOracle
from turnwise.environments.sites.checks import rows_of
from turnwise.environments.sites.install import database_of
from turnwise.environments.sites.table import site_named
from turnwise.errors import DataError

FAMILIES = {family.name: family for family in (*shop.FAMILIES, *tracker.FAMILIES, *wiki.FAMILIES)}
MOST_STEPS = 15
"""Of an episode that is recorded: the limit of the stream."""


def families_of(sites: Sequence[str]) -> list[SiteFamily]:
    """The families on these sites. Raises DataError for a site that there is not."""
    named = {site_named(name).name for name in sites}
    return [family for family in FAMILIES.values() if family.site in named]


def case_of(family: SiteFamily, seed: int) -> SiteCase:
    """What a seed makes of a family. Raises DataError where the sites are not installed."""
    database = database_of(site_named(family.site))
    return family.make(random.Random(f"{family.name} {seed}"), lambda query: rows_of(database, query))


def task_of(family: SiteFamily, seed: int) -> Task:
    """The task of a seed, without the calls that solve it."""
    case = case_of(family, seed)
    return Task(f"{family.name}-{seed}", "web", case.prompt, {"site": family.site, **case.goal})


def recorded(
    chosen: Sequence[SiteFamily], seeds: Sequence[int], sites: Path, left_out: Callable[[str, str], None]
) -> Iterator[Task]:
    """Tasks with the calls that solve each, played once on sites that run in a folder; one that its moves do not solve
    is left out, and ``left_out`` told its id and why."""
    environment = BrowserEnvironment(MOST_STEPS, sites=sites)
    try:
        for family in chosen:
            for seed in seeds:
                task, oracle = task_of(family, seed), SiteOracle(case_of(family, seed).moves)
                actions, outcome = played(environment, task, oracle)
                if outcome.reward < 1:
                    lost = "" if oracle.lost is None else f"; nothing is named {oracle.lost.words!r}"
                    left_out(task.id, f"{outcome.details.get('not_met')}{lost}")
                else:
                    yield Task(task.id, task.environment, task.prompt, {**task.data, "oracle": actions})
    finally:
        environment.close()


def played(
    environment: BrowserEnvironment, task: Task, oracle: SiteOracle
) -> tuple[list[list[dict[str, object]]], TaskOutcome]:
    """The calls of an episode, an action a list, and what came of it."""
    observation, done = environment.reset(task), False
    actions: list[list[dict[str, object]]] = []
    while not done and (action := oracle.act(observation)) is not None:
        actions.append([{"name": call.name, "arguments": dict(call.arguments)} for call in action.calls])
        observation, done = environment.step(action)
    return actions, environment.score()


def named(names: Sequence[str]) -> list[SiteFamily]:
    """Raises DataError for a family that there is not."""
    if odd := [name for name in names if name not in FAMILIES]:
        raise DataError(f"there is no family {odd[0]!r} of tasks on sites; --list shows them")
    return [FAMILIES[name] for name in names]
