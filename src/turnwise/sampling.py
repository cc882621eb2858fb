"""What makes a turn a sample, and what keeps it from being one: pure rules, which the journal asks.

Nothing here reads a record or imports torch. Which signals a turn needs is a matter of the algorithm that learns from
it: `methods.METHODS` is the one table of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.methods import METHODS
from turnwise.types import BASE_VERSION, Exclusion, FinishReason, TurnKind


@dataclass(frozen=True, slots=True)
class Signal:
    """What a sample is trained by: at least one of a reward that is not 0 and a hint, but for an only turn."""

    reward: float
    hint: str | None


def takes_hint(method: str, hint_at: int | None) -> bool:
    """Whether a hint teaches anything: the method learns from hints, and the prompt has a place (`hint_at`) for one."""
    return METHODS[method].hints and hint_at is not None


def signal_of_verdict(
    method: str, score: int, hint: str | None, hint_at: int | None, response_tokens: int
) -> Signal | Exclusion:
    """What a turn with this verdict is trained by, or why it is not."""
    signal = Signal(
        reward=float(score) if METHODS[method].scores else 0.0,
        hint=hint if takes_hint(method, hint_at) else None,
    )
    if signal.reward == 0 and not signal.hint:
        return Exclusion.NO_SIGNAL
    return signal if response_tokens else Exclusion.NOT_TRAINABLE


def may_keep_only_turn(method: str, waiting: Sequence[int]) -> bool:
    """Whether the turn that waits in vain in a closed session becomes a sample, if it is the session's only one.

    ``waiting``: the response tokens of each turn that does.
    """
    return METHODS[method].keeps_only_turn and len(waiting) == 1 and waiting[0] > 0


def exclusion_of_answer(
    kind: str, finish: FinishReason, *, pinned: bool, closed: bool, too_long: bool, empty: bool
) -> Exclusion | None:
    """Why an answered turn can never be trained on, or None.

    ``too_long``: an upstream took its prompt for that. ``closed``: its session was closed while it was answered.
    ``empty``: nothing was said; an upstream's answer without ids is still judged.
    """
    if finish is FinishReason.ABORT:
        return Exclusion.ABORTED
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


def oldest_fresh(published: Sequence[int], max_staleness: int) -> int:
    """The lowest version whose samples are not stale: at most `max_staleness` versions were published after it.

    ``published``: the numbers of the versions up to the serving one, the newest first; more than `max_staleness + 1`
    of them change nothing.
    """
    return published[max_staleness] if max_staleness < len(published) else BASE_VERSION
