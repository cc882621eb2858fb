"""records.jsonl among files of others: what is not ours is not touched, and a journal put back swallows no event."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.journal.test_records import lines
from tests.support.versions import answered
from turnwise.config import Config
from turnwise.journal import Journal
from turnwise.journal.records.export import RecordsExporter

FOREIGN = {
    "json of another program": b'{"time": 1, "message": "mine"}\n{"time": 2, "message": "mine"}\n',
    "notes": b"dear diary\n",
    "notes without an end": b"dear diary",
    "json that looks a little like ours": b'{"event": "login", "at": "noon"}\n',
    "binary": bytes(range(256)) * 50,
    "a line break": b"\n",
    "only a brace": b"{}",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_not_ours_stays_to_the_byte(
    journal: Journal, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal.store.config.records_path
    path.write_bytes(FOREIGN[name])
    answered(journal)
    RecordsExporter(journal).export_all()
    assert path.read_bytes() == FOREIGN[name]
    assert "it is left as it is" in caplog.text
    beside = path.with_name("records-2.jsonl")
    events = [json.loads(line)["event"] for line in beside.read_text().splitlines()]
    assert events == list(range(1, len(events) + 1)) and events
    answered(journal)
    RecordsExporter(journal).export_all()
    more = [json.loads(line)["event"] for line in beside.read_text().splitlines()]
    assert more == list(range(1, len(more) + 1)) and len(more) > len(events)


def test_two_files_that_are_not_ours(journal: Journal) -> None:
    for name in ("records.jsonl", "records-2.jsonl"):
        (journal.store.config.home / name).write_text("mine\n")
    answered(journal)
    RecordsExporter(journal).export_all()
    assert (journal.store.config.home / "records-3.jsonl").read_text()


def test_a_link_is_not_followed(journal: Journal, tmp_path: Path) -> None:
    target = tmp_path / "somewhere"
    target.write_bytes(b"")
    journal.store.config.records_path.symlink_to(target)
    answered(journal)
    RecordsExporter(journal).export_all()
    assert target.read_bytes() == b""
    assert journal.store.config.records_path.is_symlink()
    assert (journal.store.config.home / "records-2.jsonl").exists()


def test_a_pipe_is_not_waited_for(journal: Journal) -> None:
    os.mkfifo(journal.store.config.records_path)
    answered(journal)
    RecordsExporter(journal).export_all()
    assert (journal.store.config.home / "records-2.jsonl").exists()


@pytest.mark.parametrize("note", [b"a note of mine", b"a note of mine\n", b'{"mine": 1}\n', b"\n\n"])
def test_what_somebody_wrote_below_our_lines_stays(journal: Journal, note: bytes) -> None:
    answered(journal)
    RecordsExporter(journal).export_all()
    path = journal.store.config.records_path
    path.write_bytes(path.read_bytes() + note)
    before = path.read_bytes()
    answered(journal)
    RecordsExporter(journal).export_all()
    after = path.read_bytes()
    assert after.startswith(before)
    ours = [json.loads(line) for line in after.splitlines() if line.startswith(b'{"event"')]
    assert [r["event"] for r in ours] == list(range(1, len(ours) + 1))


def copied(config: Config) -> Path:
    """A copy of the journal, as a person makes one while nothing runs."""
    copy = config.home / "journal.copy"
    shutil.copy(config.journal_path, copy)
    return copy


@pytest.mark.files
def test_a_journal_that_is_put_back_swallows_no_event_and_writes_none_twice(config: Config) -> None:
    journal = Journal.open(config)
    first = [answered(journal) for _ in range(2)]
    RecordsExporter(journal).export_all()
    first.append(answered(journal))  # in the copy's outbox, and soon in the file
    journal.close()
    copy = copied(config)
    journal = Journal.open(config)
    lost = [answered(journal) for _ in range(5)]
    RecordsExporter(journal).export_all()
    journal.close()
    copy.replace(config.journal_path)
    for leftover in config.home.glob("journal.db-*"):
        leftover.unlink()

    journal = Journal.open(config)
    after = [answered(journal) for _ in range(9)]  # as many events as there were, under the same numbers, and more
    for _ in range(2):
        RecordsExporter(journal).export_all()
    after.append(answered(journal))
    RecordsExporter(journal).export_all()
    found = lines(journal)
    assert [r["turn"] for r in found if r["kind"] == "turn"] == [*first, *lost, *after]
    assert len({(r["journal"], r["event"], r["kind"]) for r in found}) == len(found)
    assert [r["kind"] for r in found].count("journal") == 1
    assert len({r["journal"] for r in found}) == 2
    journal.close()


@pytest.mark.files
def test_a_new_journal_beside_an_old_file_goes_on_behind_a_line_that_says_so(config: Config) -> None:
    journal = Journal.open(config)
    before = [answered(journal) for _ in range(3)]
    RecordsExporter(journal).export_all()
    journal.close()
    for file in config.home.glob("journal.db*"):
        file.unlink()
    journal = Journal.open(config)
    after = [answered(journal) for _ in range(2)]
    RecordsExporter(journal).export_all()
    RecordsExporter(journal).export_all()
    found = lines(journal)
    assert [r["turn"] for r in found if r["kind"] == "turn"] == [*before, *after]
    assert [r["kind"] for r in found].count("journal") == 1
    journal.close()


def test_a_file_of_before_lines_had_a_journal_is_gone_on_with(config: Config) -> None:
    journal = Journal.open(config)
    turns = [answered(journal) for _ in range(2)]
    RecordsExporter(journal).export_all()
    path = config.records_path
    old = [{k: v for k, v in line.items() if k != "journal"} for line in lines(journal)]
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    with journal.store.transaction() as c:
        c.exec_driver_sql("DELETE FROM meta WHERE name = 'exported'")
    turns.append(answered(journal))
    RecordsExporter(journal).export_all()
    found = lines(journal)
    assert [r["turn"] for r in found if r["kind"] == "turn"] == turns
    assert [r["event"] for r in found] == list(range(1, len(found) + 1))
    journal.close()


def test_killed_between_the_file_and_the_journal_it_writes_nothing_twice(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(journal)
    exporter = RecordsExporter(journal)
    exporter.export_all()
    answered(journal)

    def killed():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(journal.store, "transaction", killed)
        exporter.export_all()
    RecordsExporter(journal).export_all()
    found = [r["event"] for r in lines(journal)]
    assert found == list(range(1, len(found) + 1))


def test_a_file_that_was_taken_away_is_begun_anew_without_what_was_in_it(journal: Journal) -> None:
    answered(journal)
    exporter = RecordsExporter(journal)
    exporter.export_all()
    last = lines(journal)[-1]["event"]
    journal.store.config.records_path.unlink()
    answered(journal)
    exporter.export_all()
    found = [r["event"] for r in lines(journal)]
    assert found == list(range(last + 1, last + 1 + len(found))) and found
