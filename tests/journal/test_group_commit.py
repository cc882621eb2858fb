"""Group commit: writes share transactions, but neither each other's faults nor each other's fate."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from sqlalchemy import event, insert

from tests.support.versions import answered, new_turn
from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal import Answer, Journal, schema
from turnwise.journal.packing import COMPRESS_FROM, id_array, pack_ids, pack_json, unpack_ids, unpack_json
from turnwise.journal.store import IllegalMove
from turnwise.journal.turns.recent_ids import RecentIds
from turnwise.messages import saying, text_of
from turnwise.types import FinishReason, TurnState


class Held:
    """Keeps the journal's writer busy until it is let go, so that what is submitted meanwhile becomes one group."""

    def __init__(self, journal: Journal) -> None:
        self._go = threading.Event()
        started = threading.Event()

        def hold(_c: object) -> None:
            started.set()
            assert self._go.wait(20)

        self._future = journal.store.writes.submit(hold)
        assert started.wait(20)

    def release(self) -> None:
        self._go.set()
        self._future.result(20)


def commits(journal: Journal) -> list[object]:
    seen: list[object] = []
    event.listen(journal.store.engine, "commit", seen.append)
    return seen


def test_writes_that_wait_together_share_one_transaction(journal: Journal) -> None:
    held, seen = Held(journal), commits(journal)
    futures = [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(40)]
    assert not any(future.done() for future in futures)
    held.release()
    for future in futures:
        future.result(20)
    assert len(seen) == 2, "one for the write that was held, one for the forty"


def test_a_future_is_done_only_when_another_connection_sees_the_write(config: Config, journal: Journal) -> None:
    other = Journal.open(config)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda i: answered(journal, session_id=f"s{i % 5}"), range(80)))
        assert all(pool.map(lambda turn: other.turns.get(turn).state is TurnState.WAITING, ids))
    other.close()


def test_turns_of_one_session_in_one_group_are_numbered_in_order(journal: Journal) -> None:
    held = Held(journal)
    turns = [new_turn() for _ in range(10)]
    futures = [journal.turns.begin_soon(turn) for turn in turns]
    held.release()
    wait(futures, 20)
    assert [journal.turns.get(turn.id).index for turn in turns] == list(range(10))


def test_a_write_that_fails_is_told_so_and_takes_nothing_with_it(journal: Journal) -> None:
    done = answered(journal, session_id="s0")
    held = Held(journal)
    good = [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(5)]
    answer = Answer(saying("assistant", "again"), "c", FinishReason.STOP, [1], None)
    bad = journal.turns.finish_soon(done, answer)  # it is answered already
    good += [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(5)]
    held.release()
    with pytest.raises(IllegalMove):
        bad.result(20)
    for future in good:
        future.result(20)
    assert len(journal.sessions.show("s0")["turns"]) == 3
    assert text_of(journal.turns.get(done).answer) == "yes"


def test_half_of_a_failed_write_is_undone(journal: Journal) -> None:
    def half(c) -> None:
        c.execute(insert(schema.events).values(at=0.0, kind="half", data=b""))
        raise JournalError("no")

    with pytest.raises(JournalError, match="no"):
        journal.store.writes.submit(half).result(20)
    with journal.store.reading() as c:
        assert c.execute(schema.events.select().where(schema.events.c.kind == "half")).all() == []


def test_what_was_submitted_is_written_before_the_journal_closes(config: Config) -> None:
    journal = Journal.open(config)
    held = Held(journal)
    turn = new_turn()
    future = journal.turns.begin_soon(turn)
    assert not future.cancel(), "a write that was submitted is not lost with the task that waited for it"
    closing = threading.Thread(target=journal.close)
    closing.start()
    held.release()
    closing.join(20)
    future.result(0)
    with pytest.raises(JournalError, match="closed"):
        journal.turns.begin(new_turn())
    again = Journal.open(config)
    assert again.turns.get(turn.id).state is TurnState.SERVED
    again.close()


def test_a_context_is_the_same_from_memory_and_from_the_file(config: Config, journal: Journal) -> None:
    parent = answered(journal, prompt_ids=[1, 2, 3], prompt_tokens=3)
    for n in range(5):
        parent = answered(journal, parent_id=parent, extends_parent=True, prompt_ids=[100 + n], prompt_tokens=6 + 3 * n)
        row = journal.lookups.turn(parent)
        warm = journal.lookups.ids(row)
        other = Journal.open(config)
        assert other.lookups.ids(row) == warm
        other.close()
        assert warm == (journal.turns.get(parent).prompt_ids, [7, 8])
    assert warm[0] == [1, 2, 3, 7, 8, 100, 7, 8, 101, 7, 8, 102, 7, 8, 103, 7, 8, 104]


def test_the_oldest_contexts_go_first_and_the_limit_holds() -> None:
    recent = RecentIds(max_ids=100)
    for n in range(4):
        recent.put(f"t{n}", id_array(pack_ids(range(25))), id_array(pack_ids(range(5))))
        assert recent.get("t0") is not None, "what is used stays"
    assert recent.get("t1") is None
    assert recent.get("t3") is not None
    recent.put("huge", id_array(pack_ids(range(101))), id_array(pack_ids([])))
    assert recent.get("huge") is None


@pytest.mark.parametrize("size", [0, 1, COMPRESS_FROM // 4 - 1, COMPRESS_FROM // 4, 5000])
def test_blobs_of_any_size_come_back(size: int) -> None:
    ids = [i * 7 for i in range(size)]
    assert unpack_ids(pack_ids(ids)) == ids
    assert unpack_json(pack_json(["x" * size, ids])) == ["x" * size, ids]


def test_blobs_written_before_small_ones_were_left_plain_are_still_read() -> None:
    import struct
    import zlib

    assert unpack_ids(zlib.compress(struct.pack("<3i", 1, 2, 49151), 1)) == [1, 2, 49151]
    assert unpack_json(zlib.compress(b'{"a":"\xc3\xbc"}', 1)) == {"a": "ü"}


def test_the_longest_known_history_is_found_first(journal: Journal) -> None:
    early = answered(journal, session_id="s", client="c")
    late = answered(journal, session_id="s", client="c")
    hashes = [f"context-{early}", *(f"unknown-{i}" for i in range(1200)), f"context-{late}"]
    assert [row.id for row in journal.lookups.by_context("c", hashes, None)] == [late]
    assert [row.id for row in journal.lookups.by_context("c", hashes[:-1], None)] == [early]
    assert journal.lookups.by_context("c", hashes[1:-1], None) == []
    assert journal.lookups.by_context("c", [], "s") == []
