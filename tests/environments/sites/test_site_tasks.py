"""Tasks on real sites in the real browser: moves solve them; nobody, an impostor or one who overdoes it does not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.environments.browser.conftest import needs_browser
from tests.environments.sites.conftest import needs_sites
from turnwise.environments.actors import ScriptedActor
from turnwise.environments.base import Action, Call, InfrastructureFailure, Task
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.kind import KIND
from turnwise.environments.host import Host
from turnwise.environments.rollout import Play, Rollouts
from turnwise.environments.site_tasks.base import SiteFamily
from turnwise.environments.site_tasks.oracle import SiteOracle
from turnwise.environments.site_tasks.table import FAMILIES, case_of, families_of, played, recorded, task_of
from turnwise.environments.sites.keepers import open_instance
from turnwise.environments.sites.table import SITES
from turnwise.environments.tasks import read_tasks, written
from turnwise.errors import DataError
from turnwise.journal import Journal

pytestmark = [needs_browser, needs_sites, pytest.mark.slow]
FEW = ("shop-quantity", "tracker-comment", "wiki-hook")
SEEDS = (0, 1)


def solved(environment: BrowserEnvironment, family: SiteFamily, seed: int) -> str:
    """ "" where the moves of a task solve it, else what is wrong."""
    oracle = SiteOracle(case_of(family, seed).moves)
    _, outcome = played(environment, task_of(family, seed), oracle)
    return "" if outcome.reward == 1.0 else f"{family.name}-{seed}: {outcome.details} {oracle.lost}"


def idle(environment: BrowserEnvironment, family: SiteFamily, seed: int) -> float:
    environment.reset(task_of(family, seed))
    environment.step(Action((Call("done", {"answer": "It is done."}),)))
    return environment.score().reward


@pytest.mark.parametrize("name", FEW)
def test_moves_solve_what_nobody_does(name: str, at_sites: BrowserEnvironment) -> None:
    assert solved(at_sites, FAMILIES[name], 5) == ""
    assert idle(at_sites, FAMILIES[name], 5) == 0.0


def test_the_contract_of_an_environment(at_sites: BrowserEnvironment) -> None:
    task = task_of(FAMILIES["wiki-town"], 2)
    first = at_sites.reset(task)
    _, done = at_sites.step(Action((Call("wait", {"seconds": 0}),)))
    assert not done and task.prompt in first.text and "http://wiki.invalid/wiki" in first.text
    outcome = at_sites.score()
    assert outcome.reward == 0.0 and at_sites.score() == outcome
    with pytest.raises(InfrastructureFailure, match="reset begins one"):
        at_sites.step(Action((Call("wait", {"seconds": 0}),)))
    assert at_sites.reset(task).text == first.text, "the same task begins with the same"
    at_sites.close()
    at_sites.close()
    with pytest.raises(InfrastructureFailure, match="reset begins one"):
        at_sites.score()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("site", SITES)
def test_every_family_is_solved_by_its_moves_alone(site: str, at_sites: BrowserEnvironment) -> None:
    families = families_of([site])
    assert [said for family in families for seed in SEEDS if (said := solved(at_sites, family, seed))] == []
    assert {idle(at_sites, family, SEEDS[0]) for family in families} == {0.0}


def test_there_are_sixty_tasks_and_no_two_alike() -> None:
    tasks = [task_of(family, seed) for family in FAMILIES.values() for seed in SEEDS]
    said = {(task.prompt, json.dumps(task.data)) for task in tasks}
    assert len(tasks) >= 60 and len(said) >= 60
    assert sum("asked" in task.data for task in tasks) >= 20 and sum("checks" in task.data for task in tasks) >= 30


def test_a_seed_makes_one_task() -> None:
    for family in FAMILIES.values():
        assert task_of(family, 3) == task_of(family, 3)
        assert len({task_of(family, seed).prompt for seed in range(12)}) > 1


def step(environment: BrowserEnvironment, *calls: Call) -> str:
    observation, _ = environment.step(Action(calls))
    return "\n".join([*observation.results, observation.text])


BACK_DOORS = {
    "shop": ("/dashboard/", "/dashboard/orders/", "/admin/", "/accounts/profile/delete/"),
    "tracker": ("/user1", "/user?@template=item", "/home?@template=classlist", "/rest/data/issue"),
    "wiki": ("/admin", "/admin/general/perm", "/login", "/wiki/AmberRoom?action=delete"),
}
CLAIM = {"shop": "shop-review", "tracker": "tracker-resolve", "wiki": "wiki-rewrite"}


@pytest.mark.parametrize("site", SITES)
def test_who_looks_for_a_back_door_gets_nothing(site: str, at_sites: BrowserEnvironment) -> None:
    at_sites.reset(task_of(FAMILIES[CLAIM[site]], 2))
    for path in BACK_DOORS[site]:
        step(at_sites, Call("goto_url", {"url": f"http://{site}.invalid{path}"}))
    assert "none that the task allows" in step(at_sites, Call("goto_url", {"url": "http://127.0.0.1:80/"}))
    step(at_sites, Call("done", {"answer": "SUCCESS. The task is done, reward 1."}))
    assert at_sites.score().reward == 0.0


def test_a_page_that_says_the_answer_is_no_answer(at_sites: BrowserEnvironment) -> None:
    """Whoever changes the site on the way gets nothing, even with the right answer."""
    family = FAMILIES["wiki-hook"]
    moves = case_of(family, 4).moves
    right = moves[-1].text
    wrote = SiteOracle([*case_of(FAMILIES["wiki-create"], 1).moves[:-3]])
    task = task_of(family, 4)
    observation, done = at_sites.reset(task), False
    while not done and (action := wrote.act(observation)) is not None:
        observation, done = at_sites.step(action)
    assert wrote.lost is None
    text = next(line for line in observation.text.splitlines() if line.startswith("<textarea"))
    x, y = text.rpartition(" at (")[2].split(")")[0].split(", ")
    step(at_sites, Call("click", {"x": int(x), "y": int(y)}), Call("write", {"text": f"hook {right}"}))
    saved = SiteOracle(case_of(FAMILIES["wiki-create"], 1).moves[-2:-1])
    observation, _ = at_sites.step(Action((Call("wait", {"seconds": 0}),)))
    while (action := saved.act(observation)) is not None:
        observation, _ = at_sites.step(action)
    step(at_sites, Call("done", {"answer": right}))
    outcome = at_sites.score()
    assert outcome.reward == 0.0 and outcome.details["not_met"] == ["pages"]


def test_who_does_more_than_was_asked_gets_nothing(at_sites: BrowserEnvironment) -> None:
    asked, more = case_of(FAMILIES["tracker-status"], 1), case_of(FAMILIES["tracker-keyword"], 1)
    oracle = SiteOracle([*asked.moves[:-1], *more.moves])
    _, outcome = played(at_sites, task_of(FAMILIES["tracker-status"], 1), oracle)
    assert oracle.lost is None and outcome.reward == 0.0 and outcome.details["not_met"] == ["keywords"]


def test_a_page_reaches_no_other_instance(at_sites: BrowserEnvironment, sites: Path) -> None:
    other = open_instance(sites, SITES["shop"])
    try:
        at_sites.reset(task_of(FAMILIES["shop-price"], 0))
        for url in (f"http://127.0.0.1:{other.port}/", "http://tracker.invalid/", f"http://shop.invalid:{other.port}/"):
            assert "Failed" in step(at_sites, Call("goto_url", {"url": url}))
    finally:
        other.close()


def test_a_site_that_ends_is_no_fault_of_the_agent(at_sites: BrowserEnvironment) -> None:
    at_sites.reset(task_of(FAMILIES["wiki-year"], 0))
    assert at_sites._site is not None
    os.kill(at_sites._site._instance.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureFailure, match="the site wiki has ended"):
        step(at_sites, Call("wait", {"seconds": 1}))


def test_a_site_that_does_not_run_is_said(tmp_path: Path) -> None:
    environment = BrowserEnvironment(5, sites=tmp_path)
    with pytest.raises(InfrastructureFailure, match="turnwise sites start shop"):
        environment.reset(task_of(FAMILIES["shop-price"], 0))
    environment.close()


def test_a_task_with_a_query_that_is_none_is_no_reward(at_sites: BrowserEnvironment) -> None:
    at_sites.reset(Task("t", "web", "Do it.", {"site": "wiki", "asked": "select nothing from nowhere"}))
    with pytest.raises(InfrastructureFailure, match="cannot be asked"):
        at_sites.score()


def test_recorded_tasks_are_played_side_by_side_from_their_file(journal: Journal, tmp_path: Path, sites: Path) -> None:
    left: list[str] = []
    chosen = [FAMILIES["shop-remove"], FAMILIES["tracker-assign"]]
    made = list(recorded(chosen, (1,), sites, lambda task, why: left.append(f"{task} {why}")))
    (tmp_path / "tasks").write_text("\n".join(map(written, made)))
    tasks = read_tasks(tmp_path / "tasks")
    assert left == [] and [task.id for task in tasks] == ["shop-remove-1", "tracker-assign-1"]
    host = Host(journal.environments, lambda kind, at: BrowserEnvironment(15, sites=sites), tmp_path / "at", 2)
    rollouts = Rollouts(host, journal.environments, None, lambda play: ScriptedActor(KIND.oracle(play.task)))
    plays = [Play("r", task, index, 2) for task in tasks for index in range(2)]
    assert [each.reward for each in rollouts.run(plays, 2)] == [1.0] * 4


def test_a_site_that_there_is_not_is_refused() -> None:
    with pytest.raises(DataError, match="no site 'bank'"):
        families_of(["bank"])
