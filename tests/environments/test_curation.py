"""Which recorded episodes are kept for a fine-tuning, by value."""

from __future__ import annotations

import pytest

from turnwise.environments.base import Instructions, Observation, Task
from turnwise.environments.curation import (
    Curation,
    RecordedEpisode,
    curated,
    family_of,
    levels_of,
    read_curation,
)
from turnwise.environments.transcript import RolloutTranscript
from turnwise.errors import ConfigError


def episode(
    task: str, answers: tuple[str, ...] = ("a",), reward: float | None = 1.0, unreadable: int = 0
) -> RecordedEpisode:
    transcript = RolloutTranscript(Instructions("s", ()))
    for answer in answers:
        transcript.hear(Observation("seen"))
        transcript.say(answer)
    return RecordedEpisode(transcript, reward, task, task[0], unreadable)


def test_what_failed_said_nothing_or_could_not_be_read_is_never_kept() -> None:
    good = episode("a1")
    odd = [episode("a2", reward=0.0), episode("a3", reward=None), episode("a4", ()), episode("a5", unreadable=1)]
    assert curated([*odd, good], Curation()) == [good]


def test_the_shortest_of_a_task_is_kept_by_answers_and_then_by_their_length() -> None:
    two, long, short = episode("a", ("x", "y")), episode("a", ("a long one",)), episode("a", ("s",))
    assert curated([two, long, short], Curation(per_task=1)) == [short]
    assert curated([two, long, short], Curation(per_task=2)) == [long, short]
    assert curated([two, long], Curation(most_answers=1)) == [long]


def test_a_family_is_filled_with_different_tasks_first() -> None:
    first = [episode("a1", ("x",)), episode("a1", ("xy",)), episode("a2", ("a much longer answer",))]
    assert curated(first, Curation(per_family=2)) == [first[0], first[2]]
    both = [*first, episode("b1")]
    assert curated(both, Curation(per_family=1)) == [first[0], both[3]]


def test_no_level_of_difficulty_has_more_than_its_share() -> None:
    easy = [episode(f"e{i}") for i in range(4)]
    hard = [episode("h1"), *(episode("h1", reward=0.0) for _ in range(3))]
    middle = [episode("m1"), episode("m1", reward=0.0)]
    everything = [*easy, *hard, *middle]
    assert levels_of(everything) == {f"e{i}": "always" for i in range(4)} | {"h1": "seldom", "m1": "mostly"}
    assert curated(everything, Curation(per_level=1)) == [easy[0], hard[0], middle[0]]


def test_the_family_of_a_task() -> None:
    assert family_of(Task("click-test-2-7", "web", "p", {"miniwob": "click-test-2", "seed": 7})) == "click-test-2"
    assert family_of(Task("t1", "web", "p", {"url": "http://shop.example:81/a"})) == "shop.example:81"
    assert family_of(Task("sort-lines-1-900", "terminal", "p")) == "sort-lines"
    assert family_of(Task("7", "terminal", "p")) == "7"


def test_limits_are_read() -> None:
    assert read_curation("task=1, family=20") == Curation(per_task=1, per_family=20)
    assert read_curation(None) == Curation()
    for odd in ("task", "task=0", "colour=1", "task=1,,"):
        with pytest.raises(ConfigError, match="--keep"):
            read_curation(odd)
