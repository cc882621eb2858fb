"""What makes a turn a sample, and what keeps it from being one: pure rules, which the journal asks.

Nothing here reads a record or imports torch. Which signals a turn needs is a matter of the algorithm that learns from
it: `methods.METHODS` is the one table of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from turnwise.methods import METHODS
from turnwise.types import Exclusion, FinishReason, TurnKind


@dataclass(frozen=True, slots=True)
class Signal:
    """What a sample is trained by: at least one of a reward that is not 0 and a hint, but for an only turn."""

    reward: float
    hint: str | None


def takes_hint(method: str, hint_at: int | None) -> bool:
    """Whether a hint teaches anything: the method learns from hints, and the prompt has a place (`hint_at`) for one."""
    return METHODS[method].hints and hint_at is not None


def signal_of_verdict(
    method: str, score: int, hint: str | None, hint_at: int | None, response_tokens: int, confidence: float = 1.0
) -> Signal | Exclusion:
    """What a turn with this verdict is trained by, or why it is not. Its reward is the score times the confidence."""
    signal = Signal(
        reward=score * confidence if METHODS[method].scores else 0.0,
        hint=hint if takes_hint(method, hint_at) else None,
    )
    if signal.reward == 0 and not signal.hint:
        return Exclusion.NO_SIGNAL
    return signal if response_tokens else Exclusion.NOT_TRAINABLE


def step_reward(method: str, outcome: float, votes: Sequence[float]) -> float:
    """What a step of a rollout with this outcome is worth: ``o``, and where the method learns from votes, their mean
    beside it (OpenClaw-RL §4.4.2). ``votes`` are the valid ones; a last step, to which nothing came back, has none."""
    voted = math.fsum(votes) / len(votes) if METHODS[method].scores and votes else 0.0
    return outcome + voted


def has_spread(outcomes: Sequence[float]) -> bool:
    """Whether a group of rollouts is worth training on (dynamic sampling, OpenWebRL §4.4): where all ended alike, none
    is better than another. A group of one is compared with none, and stays."""
    return len(outcomes) == 1 or (len(outcomes) > 1 and min(outcomes) < max(outcomes))


def may_keep_only_turn(waiting: Sequence[int]) -> bool:
    """Whether the turn that waits in vain in a closed session becomes a sample, if it is the session's only one.

    ``waiting``: the response tokens of each turn that does. With any method a session gives at least one sample
    (OpenClaw-RL); this one has no signal and carries the KL term alone.
    """
    return len(waiting) == 1 and waiting[0] > 0


def places_beside(teaching: int, max_batch: int) -> int:
    """How many turns that carry the KL term alone go with ``teaching`` ones: no more than these, and never before them.

    They hold the policy near the base model where people use it without a word; a batch of them would be a step back.
    """
    return min(teaching, max_batch - teaching)


def exclusion_of_answer(
    kind: str, finish: FinishReason, *, pinned: bool, closed: bool, too_long: bool, empty: bool
) -> Exclusion | None:
    """Why an answered turn can never be trained on, or None.

    ``too_long``: an upstream took its prompt for that. ``closed``: its session was closed while it was answered.
    ``empty``: nothing was said; an upstream's answer without ids is still judged.
    """
    if finish is FinishReason.ABORT:
        return Exclusion.ABORTED
    if finish is FinishReason.INTERRUPTED:
        return Exclusion.INTERRUPTED
    if finish is FinishReason.ERROR:
        return Exclusion.TOO_LONG if too_long else Exclusion.INFRASTRUCTURE
    if finish is FinishReason.CONTENT_FILTER:
        return Exclusion.CONTENT_FILTER  # what a filter says is not the model's doing, so there is nothing to judge
    if kind == TurnKind.SIDE:
        return Exclusion.SIDE_TURN
    if pinned:
        return Exclusion.PINNED_VERSION
    if empty:
        return Exclusion.NOT_TRAINABLE
    return Exclusion.NO_NEXT_STATE if closed else None


def is_set_aside(session_id: str, place: int, share: float, after: int) -> bool:
    """Whether a session is one of those that the gate looks at, and that nothing is learned from.

    The id alone says so, at every start and on each database. ``place``: the how many-th session of its home it is; the
    first ``after`` are all learned from, because who has had few conversations cannot spare one.
    """
    if place <= after:
        return False
    draw = int.from_bytes(hashlib.sha256(f"gate/{session_id}".encode()).digest()[:8])
    return draw < share * 2**64


def fresh_versions(parents: Mapping[int, int], serving: int, most: int) -> set[int]:
    """The versions whose samples are not stale: at most ``most`` updates lie between them and the serving one.

    ``parents``: the parent of each version, whose number is lower. Updates are counted along parents: up to the last
    version that both descend from, and down again. After a rollback, a sample of what was left is so as old as its
    version is far, and one of what serves again is new.
    """
    distance = {serving: 0}
    version = serving
    while version in parents and distance[version] < most:
        distance[parents[version]] = distance[version] + 1
        version = parents[version]
    for version in sorted(parents):
        above = distance.get(parents[version], most)
        if version not in distance and above < most:
            distance[version] = above + 1
    return set(distance)


def spans(versions: Sequence[int], chosen: Collection[int]) -> list[tuple[int, int]]:
    """The chosen ones of ``versions`` (ascending) as first and last of each stretch that has no other between them."""
    found: list[tuple[int, int]] = []
    before = None
    for version in versions:
        if version in chosen:
            going_on = bool(found) and found[-1][1] == before
            found[-1:] = [(found[-1][0], version)] if going_on else [*found[-1:], (version, version)]
        before = version
    return found
