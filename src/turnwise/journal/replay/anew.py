"""Begins a copy of a journal anew: what was said stays, and what was made of it by judges and trainers goes.

A turn with a next state waits for a judge again, and then for a trainer. What a person said of a turn themselves stays,
and counts once more when judges have spoken. Why a turn was left out for good (a side turn, an answer that was cut
off, what skills were made of) stays as well. Only ever called on a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.journal import Journal
from turnwise.types import BASE_VERSION, Exclusion, TurnKind, TurnState, Verdict

T, D = schema.turns.c, schema.verdicts.c
MADE = (schema.samples, schema.provenance, schema.review, schema.promotions, schema.versions, schema.batches)
"""What came of learning, those that refer to others first."""
OPEN = (
    Exclusion.NO_VALID_VOTE,
    Exclusion.NO_SIGNAL,
    Exclusion.NO_NEXT_STATE,
    Exclusion.STALE,
    Exclusion.REFUSED_BY_GATE,
    Exclusion.SET_ASIDE,
    Exclusion.FAILED_IN_TRAINING,
)
"""Why a turn was left out that may not be this time."""
JUDGED_STATES = (TurnState.JUDGING, TurnState.JUDGED, TurnState.READY, TurnState.LEASED, TurnState.TRAINED)


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """What was said of a turn: the last verdict of a judge's, and the person's own; None for none."""

    judge: int | None
    person: int | None


def spoken(journal: Journal) -> dict[str, SpokenTurn]:
    """What was said of each turn that anything was said of."""
    found: dict[str, dict[bool, int]] = {}
    with journal.store.reading() as c:
        for row in c.execute(select(D.turn_id, D.judge, D.score).order_by(D.id)):
            found.setdefault(row.turn_id, {})[row.judge == "person"] = row.score
    return {turn: SpokenTurn(said.get(False), said.get(True)) for turn, said in found.items()}


def begin_anew(journal: Journal, original: Path) -> int:
    """Take back what was judged and learned, in one transaction; gives how many turns wait for a judge now.

    ``original``: the home that this is a copy of. Raises JournalError where it is that home's own journal.
    """
    if journal.store.config.journal.url or journal.store.config.home == original:
        raise JournalError("this is the journal itself, and no copy of it")
    with journal.store.transaction() as c:
        for table in MADE:
            c.execute(delete(table))
        c.execute(delete(schema.events))
        c.execute(delete(schema.loops))
        c.execute(delete(schema.verdicts).where(D.judge != "person"))
        free: dict[str, Any] = {
            "exclusion": None,
            "batch_id": None,
            "lease_owner": None,
            "lease_token": None,
            "lease_until": None,
            "attempts": 0,
            "retry_at": 0.0,
            "last_error": None,
            "version": BASE_VERSION,  # none of those that answered is here
        }
        main = (T.kind == TurnKind.MAIN, ~T.pinned, T.response_tokens > 0)
        begun = T.state.in_(JUDGED_STATES) | (T.state == TurnState.EXCLUDED) & T.exclusion.in_(OPEN)
        again = update(schema.turns).where(*main, begun)
        waits = c.execute(again.where(T.next_state.is_not(None)).values(free | {"state": TurnState.JUDGING})).rowcount
        unheard = free | {"state": TurnState.EXCLUDED, "exclusion": Exclusion.NO_NEXT_STATE}
        c.execute(again.where(T.next_state.is_(None)).values(unheard))
        return waits


def use_the_persons(journal: Journal) -> int:
    """Let what a person said of turns count before what judges made of them; gives of how many."""
    with journal.store.transaction() as c:
        said = select(D.id, D.turn_id, D.score, D.hint).where(D.judge == "person").order_by(D.id)
        newest = {row.turn_id: row for row in c.execute(said)}
        return sum(
            journal.verdicts.settle_again(
                c, row.turn_id, row.id, Verdict(row.score, row.hint, "person", "explicit feedback")
            )
            for row in newest.values()
        )
