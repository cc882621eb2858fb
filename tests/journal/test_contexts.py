"""The contexts of many turns are read together: each has its own, and few questions are asked for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import event

from tests.journal.test_queue import Clock, open_journal
from tests.support.versions import new_turn
from turnwise.journal import Answer, Journal
from turnwise.journal.turns.reading import AT_ONCE
from turnwise.messages import saying
from turnwise.types import FinishReason

SESSIONS, LENGTH = 3, 7


def converse(journal: Journal, session: int) -> list[str]:
    """Turns that are each stored as what they add to the one before; the last one is asked twice."""
    turns: list[str] = []
    whole = 0
    for n in range(LENGTH + 1):
        before = turns[min(n, LENGTH - 1) - 1] if n else None
        ids = [100 * session + n, n]
        whole = len(ids) if before is None else whole + 2 + len(ids)
        new = new_turn(
            session_id=f"s{session}",
            parent_id=before,
            extends_parent=before is not None,
            messages=[saying("user", f"question {session}/{n}")],
            prompt_ids=ids,
            prompt_tokens=whole,
        )
        journal.turns.begin(new)
        said = saying("assistant", f"answer {session}/{n}")
        journal.turns.finish(new.id, Answer(said, f"c{session}/{n}", FinishReason.STOP, [7, n], [-0.5, -0.5]))
        turns.append(new.id)
    return turns


def test_many_turns_are_read_with_their_own_contexts_and_few_questions(home: Path) -> None:
    journal = open_journal(home, Clock(), min_batch=1, max_batch=100)
    turns = [turn for n in range(SESSIONS) for turn in converse(journal, n)]
    asked: list[str] = []

    @event.listens_for(journal.store.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.extend(["ancestors"] * ("RECURSIVE chain" in statement))

    for turn in turns:
        journal.verdicts.feedback(turn, None, f"reply to {turn}")
    tasks = journal.judging.claim("judge", 100, 60)
    parents = SESSIONS * (LENGTH - 1)  # turns that others are stored on
    assert len(asked) == -(-parents // AT_ONCE)
    for task in tasks:
        alone = journal.turns.get(task.turn_id)
        assert alone is not None
        assert (task.messages, task.answer) == (alone.messages, alone.answer)
        assert task.next_state == [saying("user", f"reply to {task.turn_id}")]
    assert {task.turn_id for task in tasks} == set(turns)

    for turn in turns:
        journal.verdicts.feedback(turn, 1, None)
    asked.clear()
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None and len(asked) == -(-parents // AT_ONCE)
    assert [sample.turn_id for sample in batch.samples] == turns
    for sample in batch.samples:
        alone = journal.turns.get(sample.turn_id)
        assert alone is not None and sample.prompt_ids == alone.prompt_ids
    last = journal.turns.get(turns[LENGTH])
    assert last is not None and len(last.messages) == 2 * LENGTH - 1
    assert last.prompt_ids == [part for n in range(LENGTH - 1) for part in (n, n, 7, n)] + [LENGTH, LENGTH]
    journal.close()


def test_what_is_read_in_one_snapshot_is_of_one_moment_and_takes_one_connection(home: Path) -> None:
    journal = open_journal(home, Clock(), min_batch=1, max_batch=100)
    taken: list[object] = []
    event.listen(journal.store.engine, "checkout", lambda *given: taken.append(given))
    first, then = new_turn(), new_turn()
    journal.turns.begin(first)
    with journal.store.one_snapshot():
        taken.clear()
        assert journal.lookups.turn(first.id) is not None
        assert taken == []
        journal.turns.begin(then)
        assert journal.lookups.turn(then.id) is None
    assert journal.lookups.turn(then.id) is not None
    journal.close()
