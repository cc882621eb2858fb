"""Forgetting that is cut off, or that meets a trainer or a conversation at work, is finished all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.journal.test_forget import SECRET, config, files_with, judged, says, speak, talk  # noqa: F401
from tests.support.versions import answered
from turnwise.errors import JournalError
from turnwise.journal import Journal, schema
from turnwise.journal.deletion import forgetting
from turnwise.journal.deletion.forgetting import forget, plan
from turnwise.journal.records.export import RecordsExporter
from turnwise.types import Batch, PolicyVersion


def trained(journal: Journal, number: int = 1) -> int:
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None
    journal.batches.finish(batch, PolicyVersion(number, 0, f"versions/v{number}", 0.0))
    return batch.id


def test_what_was_cut_off_is_finished_by_asking_again(
    journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records cannot be rewritten at the first try, as on a full disk: a stand-in raises."""
    first = speak(journal, "root", "harmless")
    speak(journal, "private", SECRET, branch_of="root", parent_id=first, answers=first, next_state=says(SECRET))
    mine = answered(journal, session_id="private")
    judged(journal, SECRET)
    journal.verdicts.feedback(mine, 1, SECRET)
    batch = trained(journal)
    later = answered(journal, session_id="private")
    journal.verdicts.feedback(later, 1, SECRET)
    held = journal.batches.claim("trainer", 60)
    assert held is not None
    checkpoint = home / f"checkpoints/batch-{held.id:06d}-step-001"
    checkpoint.mkdir(parents=True)
    RecordsExporter(journal).export_all()

    def full(*_: object) -> int:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "rewrite_records", full)
        with pytest.raises(OSError, match="no space"):
            forget(journal, "private")
    assert "records.jsonl" in files_with(home, SECRET) and journal.sessions.find("private") == "private"
    done = forget(journal, "private")
    assert files_with(home, SECRET) == [] and not checkpoint.exists()
    assert (done.turns, done.reactions, done.released_batches) == (3, [first], [held.id])
    assert batch != held.id and done.versions == {1: sorted([mine, first])}
    with journal.store.reading() as c:
        assert c.execute(select(schema.meta.c.name).where(schema.meta.c.name.startswith("forgetting"))).all() == []
    with pytest.raises(JournalError, match="there is no session"):
        journal.sessions.find("private")


@pytest.mark.parametrize("finished", [False, True])
def test_a_trainer_that_takes_turns_meanwhile_is_told_or_named(
    journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    """A trainer claims, and may end, a batch between two transactions that delete."""
    ids = [answered(journal, session_id="private") for _ in range(4)]
    for turn_id in ids:
        journal.verdicts.feedback(turn_id, 1, None)
    monkeypatch.setattr(forgetting, "AT_ONCE", 2)
    some = forgetting._erase_some
    claimed: list[Batch] = []

    def some_then_claim(*args: object) -> list[str]:
        gone = some(*args)  # type: ignore[arg-type]
        if not claimed:
            batch = journal.batches.claim("trainer", 60)
            assert batch is not None and len(batch.samples) == 2
            claimed.append(batch)
            (home / f"checkpoints/batch-{batch.id:06d}-step-001").mkdir(parents=True)
            if finished:
                journal.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", 0.0))
        return gone

    monkeypatch.setattr(forgetting, "_erase_some", some_then_claim)
    done = forget(journal, "private")
    assert done.turns == 4
    if finished:
        assert list(done.versions) == [1] and len(done.versions[1]) == 2
    else:
        assert done.released_batches == [claimed[0].id] and not (home / "checkpoints").exists()
        with pytest.raises(JournalError, match="no longer leased"):
            journal.batches.renew(claimed[0], 60)


def test_a_turn_that_comes_last_of_all_goes_too(journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation goes on between the last transaction that deletes turns and the one that deletes the session."""
    talk(journal, "private", SECRET, turns=2)
    rest, came = forgetting._erase_rest, []

    def one_more(*args: object) -> bool:
        if not came:  # the transaction has begun: what a gateway wrote before it
            came.append(args)
            c = args[1]
            c.exec_driver_sql("UPDATE turns SET session_id = 'private' WHERE session_id = 'other'")  # type: ignore[attr-defined]
        return rest(*args)  # type: ignore[arg-type]

    speak(journal, "other", SECRET)
    monkeypatch.setattr(forgetting, "_erase_rest", one_more)
    assert forget(journal, "private").turns == 3
    assert files_with(home, SECRET) == []


def test_a_version_that_learned_from_its_words_as_a_reaction_is_named(journal: Journal) -> None:
    first = speak(journal, "root", "harmless")
    speak(journal, "private", "x", branch_of="root", parent_id=first, answers=first, next_state=says(SECRET))
    judged(journal, SECRET)
    trained(journal)
    assert plan(journal, "private").versions == {1: [first]}
    assert forget(journal, "private").versions == {1: [first]}


def test_the_persons_own_word_on_a_turn_of_another_session_is_exported(journal: Journal) -> None:
    first = speak(journal, "root", "harmless")
    speak(journal, "private", "x", branch_of="root", parent_id=first, answers=first, next_state=says(SECRET))
    judged(journal, SECRET)
    journal.verdicts.feedback(first, 1, "mine")
    forget(journal, "private")
    RecordsExporter(journal).export_all()
    lines = [json.loads(line) for line in journal.store.config.records_path.read_text().splitlines()]
    assert [line["hint"] for line in lines if line["kind"] == "verdict"] == ["mine"]
