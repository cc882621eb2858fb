"""Publishing a version without training one, for tests of what follows from it."""

from __future__ import annotations

import uuid

from turnwise.journal import Answer, Journal, NewTurn, schema
from turnwise.messages import saying
from turnwise.types import Exclusion, FinishReason, PolicyVersion, TurnKind, TurnState


def new_turn(turn_id: str | None = None, **changes: object) -> NewTurn:
    """A turn with unremarkable fields, to be changed where a test cares."""
    turn_id = turn_id or uuid.uuid4().hex
    fields: dict[str, object] = {
        "id": turn_id,
        "session_id": "session-1",
        "client": "client",
        "source": "header",
        "kind": TurnKind.MAIN,
        "parent_id": None,
        "branch_of": None,
        "extends_parent": False,
        "bridged": False,
        "version": 0,
        "pinned": False,
        "model": "turnwise",
        "request_hash": turn_id,
        "retry_key": None,
        "temperature": 1.0,
        "hint_at": 2,
        "messages": [saying("user", "hi")],
        "tools": None,
        "params": {},
        "prompt_ids": [1, 2, 3],
        "prompt_tokens": 3,
        "next_state": [],
        "answers": None,
    }
    return NewTurn(**(fields | changes))  # type: ignore[arg-type]


def answered(journal: Journal, turn_id: str | None = None, supersedes: str | None = None, **changes: object) -> str:
    """Record a turn and its answer; gives its id."""
    new = new_turn(turn_id, **changes)
    journal.turns.begin(new)
    message = saying("assistant", "yes")
    answer = Answer(message, f"context-{new.id}", FinishReason.STOP, [7, 8], [-0.5, -0.25], supersedes=supersedes)
    journal.turns.finish(new.id, answer)
    return new.id


def set_aside(journal: Journal, turn_id: str) -> None:
    """Let a turn be one of a session that is set aside for the gate."""
    with journal.store.transaction() as c:
        gone = {"state": TurnState.EXCLUDED, "exclusion": Exclusion.SET_ASIDE}
        c.execute(schema.turns.update().where(schema.turns.c.id == turn_id).values(gone))


def publish(journal: Journal, scored: str | None = None) -> int:
    """Train one scored turn "by hand", a new one unless one is named, and publish the version; gives its number."""
    session = f"publish-{uuid.uuid4().hex}"
    version = journal.versions.latest()
    turn_id = scored or answered(journal, session_id=session, client="publisher", version=version)
    before = journal.store.config
    one = before.train.model_copy(update={"min_batch": 1, "max_batch": 1})
    all_learned = before.gate.model_copy(update={"probe_share": 0.0})
    journal.store.config = before.model_copy(update={"train": one, "gate": all_learned})
    if scored is None:
        journal.verdicts.feedback(turn_id, 1, None)
    batch = journal.batches.claim("test", 60)
    journal.store.config = before
    assert batch is not None
    number = journal.batches.reserve_version(batch)
    journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", journal.store.clock()))
    return number
