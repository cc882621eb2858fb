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
from turnwise.evolving.writing import skill_of_wish
from turnwise.journal.skills.records import SkillChange
from turnwise.skills.library import Library
from turnwise.skills.placing import EXTRACTIVE
from turnwise.skills.wishes import PersonsWish
from turnwise.types import SkillState

LIMITS = WishLimits(questions=2, answer_s=20.0, silent_s=60.0)


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

    first = talk.first_kept(LIMITS, pause)
    assert first is not None and first > 0
    assert talk.ask("What is the capital of Japan?", ("tokyo",)).met


def test_the_wait_for_an_answer_ends_some_time_after_the_wish_was_judged(
    gateway: Running, talk: WishTalk, time: Time
) -> None:
    talk.say_wish()
    assert talk.first_kept(LIMITS, time.pause) is None
    assert LIMITS.silent_s <= talk.since() < LIMITS.silent_s + ways.LONGEST_PAUSE_S, "nobody judges"

    wish = gateway.journal.sessions.show("wish")
    assert wish is not None
    gateway.journal.verdicts.feedback(wish["turns"][0]["id"], 1, None)
    began = talk.since()
    assert talk.first_kept(LIMITS, time.pause) is None
    assert LIMITS.answer_s <= talk.since() - began < LIMITS.answer_s + 2 * ways.LONGEST_PAUSE_S


def test_the_wait_for_a_version_lasts_as_long_as_something_goes_on(
    gateway: Running, talk: WishTalk, time: Time
) -> None:
    talk.say_wish()
    assert "nothing went on for 60 s" in talk.until_version(LIMITS, time.pause)
    began, steps = talk.since(), 20

    def works(seconds: float) -> None:
        time.now += LIMITS.silent_s / 2  # a machine on which each step takes very long
        nonlocal steps
        steps -= 1
        gateway.journal.status.say("trainer", {"state": "lessons", "done": steps})
        if steps == 0:
            publish(gateway.journal)

    assert talk.until_version(LIMITS, works) == ""
    assert talk.since() - began >= 10 * LIMITS.silent_s


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
