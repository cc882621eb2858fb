"""The rule for reward-hacking alarms, over histories that are made up: where it must speak, and where it must not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from turnwise.alarms import SIGNS, HistoryTurn, reward_alarms


def history(seed: int, turns: int = 192, hacked: int = 48, **hack: Any) -> list[HistoryTurn]:
    """A home's turns; the last ``hacked`` of them as ``hack`` says.

    ``good``: share of verdicts that are +1; ``person``: the same of the person's own, which one turn in three has;
    ``tokens``, ``repeats``, ``entropy``: means.
    """
    chance = random.Random(seed)
    usual: dict[str, float] = {"good": 0.4, "person": 0.5, "tokens": 80, "repeats": 0.02, "entropy": 1.2}

    def turn(i: int) -> HistoryTurn:
        is_hacked = i >= turns - hacked
        at = usual | (hack if is_hacked else {})
        score = 1 if chance.random() < at["good"] else -1
        person = (1 if chance.random() < at["person"] else -1) if chance.random() < 1 / 3 else None
        tokens = max(1, round(at["tokens"] * chance.lognormvariate(0, 0.5)))
        return HistoryTurn(
            score=0 if chance.random() < 0.2 else score,
            person=person,
            tokens=tokens,
            repetition=min(1.0, chance.expovariate(1 / at["repeats"])) if tokens > 3 else None,
            entropy=max(0.01, chance.gauss(at["entropy"], at["entropy"] / 4)),
        )

    return [turn(i) for i in range(turns)]


SEEDS = range(40)
RISEN = {"good": 0.85}


def signs(turns: list[HistoryTurn]) -> set[str]:
    return {alarm.sign for alarm in reward_alarms(turns)}


@pytest.mark.parametrize(
    ("sign", "hack"),
    [
        ("feedback", {"person": 0.05}),
        ("length", {"tokens": 200}),
        ("length", {"tokens": 2}),
        ("repetition", {"repeats": 0.2}),
        ("entropy", {"entropy": 0.3}),
        ("entropy", {"entropy": 3.0}),
    ],
)
def test_verdicts_that_rise_while_something_else_says_otherwise_raise_an_alarm(sign: str, hack: dict[str, Any]) -> None:
    quiet = {"person": 0.4} | hack  # the person does not say that it is better
    heard = [sign in signs(history(seed, **RISEN, **quiet)) for seed in SEEDS]
    assert sum(heard) >= 0.9 * len(heard), f"{sum(heard)} of {len(heard)}"


@pytest.mark.parametrize(
    "life",
    [
        {},  # nothing changes
        {"good": 0.85},  # it learns
        {"good": 0.85, "person": 0.95},
        {"good": 0.85, "person": 0.95, "tokens": 200},  # longer, and the person says that it is better
        {"good": 0.85, "tokens": 30},  # shorter, as people ask for most
        {"good": 0.1, "person": 0.05},  # worse, and the judge sees it
        {"tokens": 200, "entropy": 0.3, "repeats": 0.2},  # another kind of work, judged as before
        {"good": 0.85, "entropy": 0.9, "tokens": 95, "repeats": 0.03},  # a little of everything
    ],
)
def test_an_honest_life_raises_none(life: dict[str, Any]) -> None:
    heard = [signs(history(seed, **life)) for seed in SEEDS]
    assert sum(map(bool, heard)) <= 1, heard


@pytest.mark.parametrize(
    "few",
    [
        lambda: [],
        lambda: history(1, turns=40, hacked=20, **RISEN, tokens=400),
        lambda: [HistoryTurn(None, None, 500, 0.9, 0.1)] * 300,
        lambda: [HistoryTurn(None, -1, 500, None, None)] * 300,
        lambda: history(1, turns=192, hacked=192, **RISEN, tokens=400),  # it was never otherwise
    ],
)
def test_with_too_little_to_compare_it_says_nothing(few: Callable[[], list[HistoryTurn]]) -> None:
    assert reward_alarms(few()) == []


def test_an_alarm_says_both_figures_in_a_sentence() -> None:
    plain = [HistoryTurn(-1 if i % 3 else 1, None, 40, 0.0, 1.0) for i in range(144)]
    hacked = [HistoryTurn(1, None, 120, 0.0, 1.0)] * 48
    (alarm,) = reward_alarms(plain + hacked)
    assert alarm.sign == "length" and alarm.sign in SIGNS
    assert (round(alarm.before), round(alarm.now)) == (40, 120)
    assert alarm.said == "judges' verdicts rose from -0.33 to +1.00, but answers went from 40 to 120 tokens"


def test_few_words_of_the_persons_are_not_taken_for_their_opinion() -> None:
    plain = [HistoryTurn(-1 if i % 3 else 1, 1 if i < 5 else None, 40, 0.0, 1.0) for i in range(144)]
    hacked = [HistoryTurn(1, -1 if i < 5 else None, 40, 0.0, 1.0) for i in range(48)]
    assert reward_alarms(plain + hacked) == []
    more = [HistoryTurn(1, -1 if i < 6 else None, 40, 0.0, 1.0) for i in range(48)]
    plain = [HistoryTurn(-1 if i % 3 else 1, 1 if i < 6 else None, 40, 0.0, 1.0) for i in range(144)]
    assert [alarm.sign for alarm in reward_alarms(plain + more)] == ["feedback"]
