"""Tasks of MiniWoB++ whose recorded calls have one mistake: another element, another text, or a call too few.

Such episodes look like good ones and fail, as the page's own script says. Judges of trajectories are measured on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from turnwise.environments.base import Action, Call, Observation, Task
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.miniwob import page_names
from turnwise.environments.browser.miniwob_oracle import RULES, MiniwobOracle, screen_of
from turnwise.environments.browser.miniwob_tasks import MOST_STEPS, PROMPT
from turnwise.errors import DataError

TRIES = 4
"""Mistakes that are tried for each task; some change nothing that the page's script asks for."""
OTHER_WORDS = ("Myra", "Karol", "blue", "Tuesday", "17", "okay", "Renda", "north", "false", "9")


class SpoiledOracle:
    """Plays by a page's rule and makes one mistake, at its first answer that has something to get wrong."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._oracle, self._rng, self.spoiled = MiniwobOracle(name), rng, False

    def act(self, observation: Observation) -> Action | None:
        action = self._oracle.act(observation)
        if action is None or self.spoiled or not action.calls:
            return action
        calls = spoiled_calls(action.calls, [(e.x, e.y) for e in screen_of(observation.text).elements], self._rng)
        self.spoiled = calls is not None
        return action if calls is None else replace(action, calls=tuple(calls))


def spoiled_calls(calls: Sequence[Call], places: Sequence[tuple[int, int]], rng: random.Random) -> list[Call] | None:
    """The calls with one mistake; ``places`` are the elements' middles. None where nothing can be got wrong."""
    found = list(calls)
    order = list(range(len(found)))
    rng.shuffle(order)
    for at in order:
        call = found[at]
        if call.name == "write":
            words = [word for word in OTHER_WORDS if word != call.arguments.get("text")]
            return [*found[:at], Call("write", {"text": rng.choice(words)}), *found[at + 1 :]]
        if call.name == "click":
            if len(found) > 1 and rng.random() < 0.3:
                return [*found[:at], *found[at + 1 :]]
            others = [(x, y) for x, y in places if (x, y) != (call.arguments.get("x"), call.arguments.get("y"))]
            if others:
                x, y = rng.choice(others)
                return [*found[:at], Call("click", {**call.arguments, "x": x, "y": y}), *found[at + 1 :]]
    return None


def spoiled_tasks(names: Sequence[str], seeds: Sequence[int], left_out: Callable[[str], None]) -> Iterator[Task]:
    """A task for each name and seed whose oracle has a mistake and does not solve it; ``left_out`` is told the others.
    Raises DataError for a name that there is not, or that no rule solves."""
    for name in names:
        if name not in page_names() or name not in RULES:
            raise DataError(f"no rule solves {name}; leave it out, or --spoil")
    environment = BrowserEnvironment(MOST_STEPS)
    try:
        for name in names:
            for seed in seeds:
                found = None
                for attempt in range(TRIES):
                    if found is None:
                        found = _failing(environment, name, seed, random.Random(f"{name} {seed} {attempt}"))
                if found is None:
                    left_out(f"{name}-{seed}")
                else:
                    yield found
    finally:
        environment.close()


def _failing(environment: BrowserEnvironment, name: str, seed: int, rng: random.Random) -> Task | None:
    """The task with its calls; None where the mistake did no harm, or none was made."""
    task = Task(f"{name}-{seed}-spoiled", "web", PROMPT, {"miniwob": name, "seed": seed})
    oracle, observation, done = SpoiledOracle(name, rng), environment.reset(task), False
    actions: list[list[dict[str, object]]] = []
    while not done and len(actions) < MOST_STEPS and (action := oracle.act(observation)) is not None:
        actions.append([{"name": call.name, "arguments": dict(call.arguments)} for call in action.calls])
        observation, done = environment.step(action)
    if not oracle.spoiled or environment.score().reward >= 1:
        return None
    return Task(task.id, task.environment, task.prompt, {**task.data, "oracle": actions})
