"""Changes between examinations, by value."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.demo import arms
from turnwise.demo.arms import paired_change, repetition_of
from turnwise.demo.personas import PERSONAS
from turnwise.demo.problems import Problem
from turnwise.demo.talk import DemoAnswer


def answer(problem: str, text: str) -> DemoAnswer:
    return DemoAnswer(Problem(problem, "family", "How many?", "3", "1 + 2 = 3"), "How many?", text, True, "1")


def words_of(answer: DemoAnswer) -> float:
    return len(answer.text.split())


def test_a_change_is_paired_by_problem_and_what_was_answered_twice_is_averaged() -> None:
    before = [answer("a", "one"), answer("b", "one two"), answer("a", "one two three"), answer("gone", "one")]
    after = [answer("b", "one"), answer("a", "one two three four"), answer("new", "one two")]
    change = paired_change(words_of, before, after)
    assert change.mean == pytest.approx(((1 - 2) + (4 - 2)) / 2)
    assert change.ci95[0] <= change.mean <= change.ci95[1]


def test_repetition_is_of_the_text() -> None:
    assert repetition_of(answer("a", "a b c d a b c d")) == pytest.approx(1 / 5)


async def test_a_wave_is_settled_when_what_was_published_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's words are scripted: on a busy machine an adapter is loaded for a minute after it was published."""
    monkeypatch.setattr(arms, "_POLL_S", 0.0)
    asked: list[tuple[int, int, int]] = []
    script = iter([(1, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 1), (0, 1, 1)])

    async def status() -> dict[str, Any]:
        asked.append(next(script))
        leased, number, wanted = asked[-1]
        return {"turns": {"leased": leased}, "samples_ready": 0, "version": {"number": number, "wanted": wanted}}

    assert await arms.settle(status, 8, 5.0) == "done"
    assert len(asked) == 9 and asked[-1] == (0, 1, 1)
    script = iter([(0, 0, 1)] * 10_000)
    monkeypatch.setattr(arms, "_POLL_S", 0.01)
    assert await arms.settle(status, 8, 0.1) == "late"


async def test_a_wait_ends_with_the_next_version_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "_POLL_S", 0.0)
    asked: list[tuple[int, int]] = []
    script = iter([(1, 1), (1, 1), (1, 2), (2, 2), (2, 2)])

    async def status() -> dict[str, Any]:
        asked.append(next(script))
        number, wanted = asked[-1]
        return {"turns": {"leased": 8}, "samples_ready": 0, "version": {"number": number, "wanted": wanted}}

    assert await arms.settle(status, 8, 5.0, enough=0.0) == "enough" and asked[-1] == (2, 2) and len(asked) == 4


class NoTalk:
    """A person who says nothing, and a trainer that is never done but publishes with each look."""

    persona = PERSONAS["student"]

    def __init__(self) -> None:
        self.version = 0

    async def converse(self, problem: Problem, *, session: str, seed: int) -> None:
        return None

    async def status(self) -> dict[str, Any]:
        self.version += 1
        version = {"number": self.version, "wanted": self.version}
        return {"turns": {"leased": 8}, "samples_ready": 0, "version": version}


@pytest.mark.parametrize(("budget", "waves"), [(0.0, 1), (1e9, 3)])
async def test_no_wave_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, budget: float, waves: int) -> None:
    monkeypatch.setattr(arms, "_POLL_S", 0.0)
    monkeypatch.setattr(arms, "SETTLE_LIMIT_S", 0.05)
    problems = [Problem(str(n), "family", "How many?", "3", "1 + 2 = 3") for n in range(6)]
    had: list[float | None] = []
    talk: Any = NoTalk()
    _, _, notes = await arms.converse(
        talk, problems, had.append, arm="learning", seed=0, wave=2, min_batch=8, budget_s=budget
    )
    assert len(had) == 2 * waves
    over = [note for note in notes if "2 of 6 conversations were had in the time for them" in note]
    assert len(over) == (waves < 3)
