"""records.jsonl: one line an event, none lost and none twice, and learning the same without it."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.journal import Journal, schema
from turnwise.journal.records.export import RecordsExporter
from turnwise.messages import saying


def lines(journal: Journal) -> list[dict]:
    return [json.loads(line) for line in journal.store.config.records_path.read_text().splitlines()]


def test_every_interaction_verdict_and_decision_is_a_line(journal: Journal) -> None:
    turn_id = answered(journal)
    journal.verdicts.feedback(turn_id, -1, "Answer in one word.")
    RecordsExporter(journal).export_all()
    found = lines(journal)
    assert [r["kind"] for r in found] == ["move", "turn", "verdict", "move", "move"]
    assert found[1]["messages"] == [{"role": "user", "content": "hi"}]
    assert found[1]["response_ids"] == [7, 8]
    assert (found[2]["score"], found[2]["hint"], found[2]["judge"]) == (-1, "Answer in one word.", "person")
    assert found[-1]["to"] == "ready"
    assert journal.store.config.records_path.stat().st_mode & 0o077 == 0


def test_after_a_crash_nothing_is_missing_and_nothing_twice(journal: Journal) -> None:
    for _ in range(3):
        answered(journal)
    exporter = RecordsExporter(journal)
    exporter.export_all()
    whole = [r["event"] for r in lines(journal)]
    path = journal.store.config.records_path
    path.write_bytes(path.read_bytes() + b'{"event": 99, "ki')  # a crash in the middle of a line
    answered(journal)
    RecordsExporter(journal).export_all()
    after = [r["event"] for r in lines(journal)]
    assert after[: len(whole)] == whole
    assert after == list(range(1, len(after) + 1))


@contextmanager
def room_for(path: Path, more: int) -> Iterator[None]:
    """No file may grow beyond this one's size and ``more`` bytes: a write stops in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("cut", ["mid-line", "in a character", "before the line break", "between lines"])
def test_after_a_write_that_stopped_half_way_the_same_exporter_goes_on(journal: Journal, cut: str) -> None:
    exporter = RecordsExporter(journal)
    answered(journal)
    exporter.export_all()
    path = journal.store.config.records_path
    written = path.stat().st_size
    said = [saying("user", "ü" * 2000)]
    for _ in range(3):
        answered(journal, messages=said)
    whole = complete_export(journal)
    line = whole.index(b"\n", written)  # the end of the first line of this write
    offset = {
        "mid-line": line + 40,
        "in a character": whole.index("üü".encode(), line) + 1,
        "before the line break": line,
        "between lines": line + 1,
    }[cut]
    with room_for(path, offset - written), pytest.raises(OSError):
        exporter.export_all()
    assert path.stat().st_size == offset, "the write stopped where it was meant to"
    exporter.export_all()
    assert path.read_bytes() == whole


def complete_export(journal: Journal) -> bytes:
    """What the file will hold when everything is exported: the lines that are there, and the outbox beyond them."""
    exporter = RecordsExporter(journal)
    there = journal.store.config.records_path.read_bytes()
    last = json.loads(there.splitlines()[-1])["event"]
    with journal.store.reading() as c:
        rows = c.execute(schema.events.select().where(schema.events.c.id > last).order_by(schema.events.c.id)).all()
        new = [json.dumps(exporter._record(c, row), ensure_ascii=False) + "\n" for row in rows]
    return there + "".join(new).encode()


def test_two_exporters_take_turns_without_writing_an_event_twice(journal: Journal) -> None:
    """A gateway that stops exports once more, while the thread of its last regular export may still be at work."""
    regular, last = RecordsExporter(journal), RecordsExporter(journal)
    for exporter in (regular, last, regular, last):
        answered(journal)
        exporter.export_all()
    for _ in range(120):
        answered(journal)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(RecordsExporter.export_all, (regular, last)))
    numbers = [r["event"] for r in lines(journal)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 2 * 124


def test_a_line_of_many_megabytes_does_not_hide_the_lines_before_it(journal: Journal) -> None:
    answered(journal)
    RecordsExporter(journal).export_all()
    path = journal.store.config.records_path
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event": 99, "messages": "' + b"x" * 5_000_000)
    RecordsExporter(journal).export_all()
    assert path.read_bytes() == whole


def outbox(journal: Journal) -> list[int]:
    with journal.store.reading() as c:
        return list(c.execute(select(schema.events.c.id).order_by(schema.events.c.id)).scalars())


def test_an_outbox_is_emptied_and_numbers_are_never_given_out_again(journal: Journal) -> None:
    answered(journal)
    assert len(outbox(journal)) > 1
    RecordsExporter(journal).export_all()
    newest = lines(journal)[-1]["event"]
    assert outbox(journal) == [newest], "only the newest stays, so that its number is not given out again"
    answered(journal)
    assert min(outbox(journal)[1:]) > newest
    RecordsExporter(journal).export_all()
    assert outbox(journal) == [lines(journal)[-1]["event"]]
    numbers = [r["event"] for r in lines(journal)]
    assert numbers == sorted(set(numbers))


def test_learning_does_not_depend_on_the_records(tmp_path) -> None:
    outcomes = []
    for records in (True, False):
        config = load_config(
            overrides={"home": tmp_path / str(records), "journal.records": records, "train.min_batch": 1}
        )
        journal = Journal.open(config)
        journal.verdicts.feedback(answered(journal, "turn-a"), 1, None)
        RecordsExporter(journal).export_all()
        batch = journal.batches.claim("t", 60)
        assert batch is not None
        outcomes.append(batch.samples)
        assert config.records_path.exists() == records
        journal.close()
    assert outcomes[0] == outcomes[1]
