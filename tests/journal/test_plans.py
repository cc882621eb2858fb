"""How SQLite looks turns up: by what tells most, and never by reading all that a client ever asked."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.dialects import sqlite

from tests.support.versions import answered, new_turn
from turnwise.config import load_config
from turnwise.journal import Answer, Journal
from turnwise.journal.deletion.retention import bound_outbox, prune, prune_versions
from turnwise.journal.records.export import RecordsExporter
from turnwise.journal.turns import lookups
from turnwise.messages import saying
from turnwise.types import Exclusion, FinishReason, PolicyVersion, Verdict

pytestmark = pytest.mark.files


@pytest.mark.parametrize("hashes", [["a"], ["a", "b"], [str(n) for n in range(lookups.MOST_HASHES)]], ids=len)
@pytest.mark.parametrize("scope", ["in_session", "of_client"])
@pytest.mark.parametrize("by", ["context", "thread", "answer", "context that waits"])
def test_a_turn_is_looked_up_by_its_hash(tmp_path: Path, by: str, scope: str, hashes: list[str]) -> None:
    by, _, waits = by.partition(" that ")
    places = getattr(lookups, f"{'_WAITING' if waits else ''}_BY_{by.upper()}")
    query = getattr(places, scope).params(hashes=hashes, scope="s")
    sql = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    journal = Journal.open(load_config(overrides={"home": tmp_path / "home"}))
    with journal.store.reading() as c:
        steps = [row[3] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
        search = next(step for step in steps if "turns" in step)
    journal.close()
    assert f"ix_turns_{by} ({by}_hash=?)" in search


YES = saying("assistant", "yes")
BIG = ("turns", "verdicts", "events", "sessions", "samples")
SMALL_INDEXES = {"served", "waiting", "judging", "ready", "good"}
"""Indexes that hold the few turns of one state: walking all of one is no walk over all turns."""


def asked(journal: Journal) -> dict[str, Callable[[], object]]:
    """Everything that is asked while turnwise runs, by name."""
    turn_id = answered(journal)
    reply = [saying("user", "no")]
    follow = answered(journal, answers=turn_id, next_state=reply, parent_id=turn_id, extends_parent=True)
    config = journal.store.config

    def with_a_task() -> None:
        for task in journal.judging.claim("judge", 4, 60):
            journal.judging.renew(task, 60)
            journal.judging.failed(task, "no answer", 0.0, 3)
        for task in journal.judging.claim("judge", 4, 60):
            journal.judging.record(task, Verdict(1, "Be brief.", "signals"))

    def with_a_batch() -> None:
        journal.store.config = config.model_copy(update={"train": config.train.model_copy(update={"min_batch": 1})})
        batch = journal.batches.claim("trainer", 60)
        assert batch is not None
        journal.batches.renew(batch, 60)
        journal.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", 0.0))
        journal.store.config = config

    row = journal.lookups.turn(follow)
    assert row is not None
    return {
        "status": journal.status.figures,
        "models": lambda: journal.versions.newest(100),
        "latest_version": journal.versions.latest,
        "judging": with_a_task,
        "claim_batch": with_a_batch,
        "gate_probes": lambda: journal.batches.gate_probes(8, exclude=[turn_id]),
        "refused_in_a_row": journal.batches.refused_in_a_row,
        "get_version": lambda: journal.versions.get(1),
        "same_request": lambda: journal.lookups.same_request("client", "hash"),
        "turns_by_context": lambda: journal.lookups.by_context("client", ["a", "b"], "s"),
        "turns_by_thread": lambda: journal.lookups.by_thread("client", "a", None),
        "turns_by_answer": lambda: journal.lookups.by_answer("client", "a", "s"),
        "turns_beginning": lambda: journal.lookups.by_beginning("client", [turn_id]),
        "was_answered_by": lambda: journal.lookups.was_answered_by(turn_id),
        "has_answers": lambda: journal.lookups.has_answers("session-1"),
        "context_ids": lambda: journal.lookups.ids(row),
        "context_messages": lambda: journal.lookups.messages(follow),
        "same_tools": lambda: journal.lookups.same_tools(row, None),
        "begin and finish": lambda: answered(journal, session_id="other", tools=[{"type": "function"}]),
        "feedback": lambda: journal.verdicts.feedback(follow, 1, None),
        "idle_sessions": lambda: journal.sessions.idle(journal.store.monotonic() + 1),
        "recover_interrupted": lambda: journal.turns.recover_interrupted(lambda _: True),
        "close_session": lambda: journal.sessions.close("session-1", "idle"),
        "export": RecordsExporter(journal).export_some,
        "forget_contexts": journal.lookups.drop_forgotten,
        "set_status": lambda: journal.status.say("gateway", {}),
        "bound_outbox": lambda: bound_outbox(journal, 5),
        "prune_versions": lambda: prune_versions(journal, 1),
        "list_sessions": journal.sessions.last_seen,
        "list_sessions with what they are about": lambda: journal.sessions.last_seen(summary=str),
        "find_session": lambda: journal.sessions.find("session"),
        "find_turn": lambda: journal.turns.find(turn_id[:20]),
        "short ids": lambda: (journal.sessions.short_ids(["session-1"]), journal.turns.short_ids([turn_id])),
        "show_session": lambda: journal.sessions.show("session-1"),
        "retention": lambda: prune(journal, journal.store.clock() + 1, None),
    }


def test_turns_with_one_request_are_told_apart_without_their_texts_and_ids(journal: Journal) -> None:
    turn_id = answered(journal)
    ran: list[str] = []

    @event.listens_for(journal.store.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        ran.append(statement)

    assert journal.lookups.same_request("client", turn_id) != []
    (statement,) = (statement for statement in ran if "request_hash" in statement)
    bulky = ("prompt_ids", "response_ids", "params", "answer", "tools")
    assert [name for name in bulky if f"turns.{name}" in statement.partition(" FROM ")[0]] == []


def test_nothing_that_is_asked_often_reads_a_whole_table(journal: Journal) -> None:
    """The statements are those that really run, taken from the connection, with their own values."""
    operations = asked(journal)
    ran: list[tuple[str, Any]] = []

    @event.listens_for(journal.store.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        ran.append((statement, parameters[0] if many else parameters))

    scans = []
    for name, operation in operations.items():
        ran.clear()
        operation()
        seen = [one for one in ran if one[0].split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")]
        with sqlite3.connect(journal.store.config.journal_path) as db:
            for statement, parameters in seen:
                plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                scans += [f"{name}: {step}: {statement}" for step in plan if reads_all(step)]
        db.close()
    assert scans == []


def reads_all(step: str) -> bool:
    found = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX ix_turns_(\w+))?", step)
    if found is None or found[1] not in BIG:
        return False
    # In order of an index, and only as far as a LIMIT goes.
    ordered = step in ("SCAN sessions USING INDEX ix_sessions_seen", "SCAN verdicts USING INDEX ix_verdicts_hints")
    return found[2] not in SMALL_INDEXES and not ordered


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("SCAN turns", True),
        ("SCAN verdicts USING INDEX ix_verdicts_turn", True),
        ("SCAN turns USING COVERING INDEX ix_turns_session", True),
        ("SCAN turns USING COVERING INDEX ix_turns_judging", False),
        ("SEARCH turns USING INDEX ix_turns_session (session_id=?)", False),
    ],
)
def test_a_walk_over_a_table_is_told_from_a_search(step: str, found: bool) -> None:
    assert reads_all(step) == found


def test_an_answer_that_was_often_given_is_found_in_the_order_of_turns(journal: Journal) -> None:
    ids: dict[str, list[str]] = {"one": [], "two": []}
    for n in range(60):
        client = "one" if n % 3 else "two"
        new = new_turn(session_id=f"{client}-{n % 2}", client=client)
        journal.turns.begin(new)
        journal.turns.finish(new.id, Answer(YES, f"c{n}", FinishReason.STOP, [7], [-0.5], "thread", "answer"))
        ids[client].append(new.id)
    for client, turns in ids.items():
        assert [row.id for row in journal.lookups.by_answer(client, "answer", None)] == turns[:-21:-1]
    in_session = journal.lookups.by_answer("one", "answer", "one-0")
    assert len(in_session) == 20 and {row.session_id for row in in_session} == {"one-0"}
    places = [ids["one"].index(row.id) for row in in_session]
    assert places == sorted(places, reverse=True) and places[0] >= 38


def test_stale_samples_go_in_steps_and_keep_no_fresh_one_waiting(journal: Journal) -> None:
    serving = 9
    gate = journal.store.config.gate.model_copy(update={"probe_share": 0.0})
    journal.store.config = journal.store.config.model_copy(update={"gate": gate})
    for n in range(200):
        journal.verdicts.feedback(answered(journal, session_id=f"old-{n}", version=0), 1, None)
    fresh = [answered(journal, session_id=f"new-{n}", version=serving) for n in range(3)]
    for turn_id in fresh:
        journal.verdicts.feedback(turn_id, 1, None)
    train = journal.store.config.train.model_copy(update={"min_batch": 1, "max_staleness": 2})
    journal.store.config = journal.store.config.model_copy(update={"train": train})
    with journal.store.transaction() as c:
        for number in range(1, serving + 1):
            c.exec_driver_sql(
                "INSERT INTO versions (number, parent, path, metrics, gate, created_at, published_at, serve_seq)"
                f" VALUES ({number}, {number - 1}, 'x', x'007b7d', x'007b7d', 1, 1, {number})"
            )
    gone = []
    for _ in range(4):
        batch = journal.batches.claim("trainer", 60)
        assert batch is not None and [sample.turn_id for sample in batch.samples] == fresh
        gone.append(journal.status.figures()["excluded"][Exclusion.STALE])
        journal.batches.release(batch)
    assert gone == [64, 128, 192, 200]
