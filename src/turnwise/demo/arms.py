"""Plays the arms of the demo against a server, and turns answers into measured arms and curves.

An arm talks (evaluation, waves of conversations) and waits; it knows nothing of how the server was started.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

from turnwise.demo import scorer, stats
from turnwise.demo.personas import Persona
from turnwise.demo.problems import Problem
from turnwise.demo.report import Change, Evaluation, Pair, Point
from turnwise.demo.talk import Conversation, DemoAnswer, Talk, at_once

AT_ONCE_ANSWERS = 10
"""Held-out questions asked together: the engine gives the most tokens per second at about this many."""

AT_ONCE_CONVERSATIONS = 6

SETTLE_LIMIT_S = 900.0
"""Longest wait after a wave for the judge and the trainer to finish with it."""

_POLL_S = 1.0
_QUIET_POLLS = 3

Settled = Literal["done", "enough", "late"]
Advance = Callable[[float | None], None]
"""Told after each answer, with the mean score so far."""


def score_of(persona: Persona, answer: DemoAnswer) -> float:
    """The scorer's verdict on ``answer``, given what the person had in hand: the right number, or the pupil's work."""
    problem = answer.problem
    solution = problem.pupil.solution if problem.pupil else problem.answer
    kind = "reader" if persona.everyday else "teacher" if problem.pupil else "student"
    return scorer.score(kind, answer.text, problem.question, solution)


async def evaluate(
    talk: Talk,
    problems: Sequence[Problem],
    advance: Advance,
    *,
    stage: str,
    seed: int,
    model: str = "turnwise",
    wish: str | None = None,
) -> list[DemoAnswer]:
    """The first answers to ``problems``, as side turns with fixed seeds; failed requests are left out and counted."""
    scores: list[float] = []

    def done(answer: DemoAnswer | None) -> None:
        if answer:
            scores.append(score_of(talk.persona, answer))
        advance(stats.mean(scores) if scores else None)

    jobs = [
        partial(talk.ask, problem, session=f"{stage}-{i}", seed=seed + i, model=model, wish=wish)
        for i, problem in enumerate(problems)
    ]
    return [answer for answer in await at_once(jobs, AT_ONCE_ANSWERS, done) if answer]


async def converse(
    talk: Talk,
    problems: Sequence[Problem],
    advance: Advance,
    *,
    arm: str,
    seed: int,
    wave: int,
    min_batch: int | None,
    budget_s: float = math.inf,
) -> tuple[list[Point], list[Conversation], list[str]]:
    """Conversations about ``problems`` in waves. After each wave the learning arm waits until no full batch is ready.

    ``min_batch``: the trainer's smallest batch, None when nothing trains. After ``budget_s`` no wave begins, and a wait
    ends with the next version that serves. Returns the curve, what was said, and where a wait was given up.
    """
    points: list[Point] = []
    played: list[Conversation] = []
    late: list[str] = []
    enough = time.monotonic() + budget_s
    for start in range(0, len(problems), wave):
        if start and time.monotonic() >= enough:
            late.append(f"{start} of {len(problems)} conversations were had in the time for them")
            break
        end = min(start + wave, len(problems))
        scores: list[float] = []

        def done(conversation: Conversation | None, scores: list[float] = scores) -> None:
            if conversation:
                scores.append(score_of(talk.persona, conversation.first))
            advance(stats.mean(scores) if scores else None)

        jobs = [
            partial(talk.converse, problem, session=f"{arm}-{start + i}", seed=seed + start + i)
            for i, problem in enumerate(problems[start:end])
        ]
        conversations = [c for c in await at_once(jobs, AT_ONCE_CONVERSATIONS, done) if c]
        played.extend(conversations)
        if scores:
            version = max((c.first.version for c in conversations), key=_version_order)
            low, high = stats.bootstrap_ci95(scores)
            points.append(Point(arm, end, stats.mean(scores), (low, high), len(scores), version))
        if min_batch is None:
            continue
        settled = await settle(talk.status, min_batch, SETTLE_LIMIT_S, enough)
        if settled == "late":
            late.append(f"judge and trainer were not done {SETTLE_LIMIT_S:.0f} s after conversation {end}")
        elif settled == "enough":
            late.append(f"the trainer was still at work when the time for conversations was over, after {end}")
    return points, played, late


async def settle(
    status: Callable[[], Awaitable[dict[str, Any]]], min_batch: int, limit_s: float, enough: float = math.inf
) -> Settled:
    """Wait until the judge is done, the trainer has taken every full batch, and what it published is what answers.

    "late" when ``limit_s`` passed first. From ``enough`` on, a time of the monotonic clock, one version that was
    published meanwhile and answers is "enough". ``status`` asks the server.
    """
    deadline = time.monotonic() + limit_s
    quiet, first = 0, None
    while time.monotonic() < deadline:
        told = await status()
        turns, version = told["turns"], told["version"]
        first = version["number"] if first is None else first
        busy = turns.get("judging", 0) + turns.get("leased", 0) > 0 or told["samples_ready"] >= min_batch
        # Between two states a turn can be in neither list for a moment; a few quiet looks in a row are the end.
        quiet = 0 if busy or version["number"] != version["wanted"] else quiet + 1
        if quiet == _QUIET_POLLS:
            return "done"
        if time.monotonic() >= enough and version["number"] == version["wanted"] != first:
            return "enough"
        await asyncio.sleep(_POLL_S)
    return "late"


def measured(persona: Persona, answers: Sequence[DemoAnswer], nll: dict[str, float], name: str) -> Evaluation:
    """The figures of one evaluation; ``nll`` has the likelihoods under ``name`` and ``name + "/wish"``."""
    scores = [score_of(persona, answer) for answer in answers]
    texts = [answer.text for answer in answers]
    topical = [
        scorer.is_on_topic(
            a.text, a.problem.question, a.problem.pupil.solution if a.problem.pupil else a.problem.answer
        )
        for a in answers
    ]
    # The last number of a grading comment is no answer to the problem.
    right = [is_right(a) for a in answers if a.problem.pupil is None]
    return Evaluation(
        mean=stats.mean(scores),
        ci95=stats.bootstrap_ci95(scores),
        n=len(scores),
        nll=nll[name],
        nll_with_wish=nll[f"{name}/wish"],
        repetition=stats.mean([repetition_of(answer) for answer in answers]),
        words=stats.mean([len(text.split()) for text in texts]),
        distinct=stats.distinct_share(texts),
        on_topic=stats.mean(topical),
        correct=stats.mean(right) if right else None,
    )


def paired_change(
    measure: Callable[[DemoAnswer], float], before: Sequence[DemoAnswer], after: Sequence[DemoAnswer]
) -> Change:
    """The mean change of ``measure`` over the problems of both; a problem answered several times before is averaged."""
    earlier: dict[str, list[float]] = {}
    for answer in before:
        earlier.setdefault(answer.problem.id, []).append(measure(answer))
    differences = [measure(a) - stats.mean(earlier[a.problem.id]) for a in after if a.problem.id in earlier]
    return Change(stats.mean(differences), stats.bootstrap_ci95(differences))


def is_right(answer: DemoAnswer) -> bool:
    """Whether the answer has the right number last, or one of the words that answer an everyday question."""
    problem = answer.problem
    return stats.has_one_of(answer.text, problem.accepted) or (
        bool(problem.answer) and stats.is_correct(answer.text, problem.answer)
    )


def repetition_of(answer: DemoAnswer) -> float:
    return stats.repetition(answer.text)


def side_by_side(
    persona: Persona, before: Sequence[DemoAnswer], after: Sequence[DemoAnswer], count: int = 12
) -> list[Pair]:
    """The first ``count`` held-out problems with both answers; the first, not the best."""
    later = {answer.problem.id: answer for answer in after}
    pairs = [(answer, later[answer.problem.id]) for answer in before if answer.problem.id in later]
    return [Pair(a.prompt, a.text, b.text, score_of(persona, a), score_of(persona, b)) for a, b in pairs[:count]]


def _version_order(version: str) -> int:
    return int(version) if version.isdigit() else -1
