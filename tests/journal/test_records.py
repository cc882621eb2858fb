"""records.jsonl: one line an event, none lost and none twice, and learning the same without it."""

from __future__ import annotations

import json

from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.journal.records import RecordsExporter


def lines(journal: Journal) -> list[dict]:
    return [json.loads(line) for line in journal.config.records_path.read_text().splitlines()]


def test_every_interaction_verdict_and_decision_is_a_line(journal: Journal) -> None:
    turn_id = answered(journal)
    journal.feedback(turn_id, -1, "Answer in one word.")
    RecordsExporter(journal).export_all()
    found = lines(journal)
    assert [r["kind"] for r in found] == ["move", "turn", "verdict", "move", "move"]
    assert found[1]["messages"] == [{"role": "user", "content": "hi"}]
    assert found[1]["response_ids"] == [7, 8]
    assert (found[2]["score"], found[2]["hint"], found[2]["judge"]) == (-1, "Answer in one word.", "person")
    assert found[-1]["to"] == "ready"
    assert journal.config.records_path.stat().st_mode & 0o077 == 0


def test_after_a_crash_nothing_is_missing_and_nothing_twice(journal: Journal) -> None:
    for _ in range(3):
        answered(journal)
    exporter = RecordsExporter(journal)
    exporter.export_all()
    whole = [r["event"] for r in lines(journal)]
    path = journal.config.records_path
    path.write_bytes(path.read_bytes() + b'{"event": 99, "ki')  # a crash in the middle of a line
    answered(journal)
    RecordsExporter(journal).export_all()
    after = [r["event"] for r in lines(journal)]
    assert after[: len(whole)] == whole
    assert after == list(range(1, len(after) + 1))


def test_an_outbox_is_emptied_and_numbers_are_never_given_out_again(journal: Journal) -> None:
    answered(journal)
    RecordsExporter(journal).export_all()
    answered(journal)
    RecordsExporter(journal).export_all()
    numbers = [r["event"] for r in lines(journal)]
    assert numbers == sorted(set(numbers))


def test_learning_does_not_depend_on_the_records(tmp_path) -> None:
    outcomes = []
    for records in (True, False):
        config = load_config(
            overrides={"home": tmp_path / str(records), "journal.records": records, "train.min_batch": 1}
        )
        journal = Journal.open(config)
        journal.feedback(answered(journal, "turn-a"), 1, None)
        RecordsExporter(journal).export_all()
        batch = journal.claim_batch("t", 60)
        assert batch is not None
        outcomes.append(batch.samples)
        assert config.records_path.exists() == records
        journal.close()
    assert outcomes[0] == outcomes[1]
