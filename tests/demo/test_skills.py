"""The demo of a wish against the real gateway and journal. Only the engine is a stub, and nobody judges or trains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Running
from tests.support.versions import publish
from turnwise.demo.server import Server
from turnwise.demo.skills import ways
from turnwise.demo.skills.run import as_markdown, cells
from turnwise.demo.skills.ways import NO_SKILLS, WAYS, WISH, GivenForWish, WishFigures, WishLimits, WishTalk, keeps
from turnwise.evolving.wishes import PersonsWish
from turnwise.evolving.writing import skill_of_wish
from turnwise.journal.skills.records import SkillChange
from turnwise.skills.library import Library
from turnwise.skills.placing import EXTRACTIVE
from turnwise.types import SkillState

LIMITS = WishLimits(questions=2, skills_s=20.0, weights_s=3.0)


class Time:
    """A clock that goes on only while somebody waits."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, 0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now += max(seconds, 0.5)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def talk(gateway: Running, time: Time) -> Iterator[WishTalk]:
    def reply(prompt: str) -> str:
        last = prompt.rsplit("<|im_start|>user\n", 1)[-1].split("<|im_end|>")[0]
        return "It is Tokyo. Cheers!" if WISH in last else "It is Tokyo."

    gateway.stub.reply = reply
    person = gateway.person["Authorization"].removeprefix("Bearer ")
    with WishTalk(Server(gateway.url, gateway.token, person), time) as opened:
        yield opened


def test_without_skills_and_weights_no_answer_keeps_the_wish(gateway: Running, talk: WishTalk) -> None:
    [found] = ways.play_way(WAYS[0], talk, LIMITS)
    assert (found.way, found.first_s, found.version) == ("neither", None, "0")
    assert [(a.met, a.right) for a in found.answers] == [(False, True), (False, False)], "Tokyo, and 63"
    sessions = gateway.journal.status.figures()["sessions"]["total"]
    assert sessions == 1 + LIMITS.questions, "each question is asked in a conversation of its own"


def test_a_wish_that_becomes_a_skill_is_kept_by_the_next_answer(gateway: Running, talk: WishTalk, time: Time) -> None:
    talk.say_wish()
    library = Library(gateway.config, gateway.journal)
    skill = skill_of_wish(PersonsWish(WISH, general=True), "hi", ())
    change = SkillChange(skill.name, SkillState.ACTIVE, skill.content)
    library.take_wishes(library.sync(), "a wish", [change], EXTRACTIVE)

    def pause(seconds: float) -> None:  # the gateway looks once a second, whatever our clock says
        import time as real

        real.sleep(0.2)
        time.now += 0.2

    first = talk.first_kept(20.0, pause)
    assert first is not None and 0 < first < 20
    assert talk.ask("What is the capital of Japan?", ("tokyo",)).met


def test_the_wait_for_an_answer_has_an_end(talk: WishTalk, time: Time) -> None:
    talk.say_wish()
    assert talk.first_kept(60.0, time.pause) is None
    assert 60.0 <= talk.since() < 60.0 + ways.LONGEST_PAUSE_S and 5 < time.pauses < 120


def test_the_wait_for_a_version_has_an_end_and_sees_one(gateway: Running, talk: WishTalk, time: Time) -> None:
    talk.say_wish()
    assert not talk.until_version(3.0, time.pause)
    publish(gateway.journal)
    assert talk.until_version(talk.since() + 1.0, time.pause) or gateway.journal.versions.latest() == 1


@pytest.mark.parametrize(
    ("answer", "kept"),
    [("It is Tokyo. Cheers!", True), ("Tokyo\ncheers", True), ("Cheers! It is Tokyo.", False), ("", False)],
)
def test_what_keeps_the_wish(answer: str, kept: bool) -> None:
    assert keeps(answer) is kept


def test_each_way_switches_off_what_it_does_without() -> None:
    off = {way.name: (way.settings.get("train", {}).get("enabled"), way.settings.get("skills")) for way in WAYS}
    assert off == {
        "neither": (False, NO_SKILLS["skills"]),
        "skills alone": (False, None),
        "weights alone": (None, NO_SKILLS["skills"]),
        "both": (None, None),
    }


def test_the_table_says_when_and_how_many() -> None:
    answers = [GivenForWish("q", "a", "1", met, right) for met, right in ((True, True), (True, False), (False, True))]
    one = WishFigures("both", 4.25, "1", answers)
    assert cells(one) == ("both", "4.2 s", "v1", "2 of 3", "2 of 3", "1 of 3")
    assert cells(WishFigures("neither", None, "0", answers))[:3] == ("neither", "never", "base")
    assert cells(WishFigures("both", None, "0", answers, "no version in 9 s"))[1] == "no version in 9 s"
    assert "| both | 4.2 s | v1 | 2 of 3 | 2 of 3 | 1 of 3 |" in as_markdown([one], LIMITS)
