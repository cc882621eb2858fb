"""Skills that a model writes: asked once more, left and said where nothing can be used, and never twice the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.evolving.endpoint import ScriptedEndpoint
from tests.evolving.hostile import BODY, FINE, body, reply
from tests.evolving.test_evolver import say
from tests.support.servers import running, wait_until
from turnwise.config import Config, load_config
from turnwise.evolving.endpoint import SkillWriter, WriterUnavailable
from turnwise.evolving.worker import Evolver
from turnwise.journal import Journal
from turnwise.skills.library import Library
from turnwise.skills.skill_file import write
from turnwise.types import SkillState

WRONG = "no, that is wrong"


@pytest.fixture
def endpoint() -> ScriptedEndpoint:
    return ScriptedEndpoint(lambda _: FINE)


@pytest.fixture
def told(tmp_path: Path, endpoint: ScriptedEndpoint) -> Iterator[Config]:
    with running(endpoint.app()) as url:
        yield load_config(overrides={"home": tmp_path / "home", "skills.evolver_url": f"{url}/v1"})


@pytest.fixture
def journal(told: Config) -> Iterator[Journal]:
    with closing(Journal.open(told)) as opened:
        yield opened


def evolve(config: Config, journal: Journal) -> Evolver:
    async def once() -> Evolver:
        writer = SkillWriter(config)
        try:
            evolver = Evolver(config, journal, writer=writer)
            await evolver.step()
            return evolver
        finally:
            await writer.close()

    return asyncio.run(once())


def fail(journal: Journal, times: int = 3) -> list[str]:
    return [say(journal, WRONG) for _ in range(times)]


def states(config: Config, journal: Journal) -> dict[str, SkillState]:
    return {name: known.state for name, known in Library(config, journal).sync().skills.items()}


def test_three_failures_of_a_kind_are_one_request(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    fail(journal, 2)
    say(journal, WRONG, "Which painter made this fresco in Florence?")
    evolve(told, journal)
    assert endpoint.asked == []
    last = fail(journal, 1)
    evolve(told, journal)
    assert states(told, journal) == {"boil-rice": SkillState.CANDIDATE}
    [asked] = endpoint.asked
    assert asked.count("How do I boil rice?") == 3 and "fresco" not in asked
    assert journal.failures.state(last[0]) == "used"
    evolve(told, journal)
    assert len(endpoint.asked) == 1, "each failure is used once"


def test_a_reply_that_cannot_be_used_is_asked_for_once_more(
    told: Config, journal: Journal, endpoint: ScriptedEndpoint
) -> None:
    fail(journal)
    endpoint.reply = lambda prompt: FINE if "That reply cannot be used" in prompt else f"```json\n{FINE}\n```"
    evolve(told, journal)
    assert states(told, journal) == {"boil-rice": SkillState.CANDIDATE} and len(endpoint.asked) == 2


def test_what_cannot_be_used_at_all_is_left_and_said(
    told: Config, journal: Journal, endpoint: ScriptedEndpoint
) -> None:
    turns = fail(journal)
    endpoint.reply = lambda _: "I cannot."
    evolver = evolve(told, journal)
    assert "was not taken" in (evolver._unusable or "")
    evolve(told, journal)
    assert {journal.failures.state(turn) for turn in turns} == {"left"} and len(endpoint.asked) == 4
    evolve(told, journal)
    assert len(endpoint.asked) == 4, "and nobody is asked again"


def test_an_endpoint_that_fails_costs_nothing(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    turns = fail(journal)
    endpoint.status = 503
    with pytest.raises(WriterUnavailable):
        evolve(told, journal)
    assert {journal.failures.state(turn) for turn in turns} == {"pending"}
    endpoint.status = 200
    evolve(told, journal)
    assert {journal.failures.state(turn) for turn in turns} == {"used"}


def test_a_near_duplicate_is_an_edit(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    for wait in ("Wait.", "Wait for twelve minutes."):
        fail(journal)
        endpoint.reply = lambda _, wait=wait: reply(name=f"rice-{len(wait)}", content=body(wait))
        evolve(told, journal)
    view = Library(told, journal).sync()
    assert list(view.skills) == ["rice-5"] and view.skills["rice-5"].version.number == 2
    assert "twelve" in view.skills["rice-5"].skill.body


def test_what_the_person_wrote_is_not_written_anew(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    mine = write("my-rice", "How to boil rice for two", BODY)
    Library(told, journal).add([mine], SkillState.ACTIVE, "person")
    turns = fail(journal)
    evolve(told, journal)
    assert states(told, journal) == {"my-rice": SkillState.ACTIVE}
    assert {journal.failures.state(turn) for turn in turns} == {"left"}


def test_what_was_given_up_does_not_come_back(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    fail(journal)
    evolve(told, journal)
    Library(told, journal).move("boil-rice", SkillState.RETIRED, "retire")
    endpoint.reply = lambda _: reply(name="rice-again")
    fail(journal)
    evolve(told, journal)
    assert states(told, journal) == {"boil-rice": SkillState.RETIRED}


def test_a_taken_name_gets_a_number(told: Config, journal: Journal, endpoint: ScriptedEndpoint) -> None:
    other = write("boil-rice", "What to do when a kettle leaks in winter", "# Kettles\n\n1. Call a plumber.")
    Library(told, journal).add([other], SkillState.ACTIVE, "person")
    fail(journal)
    evolve(told, journal)
    assert states(told, journal) == {"boil-rice": SkillState.ACTIVE, "boil-rice-2": SkillState.CANDIDATE}


def test_skills_that_exist_are_named_and_foreign_text_is_fenced(
    told: Config, journal: Journal, endpoint: ScriptedEndpoint
) -> None:
    mine = write("kettles", "What to do when a kettle leaks", "# Kettles\n\n1. Call a plumber.")
    Library(told, journal).add([mine], SkillState.ACTIVE, "person")
    fail(journal)
    evolve(told, journal)
    [asked] = endpoint.asked
    assert json.dumps("kettles: What to do when a kettle leaks") in asked
    mark = asked.split("<data ")[1].split(">")[0]
    assert asked.count(f"<data {mark}>\n") == asked.count(f"\n</data {mark}>")


def test_a_wish_does_not_wait_for_a_model_that_writes(
    told: Config, journal: Journal, endpoint: ScriptedEndpoint
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(_: str) -> str:
        asked.set()
        go_on.wait(60)
        return FINE

    endpoint.reply = slow
    fail(journal)

    async def beside() -> dict[str, SkillState]:
        stop, writer = asyncio.Event(), SkillWriter(told)
        loop = asyncio.create_task(Evolver(told, journal, writer=writer).run(stop))
        await asyncio.to_thread(asked.wait, 60)
        await asyncio.to_thread(say, journal, "From now on answer in German.")
        found = await asyncio.to_thread(wait_until, lambda: states(told, journal), 60)
        go_on.set()
        await asyncio.to_thread(wait_until, lambda: "boil-rice" in states(told, journal), 60)
        stop.set()
        await loop
        await writer.close()
        return found

    assert asyncio.run(beside()) == {"wish-answer-german": SkillState.ACTIVE}, "while the model still writes"
    assert states(told, journal)["boil-rice"] is SkillState.CANDIDATE, "and what it wrote is taken after it"
