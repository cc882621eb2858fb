"""`turnwise doctor`: each fault is found, named, and comes with what to do; one fault does not hide the next."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.skills.texts import text
from tests.support.versions import publish
from tests.training.tiny import make_model
from turnwise.config import load_config
from turnwise.doctor.checks import examine
from turnwise.journal import Journal
from turnwise.skills.library import Library
from turnwise.skills.skill_file import parse
from turnwise.types import SkillState


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that something listens on which is no turnwise: it never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def write_settings(home: Path, model: Path, port: int = 0) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[model]\npath = "{model}"\n[server]\nport = {port}\n')


def faults(home: Path) -> dict[str, str]:
    return {finding.check: finding.text for finding in examine(None, home) if finding.level == "fault"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return make_model(tmp_path / "model")


def test_a_sound_home_has_no_fault(home: Path, model: Path, journal: Journal) -> None:
    write_settings(home, model)
    assert faults(home).keys() - {"disk"} == set()


def test_a_missing_model_is_a_fault(home: Path) -> None:
    write_settings(home, home / "no-such-model")
    assert "no-such-model" in faults(home)["model"]


def test_a_broken_journal_is_a_fault_and_the_other_checks_still_run(home: Path, model: Path, taken_port: int) -> None:
    write_settings(home, model, taken_port)
    (home / "journal.db").write_bytes(b"no database at all, but long enough to be read as if it were one. " * 50)
    found = faults(home)
    assert "not a turnwise journal" in found["journal"]
    assert "port" in found


def test_a_port_that_something_else_holds_is_a_fault(home: Path, model: Path, taken_port: int) -> None:
    write_settings(home, model, taken_port)
    port = faults(home)["port"]
    assert f"127.0.0.1:{taken_port}" in port
    assert "server.port" in port


def test_a_version_that_lost_its_folder_is_a_fault(home: Path, model: Path, journal: Journal) -> None:
    write_settings(home, model)
    folder = home / "versions" / f"v{publish(journal)}"
    folder.mkdir(parents=True)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (folder / name).write_bytes(b"{}")
    assert "versions" not in faults(home)
    shutil.rmtree(folder)
    assert "version 1 has lost" in faults(home)["versions"]


def test_skills_that_wait_or_cannot_be_read_are_said(home: Path, model: Path, journal: Journal) -> None:
    write_settings(home, model)
    config = load_config(None, {"home": home})
    library = Library(config, journal)
    library.add([parse(text("of-dates"), "of-dates")], SkillState.ACTIVE, "person")
    library.add([parse(text("of-times"), "of-times")], SkillState.REVIEW, "import")
    said = [finding.text for finding in examine(None, home) if finding.check == "skills"]
    assert said == ["1 in use, generation 0", "1 wait for your word: turnwise skills review"]
    (config.skills_dir / "of-dates" / "SKILL.md").write_text("no front-matter")
    assert "of-dates" in faults(home)["skills"]
    (home / "config.toml").write_text(f'[model]\npath = "{model}"\n[skills]\nembedding_url = "http://127.0.0.1:9/v1"\n'
                                      'embedding_model = "m"\nembedding_timeout_s = 1.0\n')  # fmt: skip
    (config.skills_dir / "of-dates" / "SKILL.md").write_bytes(text("of-dates"))
    assert "127.0.0.1:9" in faults(home)["skills"]
