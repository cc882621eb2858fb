"""The one place where turns move: legal moves pass, every other is refused, and the schema is what the code thinks."""

from __future__ import annotations

import itertools

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests.support.versions import answered, new_turn
from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal import Answer, Journal, schema
from turnwise.journal.packing import pack_ids, pack_json, pack_logprobs, unpack_ids, unpack_json, unpack_logprobs
from turnwise.journal.store import IllegalMove
from turnwise.messages import saying
from turnwise.types import REVIVABLE, TRANSITIONS, Exclusion, FinishReason, TurnState


def put(journal: Journal, turn_id: str, state: TurnState, exclusion: Exclusion | None) -> None:
    with journal.store.transaction() as c:
        c.execute(schema.turns.update().where(schema.turns.c.id == turn_id).values(state=state, exclusion=exclusion))


@pytest.mark.parametrize(("start", "to"), list(itertools.product(TurnState, TurnState)))
def test_every_move_is_legal_by_the_table_or_refused(journal: Journal, start: TurnState, to: TurnState) -> None:
    turn_id = answered(journal)
    put(journal, turn_id, start, Exclusion.NO_SIGNAL if start is TurnState.EXCLUDED else None)
    reason = Exclusion.STALE if to is TurnState.EXCLUDED else None
    with journal.store.transaction() as c:
        if to in TRANSITIONS[start]:
            assert journal.store.move(c, turn_id, to, exclusion=reason) is start
        else:
            with pytest.raises(IllegalMove):
                journal.store.move(c, turn_id, to, exclusion=reason)


@pytest.mark.parametrize("exclusion", list(Exclusion))
def test_only_a_want_of_signal_can_be_undone(journal: Journal, exclusion: Exclusion) -> None:
    turn_id = answered(journal)
    put(journal, turn_id, TurnState.EXCLUDED, exclusion)
    said = journal.verdicts.feedback(turn_id, 1, None)
    revived = journal.turns.get(turn_id).state is TurnState.READY
    assert revived == (exclusion in REVIVABLE)
    assert ("taken" in said) == revived


def test_an_exclusion_needs_a_reason(journal: Journal) -> None:
    turn_id = answered(journal)
    with journal.store.transaction() as c:
        with pytest.raises(IllegalMove):
            journal.store.move(c, turn_id, TurnState.EXCLUDED)
        with pytest.raises(IllegalMove):
            journal.store.move(c, turn_id, TurnState.JUDGING, exclusion=Exclusion.STALE)
        with pytest.raises(JournalError, match="no turn"):
            journal.store.move(c, "unknown", TurnState.JUDGING)


@pytest.mark.files
def test_the_migrations_make_the_schema_that_the_code_uses(journal: Journal) -> None:
    with journal.store.reading() as c:
        assert compare_metadata(MigrationContext.configure(c), schema.metadata) == []


def test_blobs_keep_every_value() -> None:
    ids = [0, 1, 49151, 2**31 - 1]
    assert unpack_ids(pack_ids(ids)) == ids
    assert unpack_ids(pack_ids([])) == []
    assert unpack_logprobs(pack_logprobs([-0.5, -1e-8])) == pytest.approx([-0.5, -1e-8])
    assert unpack_logprobs(pack_logprobs(None)) is None, "missing is missing, never a list of zeros"
    text = {"a": ["ü 🤖 \ud800", None, 1.5]}
    assert unpack_json(pack_json(text)) == text


def test_an_illegal_transaction_changes_nothing(journal: Journal) -> None:
    turn_id = answered(journal)
    before = journal.sessions.show("session-1")
    with pytest.raises(IllegalMove), journal.store.transaction() as c:
        journal.store.move(c, turn_id, TurnState.JUDGING)
        journal.store.move(c, turn_id, TurnState.TRAINED)
    assert journal.sessions.show("session-1") == before


def test_a_long_session_is_stored_once_not_n_times(journal: Journal) -> None:
    history = [saying("user", "start")]
    ids = list(range(100))
    parent = answered(journal, messages=history, prompt_ids=ids, prompt_tokens=100)
    for n in range(20):
        whole = journal.turns.get(parent)
        new = new_turn(
            parent_id=parent,
            extends_parent=True,
            bridged=True,
            messages=[saying("user", f"m{n}")],
            prompt_ids=[n],
            prompt_tokens=len(whole.prompt_ids) + 3,
        )
        journal.turns.begin(new)
        journal.turns.finish(new.id, Answer(saying("assistant", "yes"), "c", FinishReason.STOP, [7, 8], None))
        turn = journal.turns.get(new.id)
        assert turn.prompt_ids == [*whole.prompt_ids, 7, 8, n]
        assert turn.messages == [*whole.messages, whole.answer, saying("user", f"m{n}")]
        parent = new.id
    with journal.store.reading() as c:
        sizes = [len(unpack_ids(row.prompt_ids)) for row in c.execute(schema.turns.select())]
    assert sum(sizes) == 100 + 20


def test_a_second_opening_sees_what_the_first_wrote(config: Config, journal: Journal) -> None:
    turn_id = answered(journal)
    other = Journal.open(config)
    assert other.turns.get(turn_id) == journal.turns.get(turn_id)
    other.close()
