"""`turnwise doctor` and `turnwise status`: every fault is a row of the table, and nothing is changed by looking."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.versions import answered, publish
from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.doctor.checks import Finding, examine
from turnwise.errors import JournalError
from turnwise.journal import Journal


def found(home: Path, *checks: str) -> list[Finding]:
    return [f for f in examine(None, home) if f.check in checks]


def snapshot(home: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time and content of every file."""
    files = sorted(p for p in home.rglob("*") if p.is_file())
    return {str(p): (p.stat().st_mode, p.stat().st_mtime_ns, p.read_bytes()) for p in files}


@pytest.fixture
def kept(config: Config) -> Config:
    """A home with a journal in it that nobody has open."""
    journal = Journal.open(config)
    answered(journal)
    publish(journal)
    journal.close()
    return config


def test_a_sound_journal(kept: Config) -> None:
    [finding] = found(kept.home, "journal")
    assert (finding.level, "version 1 serves" in finding.text) == ("ok", True)


def test_looking_changes_nothing(kept: Config) -> None:
    kept.journal_path.chmod(0o640)
    before = snapshot(kept.home)
    findings = found(kept.home, "journal")
    assert snapshot(kept.home) == before
    assert any("chmod 600" in f.text for f in findings)


def test_looking_while_a_loop_writes_changes_nothing(journal: Journal) -> None:
    answered(journal)
    before = snapshot(journal.store.config.home)
    [finding] = found(journal.store.config.home, "journal")
    assert finding.text.startswith("2 turns") or finding.text.startswith("1 turns")
    assert {k: v[2] for k, v in snapshot(journal.store.config.home).items() if not k.endswith("-shm")} == {
        k: v[2] for k, v in before.items() if not k.endswith("-shm")
    }


def mark_as_of(config: Config, revision: str) -> None:
    with closing(sqlite3.connect(config.journal_path)) as c, c:
        c.execute("update alembic_version set version_num = ?", (revision,))


def test_a_journal_of_an_earlier_version_is_not_migrated(kept: Config) -> None:
    mark_as_of(kept, "0001")
    before = snapshot(kept.home)
    [finding] = found(kept.home, "journal")
    assert (finding.level, "turnwise serve" in finding.text) == ("note", True)
    assert snapshot(kept.home) == before


def test_a_journal_of_a_later_version(kept: Config) -> None:
    mark_as_of(kept, "from_the_future")
    [finding] = found(kept.home, "journal")
    assert (finding.level, "update turnwise" in finding.text) == ("fault", True)


LOOKS = ("status", "sessions list", "sessions show session-1", "versions list", "versions show 1")


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.parametrize(
    ("revision", "advice"), [("0001", "start `turnwise serve` once"), ("later", "update turnwise")]
)
def test_a_command_that_looks_changes_no_schema(kept: Config, command: str, revision: str, advice: str) -> None:
    mark_as_of(kept, revision)
    before = snapshot(kept.home)
    refused = CliRunner().invoke(app, [*command.split(), "--home", str(kept.home)])
    assert isinstance(refused.exception, JournalError) and advice in str(refused.exception)
    assert snapshot(kept.home) == before


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_leaves_every_file_as_it_is(kept: Config, command: str) -> None:
    before = snapshot(kept.home)
    assert CliRunner().invoke(app, [*command.split(), "--home", str(kept.home)]).exit_code == 0
    assert snapshot(kept.home) == before


def test_a_start_on_a_journal_of_a_later_version_says_so(kept: Config) -> None:
    mark_as_of(kept, "later")
    with pytest.raises(JournalError, match="update turnwise"):
        Journal.open(kept)


@pytest.mark.parametrize("how", ["text", "zeros", "cut", "scribbled", "another database", "empty"])
def test_a_corrupt_journal_is_one_row_among_others(kept: Config, how: str) -> None:
    path = kept.journal_path
    data = bytearray(path.read_bytes())
    if how == "another database":
        path.unlink()
        with sqlite3.connect(path) as c:
            c.execute("create table notes (x)")
        c.close()
    elif how == "scribbled":
        data[4096:] = os.urandom(len(data) - 4096)
        path.write_bytes(data)
    else:
        path.write_bytes(
            {"text": b"hello " * 1000, "zeros": bytes(8192), "cut": bytes(data[: len(data) // 3]), "empty": b""}[how]
        )
    findings = examine(None, kept.home)
    [journal] = [f for f in findings if f.check == "journal"]
    assert journal.level == "fault"
    assert str(path) in journal.text
    assert findings[-1].check == "memory"  # all other checks were made


def test_a_check_that_fails_is_a_row(kept: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Config) -> list[Finding]:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("turnwise.doctor.checks.examine_journal", broken)
    findings = examine(None, kept.home)
    assert [f.text for f in findings if "a fault of ours" in f.text]
    assert findings[-1].check == "memory"


def test_what_the_loops_say_is_shown(kept: Config) -> None:
    journal = Journal.open(kept)
    journal.status.say("trainer", {"state": "waiting", "error": "batch 3: out of memory [gate]"})
    journal.status.say("gateway", {"pid": 1, "version": 1, "version_error": "version 2 cannot be loaded"})
    journal.status.say("judge", {"state": "waiting", "error": None})
    journal.close()
    says = found(kept.home, "trainer", "gateway", "judge")
    assert {(f.check, f.level, f.text) for f in says if f.level != "ok"} == {
        ("trainer", "fault", "says: batch 3: out of memory [gate]"),
        ("gateway", "fault", "says: version 2 cannot be loaded"),
    }
    shown = CliRunner().invoke(app, ["status", "--home", str(kept.home)], env={"COLUMNS": "200"}).output
    assert "error: batch 3: out of memory [gate]" in shown
    assert "error: version 2 cannot be loaded" in shown
    assert "error=None" not in shown
    table = CliRunner().invoke(app, ["doctor", "--home", str(kept.home)], env={"COLUMNS": "200"}).output
    assert "says: batch 3: out of memory [gate]" in table


def test_a_mistake_with_brackets_is_said_in_full(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "turnwise", "status", "--home", str(tmp_path / "[/x]")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "[/x]" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_of_a_corrupt_journal_prints_its_table(kept: Config) -> None:
    kept.journal_path.write_bytes(b"hello " * 1000)
    done = subprocess.run(
        [sys.executable, "-m", "turnwise", "doctor", "--home", str(kept.home)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "what was found" in done.stdout
    assert "memory" in done.stdout
