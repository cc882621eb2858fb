"""Tasks of MiniWoB++ as a file of tasks has them; on request with the calls that solve each, recorded by playing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from turnwise.environments.base import Task
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.miniwob import page_names
from turnwise.environments.browser.miniwob_oracle import RULES, MiniwobOracle
from turnwise.errors import DataError

PROMPT = "Do what the page asks for."
MOST_STEPS = 6


def tasks_of(
    names: Sequence[str], seeds: Sequence[int], record: bool, left_out: Callable[[str], None]
) -> Iterator[Task]:
    """A task for each name and seed. With ``record`` each is played by its rule; where that does not solve it, it is
    left out, and ``left_out`` told its id. Raises DataError for a name that there is not, or that no rule solves."""
    for name in names:
        if name not in page_names():
            raise DataError(f"there is no task {name!r} in MiniWoB++; --list shows them")
        if record and name not in RULES:
            raise DataError(f"no rule solves {name}; leave it out, or --record")
    environment = BrowserEnvironment(MOST_STEPS)
    try:
        for name in names:
            for seed in seeds:
                task = miniwob_task(name, seed)
                if record and (task := _solved(environment, task, name)) is None:
                    left_out(f"{name}-{seed}")
                else:
                    yield task
    finally:
        environment.close()


def miniwob_task(name: str, seed: int) -> Task:
    """The task of a page with a seed."""
    return Task(f"{name}-{seed}", "web", PROMPT, {"miniwob": name, "seed": seed})


def _solved(environment: BrowserEnvironment, task: Task, name: str) -> Task | None:
    """The task with its calls, an action a list; None where the rule does not solve it."""
    oracle, observation, done = MiniwobOracle(name), environment.reset(task), False
    actions: list[list[dict[str, object]]] = []
    while not done and (action := oracle.act(observation)) is not None:
        actions.append([{"name": call.name, "arguments": dict(call.arguments)} for call in action.calls])
        observation, done = environment.step(action)
    if environment.score().reward < 1:
        return None
    return Task(task.id, task.environment, task.prompt, {**task.data, "oracle": actions})
