"""The figures of `status` are kept, not counted: they equal a recount whatever was done, and whatever failed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.versions import answered, new_turn, publish
from turnwise.config import load_config
from turnwise.doctor.journal import examine_journal
from turnwise.journal import Journal, schema
from turnwise.journal.counts import differences, mend_counts, read_counts, recount
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.deletion.retention import prune
from turnwise.journal.store import IllegalMove
from turnwise.messages import saying
from turnwise.types import TurnKind, TurnState, Verdict, Vote


def wrong_counts(journal: Journal) -> dict[str, tuple[int, int]]:
    with journal.store.reading() as c:
        return differences(read_counts(c), recount(c))


def good_by_hand(journal: Journal) -> dict[str, int]:
    """Turns whose counting verdict is +1, found as the gate's own query found them before there was a column."""
    with journal.store.reading() as c:
        rows = c.exec_driver_sql(
            "SELECT turn_id, id FROM (SELECT id, turn_id, score, row_number() OVER (PARTITION BY turn_id"
            " ORDER BY judge = 'person' DESC, id DESC) AS rank FROM verdicts) AS ranked WHERE rank = 1 AND score = 1"
        )
        return {row[0]: row[1] for row in rows}


def good_as_kept(journal: Journal) -> dict[str, int]:
    with journal.store.reading() as c:
        rows = c.exec_driver_sql("SELECT id, good_verdict FROM turns WHERE good_verdict IS NOT NULL")
        return {row[0]: row[1] for row in rows}


ACTIONS = ["turn", "side", "reply", "judge", "fail", "feedback", "close", "publish", "refuse", "rollback", "undone",
           "forget", "prune", "lost"]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(-1, 1)), max_size=30))
def test_kept_figures_equal_a_recount_after_anything(story: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(overrides={"home": Path(folder) / "home", "train.min_batch": 1, "judge.retry_s": 0.001})
        now = [1000.0]
        journal = Journal.open(config, clock=lambda: now[0])
        last: dict[int, str] = {}
        for action, n, score in story:
            now[0] += 1
            session = f"session-{n}"
            if action == "turn":
                last[n] = answered(journal, session_id=session)
            elif action == "side":
                answered(journal, session_id=session, kind=TurnKind.SIDE)
            elif action == "reply" and n in last:
                reply = [saying("user", "no")]
                last[n] = answered(journal, session_id=session, answers=last[n], next_state=reply, parent_id=last[n])
            elif action in ("judge", "fail"):
                for task in journal.judging.claim("judge", 1 + n, 60):
                    if action == "judge":
                        hint = "Be brief." if n else None
                        journal.judging.record(task, Verdict(score, hint, "signals", "", [Vote(score)]))
                    else:
                        journal.judging.failed(task, "no answer", 0.0, max_attempts=2)
            elif action == "feedback" and n in last:
                if journal.turns.get(last[n]) is not None:
                    journal.verdicts.feedback(last[n], score, None)
            elif action == "close":
                journal.sessions.close(session, "done")
            elif action == "publish":
                if journal.status.figures()["samples_ready"] == 0:
                    publish(journal)
            elif action == "refuse":
                batch = journal.batches.claim("trainer", 60)
                if batch is not None:
                    journal.batches.refuse(batch, {"accepted": False, "reasons": ["worse"]}, {})
            elif action == "rollback":
                journal.versions.serve(0)
            elif (
                action == "undone" and journal.sessions.last_seen() and sum(journal.status.figures()["turns"].values())
            ):
                with (
                    pytest.raises(IllegalMove),
                    journal.store.transaction() as c,
                ):  # moves, then fails: all is rolled back
                    c.execute(schema.turns.update().values(state=TurnState.WAITING, exclusion=None))
                    c.execute(schema.verdicts.delete())
                    journal.store.move(c, answered_id(c), TurnState.TRAINED)
            elif action == "lost":
                journal.turns.begin(new_turn(session_id=session))
                journal.turns.recover_interrupted()
            elif action == "forget":
                forget(journal, session)
                last.pop(n, None)
            elif action == "prune":
                prune(journal, now[0] - 5, None)
        assert wrong_counts(journal) == {}
        assert good_as_kept(journal) == good_by_hand(journal)
        journal.close()


def answered_id(c: object) -> str:
    return c.exec_driver_sql("SELECT id FROM turns LIMIT 1").scalar_one()  # type: ignore[attr-defined]


def test_figures_that_were_spoilt_are_found_by_doctor_and_mended(journal: Journal) -> None:
    answered(journal)
    with journal.store.transaction() as c:
        c.execute(schema.counts.update().values(n=7))
    found = [said for said in examine_journal(journal.store.config) if said[0] == "figures"]
    assert found and found[0][1] == "fault" and "turnwise journal recount" in found[0][2]
    with journal.store.transaction() as c:
        wrong = mend_counts(c)
    assert wrong["turns|waiting|"] == (7, 1)
    assert wrong_counts(journal) == {}
    assert not [said for said in examine_journal(journal.store.config) if said[0] == "figures"]
