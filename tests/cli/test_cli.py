"""The commands that need no server: their output, and one sentence for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.versions import answered, publish
from turnwise.journal import Journal


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "turnwise", *args], capture_output=True, text=True, timeout=60)


def test_status_sessions_and_versions(journal: Journal) -> None:
    turn_id = answered(journal)
    journal.verdicts.feedback(turn_id, -1, "Answer in one word.")
    publish(journal)
    home = ["--home", str(journal.store.config.home)]
    status = json.loads(run("status", "--json", *home).stdout)
    assert status["version"] == {"number": 1, "part": 1.0}
    assert status["turns"]["trained"] == 1
    assert "serving version" in run("status", *home).stdout
    sessions = json.loads(run("sessions", "list", "--json", *home).stdout)
    assert {s["id"] for s in sessions} >= {"session-1"}
    assert "Answer in one word." in run("sessions", "show", "session-1", *home).stdout
    assert "1 (serving)" in run("versions", "list", *home).stdout
    assert json.loads(run("versions", "show", "1", *home).stdout)["parent"] == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["status"], "no journal"),
        (["sessions", "show", "x"], "no journal"),
        (["judge", "eval", "missing.jsonl"], "missing.jsonl"),
        (["demo", "--persona", "nobody"], "nobody"),
        (["demo", "--skills", "--persona", "teacher"], "--skills goes with"),
        (["serve", "--set", "nonsense"], "KEY=VALUE"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, args: list[str], words: str) -> None:
    home = [] if args[0] in ("demo",) else ["--home", str(tmp_path)]
    done = run(*args, *home)
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_sessions_and_versions(journal: Journal) -> None:
    home = ["--home", str(journal.store.config.home)]
    for args in (["sessions", "show", "nope"], ["versions", "show", "9"]):
        done = run(*args, *home)
        assert done.returncode == 1
        assert "there is no" in done.stderr


def test_doctor_finds_a_readable_token(journal: Journal) -> None:
    journal.store.config.token_path.write_text("tw-0123456789abcdef0123")
    journal.store.config.token_path.chmod(0o644)
    done = run("doctor", "--json", "--home", str(journal.store.config.home))
    assert done.returncode == 1
    [token] = [f for f in json.loads(done.stdout) if f["check"] == "token"]
    assert "chmod 600" in token["text"]


def test_a_rollback_serves_an_earlier_version_again(journal: Journal) -> None:
    publish(journal), publish(journal)
    home = ["--home", str(journal.store.config.home)]
    done = run("versions", "rollback", "1", *home)
    assert done.returncode == 0, done.stderr
    assert "version 1 serves" in done.stdout
    assert journal.versions.latest() == 1
    refused = run("versions", "rollback", "7", *home)
    assert refused.returncode == 1 and "there is no published version 7" in refused.stderr


def test_a_rollback_to_the_base_model_and_forward_again(journal: Journal) -> None:
    publish(journal), publish(journal)
    home = ["--home", str(journal.store.config.home)]
    done = run("versions", "rollback", "0", *home)
    assert done.returncode == 0, done.stderr
    assert "the base model serves" in done.stdout
    assert journal.versions.latest() == 0
    assert "0 (serving)" in run("versions", "list", *home).stdout
    assert run("versions", "rollback", "1", *home).returncode == 0
    assert journal.versions.latest() == 1
    run("versions", "rollback", "0", *home)
    assert publish(journal) == 3  # learned anew, on the base model
    version = journal.versions.get(3)
    assert version is not None and version.parent == 0
    assert journal.versions.latest() == 3
