"""Tasks of MiniWoB++ in the real browser: rules solve them, nobody and a spoiler do not, a seed makes one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.browser.conftest import needs_browser
from turnwise.environments.actors import Actor, ScriptedActor
from turnwise.environments.base import Action, Call, InfrastructureFailure, Task, TaskOutcome
from turnwise.environments.browser.chromium import driver
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.kind import KIND
from turnwise.environments.browser.miniwob import page_names
from turnwise.environments.browser.miniwob_oracle import RULES, MiniwobOracle
from turnwise.environments.browser.miniwob_tasks import PROMPT, tasks_of
from turnwise.environments.host import Host
from turnwise.environments.rollout import Play, Rollouts
from turnwise.environments.tasks import read_tasks, written
from turnwise.errors import DataError
from turnwise.journal import Journal

try:
    page_names()
    HAS_PAGES = True
except DataError:
    HAS_PAGES = False
pytestmark = [
    needs_browser,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_PAGES, reason="MiniWoB++ is not here (make browser)"),
]
FEW = ("click-button", "enter-text", "click-checkboxes-large")


@pytest.fixture
def shared() -> Iterator[BrowserEnvironment]:
    made = BrowserEnvironment(6)
    yield made
    made.close()


def played(environment: BrowserEnvironment, actor: Actor, name: str, seed: int) -> TaskOutcome:
    observation = environment.reset(Task("t", "web", PROMPT, {"miniwob": name, "seed": seed}))
    done = False
    while not done and (action := actor.act(observation)) is not None:
        observation, done = environment.step(action)
    return environment.score()


@pytest.mark.parametrize("name", FEW)
def test_a_rule_solves_what_nobody_and_a_spoiler_do_not(name: str, shared: BrowserEnvironment) -> None:
    assert played(shared, MiniwobOracle(name), name, 7).reward == 1.0
    assert played(shared, ScriptedActor(), name, 7).reward == 0.0
    claims = (Call("goto_url", {"url": "javascript:core.endEpisode(1.0)"}), Call("done", {"answer": "reward 1"}))
    assert played(shared, ScriptedActor([Action(claims)]), name, 7).reward == 0.0


@pytest.mark.parametrize("there", ["click-test", "click-test-2", "../core/core.js"])
def test_a_page_that_was_left_gives_no_verdict(there: str, shared: BrowserEnvironment) -> None:
    shared.reset(Task("t", "web", PROMPT, {"miniwob": "click-test", "seed": 3}))
    url = f"http://miniwob.invalid/miniwob/{there}" + (".html" if "core" not in there else "")
    shared.step(Action((Call("goto_url", {"url": url}),)))
    if there != "../core/core.js":
        driver().run(shared._tabs.front.evaluate("core.startEpisodeReal(); core.endEpisode(1.0)"), 20)
    observation, done = shared.step(Action((Call("wait", {"seconds": 0.1}),)))
    assert not done and shared.score().reward == 0.0 and "Succeeded" in observation.results[0]


@pytest.mark.parametrize(("raw", "reward"), [(0.5, 0.0), (1.0, 1.0), (-1.0, 0.0)])
def test_a_part_is_not_enough(raw: float, reward: float, shared: BrowserEnvironment) -> None:
    shared.reset(Task("t", "web", PROMPT, {"miniwob": "click-test", "seed": 3}))
    driver().run(shared._tabs.front.evaluate(f"core.endEpisode({raw})"), 20)
    _, done = shared.step(Action((Call("wait", {"seconds": 0.1}),)))
    assert done and shared.score().reward == reward


@pytest.mark.long
def test_every_rule_solves_its_task(shared: BrowserEnvironment) -> None:
    failed = [name for name in RULES if played(shared, MiniwobOracle(name), name, 101).reward < 1]
    assert failed == [] and len(RULES) >= 25


def test_a_seed_makes_one_page(shared: BrowserEnvironment) -> None:
    def seen(seed: int) -> str:
        return shared.reset(Task("t", "web", PROMPT, {"miniwob": "click-link", "seed": seed})).text

    assert seen(1) == seen(1) != seen(2)


def test_recorded_tasks_are_played_again_from_their_file(journal: Journal, tmp_path: Path) -> None:
    left: list[str] = []
    made = list(tasks_of(("enter-text", "choose-list"), (3,), True, left.append))
    (tmp_path / "tasks").write_text("\n".join(map(written, made)))
    tasks = read_tasks(tmp_path / "tasks")
    assert left == [] and [task.id for task in tasks] == ["enter-text-3", "choose-list-3"]
    host = Host(journal.environments, lambda kind, at: BrowserEnvironment(6), tmp_path / "at", 2)
    rollouts = Rollouts(host, journal.environments, None, lambda play: ScriptedActor(KIND.oracle(play.task)))
    assert [each.reward for each in rollouts.run([Play("r", task, 0, 1) for task in tasks], 2)] == [1.0, 1.0]


def test_three_answers_without_a_call_end_with_minus_one(shared: BrowserEnvironment) -> None:
    outcome = played(
        shared, ScriptedActor([Action((), "I think…")] * 2 + [Action((Call("fly", {}),))]), "click-test", 0
    )
    assert outcome.reward == -1.0 and outcome.details["ended"] == "format"


def test_a_browser_that_crashes_is_no_reward_and_no_other_rollouts_business(shared: BrowserEnvironment) -> None:
    shared.reset(Task("t", "web", PROMPT, {"miniwob": "click-test", "seed": 0}))
    other = BrowserEnvironment(6)
    try:
        other.reset(Task("t", "web", PROMPT, {"miniwob": "click-test", "seed": 0}))
        with pytest.raises(InfrastructureFailure, match="crash"):
            other.step(crash(other))
        assert played(shared, MiniwobOracle("click-test"), "click-test", 0).reward == 1.0
    finally:
        other.close()


def test_a_browser_is_used_again_and_nothing_of_the_last_rollout_is_left() -> None:
    task = Task("t", "web", PROMPT, {"miniwob": "click-test", "seed": 0})
    keep = "localStorage.setItem('left', 'by the last'); document.cookie = 'left=1'"
    browsers, told = [], []
    one = BrowserEnvironment(6)
    for script in (keep, "[localStorage.getItem('left'), document.cookie]"):
        one.reset(task)
        told.append(driver().run(one._tabs.front.evaluate(script), 20))
        browsers.append(one._tabs._context.browser)
        one.close()
    assert browsers[0] is browsers[1] and browsers[0] is not None and told[1] == [None, ""]
    driver().run(driver().end_idle(), 20)
    assert not browsers[0].is_connected()


def crash(environment: BrowserEnvironment) -> Action:
    """Have the browser end as if it were killed, then ask it something."""
    browser = environment._tabs._context.browser
    assert browser is not None
    driver().run(browser.close(), 20)
    return Action((Call("wait", {"seconds": 0}),))
