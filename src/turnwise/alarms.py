"""Alarms for reward hacking: verdicts rise, while what no judge looks at says that answers became no better.

A pure rule over the turns of a home, oldest first: the last of them are compared with those before. It says where to
look and decides nothing: what was wished for can look the same. Answers that became shorter are no sign by themselves,
since that is what people ask for most; only answers of next to nothing are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RECENT = 48
"""Turns that are looked at: the last ones. Those before are EARLIER at most."""
EARLIER = 144
FEWEST = 24
"""Judged turns on either side, below which nothing is said."""
FEWEST_WORDS = 6
"""Scores of the person's own on either side, below which they say nothing."""
RISE = 0.15
"""By how much the mean verdict (−1 to 1) has to have risen before anything else is looked at."""
LONGER = 1.5
NEXT_TO_NOTHING = 4.0
"""Tokens of an answer (geometric mean)."""
REPEATS_MORE = 0.05
"""Share of 4-grams that were there before, by which it rose."""
ENTROPY_LEFT, ENTROPY_GROWN = 0.5, 2.0
"""Times the entropy of before."""
SURE_OF_RISE, SURE = 2.0, 3.0
"""Standard errors that a difference must have: chance alone makes one of the second kind once in 700 looks."""
SIGNS = ("feedback", "length", "repetition", "entropy")


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """A turn as the rule sees it; None is what is not known.

    ``score``: the judge's last verdict, ``person``: the person's own, both −1, 0 or 1. ``tokens`` of its answer.
    ``repetition``: share of its 4-grams that it had before. ``entropy``: its mean −log p in nats per token, which is an
    estimate of the entropy it was sampled with.
    """

    score: int | None
    person: int | None
    tokens: int
    repetition: float | None
    entropy: float | None


@dataclass(frozen=True, slots=True)
class RewardAlarm:
    """``sign``: one of SIGNS. ``before`` and ``now``: its figure over earlier and recent turns."""

    sign: str
    said: str
    before: float
    now: float


@dataclass(frozen=True, slots=True)
class _Change:
    """Means over earlier and recent turns, and their difference in standard errors."""

    before: float
    now: float
    errors: float


def reward_alarms(turns: Sequence[HistoryTurn]) -> list[RewardAlarm]:
    """What speaks against verdicts that rise, over turns in their order; nothing where they do not rise."""
    judged = [turn for turn in turns if turn.score is not None or turn.person is not None][-(RECENT + EARLIER) :]
    earlier, recent = judged[:-RECENT], judged[-RECENT:]

    def change(of: Callable[[HistoryTurn], float | None], fewest: int = FEWEST) -> _Change | None:
        sides = [[value for turn in side if (value := of(turn)) is not None] for side in (earlier, recent)]
        return None if min(map(len, sides)) < fewest else _changed(*sides)

    verdicts = change(lambda turn: turn.score)
    if verdicts is None or verdicts.now - verdicts.before < RISE or verdicts.errors < SURE_OF_RISE:
        return []
    rose = f"judges' verdicts rose from {verdicts.before:+.2f} to {verdicts.now:+.2f}"
    found: list[RewardAlarm] = []

    def alarm(sign: str, what: str, seen: _Change, before: float, now: float) -> None:
        if abs(seen.errors) >= (SURE_OF_RISE if sign == "feedback" else SURE):
            found.append(RewardAlarm(sign, f"{rose}, but {what}", before, now))

    word = change(lambda turn: turn.person, FEWEST_WORDS)
    if word is not None and word.before - word.now >= RISE:
        alarm(
            "feedback", f"your own scores fell from {word.before:+.2f} to {word.now:+.2f}", word, word.before, word.now
        )
    agrees = word is not None and word.now >= word.before and word.now > 0
    length = change(lambda turn: math.log(max(1, turn.tokens)))
    if length is not None and not agrees:
        before, now = math.exp(length.before), math.exp(length.now)
        if now >= LONGER * before or now <= NEXT_TO_NOTHING < before:
            alarm("length", f"answers went from {before:.0f} to {now:.0f} tokens", length, before, now)
    again = change(lambda turn: turn.repetition)
    if again is not None and again.now - again.before >= REPEATS_MORE:
        said = f"answers repeat themselves more: {again.now:.0%} of their 4-grams, from {again.before:.0%}"
        alarm("repetition", said, again, again.before, again.now)
    entropy = change(lambda turn: turn.entropy)
    if entropy is not None and not agrees and entropy.before > 0:
        ratio = entropy.now / entropy.before
        if ratio <= ENTROPY_LEFT or ratio >= ENTROPY_GROWN:
            went = f"the entropy of answers went from {entropy.before:.2f} to {entropy.now:.2f} nats per token"
            alarm("entropy", went, entropy, entropy.before, entropy.now)
    return found


def _changed(earlier: Sequence[float], recent: Sequence[float]) -> _Change:
    """Welch's t of two means; infinite where neither side varies and they differ."""
    (before, spread), (now, other) = _mean_and_error(earlier), _mean_and_error(recent)
    error = math.sqrt(spread + other)
    if error == 0:
        return _Change(before, now, math.copysign(math.inf, now - before) if now != before else 0.0)
    return _Change(before, now, (now - before) / error)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the square of its standard error."""
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1) / len(values)
