"""`turnwise skills`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.skills.texts import text
from turnwise.cli.main import app
from turnwise.errors import SkillError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "SKILL.md"
    path.write_bytes(text())
    return path


class Typed:
    """Commands on one home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *words: str | Path, given: bytes | None = None) -> str:
        done = CliRunner().invoke(app, ["skills", *map(str, words), "--home", str(self.home)], input=given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    def json(self, *words: str) -> object:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def typed(home: Path) -> Typed:
    return Typed(home)


def states(typed: Typed) -> dict[str, str]:
    return {row["name"]: row["state"] for row in typed.json("list", "--all")["skills"]}  # type: ignore[index]


def test_a_skills_life(typed: Typed, file: Path, tmp_path: Path) -> None:
    assert "there is no skill yet" in typed("list")
    assert "is in the library" in typed("add", file)
    assert "tidy-dates" in typed("list") and typed("show", "tidy").encode().strip() == text().strip()
    file.write_bytes(text(body="Else."))
    assert "has its text 2 now" in typed("edit", "ti", "--file", file)
    assert "Year" not in typed("show", "tidy") and "year-month-day" in typed("show", "tidy", "--version", "1")
    typed("disable", "tidy")
    assert states(typed) == {"tidy-dates": "disabled"}
    typed("enable", "tidy")
    typed("retire", "tidy")
    assert states(typed) == {"tidy-dates": "retired"} and "there is no skill yet" in typed("list")
    typed("rollback", "1")
    assert (typed.home / "skills/tidy-dates/SKILL.md").read_bytes() == text()
    assert [row["number"] for row in typed.json("history")] == [6, 5, 4, 3, 2, 1]  # type: ignore[index, union-attr]
    typed("export", tmp_path / "pack.zip")
    other = Typed(tmp_path / "other")
    assert "wait for `turnwise skills review`" in other("import", tmp_path / "pack.zip")
    assert states(other) == {"tidy-dates": "review"} and not (other.home / "skills/tidy-dates").exists()
    assert "year-month-day" in other("review")
    assert "is used from now on" in other("review", "--accept", "tidy")
    assert states(other) == {"tidy-dates": "active"} and "no skill waits" in other("review")


def test_from_standard_input(typed: Typed) -> None:
    typed("add", "-", given=text("from-pipe"))
    assert states(typed) == {"from-pipe": "active"}


def test_errors_say_what_to_do(typed: Typed, file: Path, tmp_path: Path) -> None:
    typed("add", file)
    other = tmp_path / "other.md"
    other.write_bytes(text("tidy-names"))
    typed("add", other)
    for words, said in (
        (("show", "tidy"), "several skills begin with 'tidy': tidy-dates, tidy-names; give more of the name"),
        (("show", "../tidy"), "there is no skill"),
        (("show", ""), "there is no skill"),
        (("show", "tidy-dates", "--version", "7"), "has the texts 1 to 1, and no 7"),
        (("add", file), "there is a skill 'tidy-dates' already"),
        (("add", tmp_path / "none"), "there is no file"),
        (("edit", "tidy-dates", "--file", other), "a skill keeps its name, tidy-dates"),
        (("enable", "tidy-dates"), "is active; nothing was changed"),
        (("rollback", "9"), "there is no library 9; see `turnwise skills history`"),
        (("review", "--accept", "tidy-dates"), "is active; nothing was changed"),
        (("review", "--accept", "a", "--reject", "b"), "say one"),
        (("import", tmp_path / "none.zip"), "there is no file .*none.zip"),
        (("import", file), "is a single file; `turnwise skills add` takes one"),
        (("export", tmp_path / "x.tar"), "must end with .zip"),
    ):
        with pytest.raises(SkillError, match=said.replace("(", r"\(")):
            typed(*words)


def test_an_edit_that_is_refused_is_not_lost(typed: Typed, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed("add", file)
    monkeypatch.setenv("VISUAL", "sed -i s/^name:.*/name:[/")
    with pytest.raises(SkillError, match=r"line 3.*; what you wrote is in .*edited-tidy-dates.md"):
        typed("edit", "tidy-dates")
    kept = typed.home / "edited-tidy-dates.md"
    assert "name:[" in kept.read_text() and kept.stat().st_mode & 0o077 == 0
    kept.write_bytes(text(body="Else."))
    assert "has its text 2 now" in typed("edit", "tidy-dates", "--file", kept)


@pytest.mark.parametrize("editor", ["false", "/none/such-editor"])
def test_an_editor_that_fails_is_said(typed: Typed, file: Path, monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    typed("add", file)
    monkeypatch.setenv("VISUAL", editor)
    with pytest.raises(
        SkillError, match=r"your editor failed \(.*\); nothing was changed; set \$EDITOR, or give --file"
    ):
        typed("edit", "tidy-dates")


def test_a_broken_file_is_said_with_its_line(typed: Typed, file: Path) -> None:
    typed("add", file)
    (typed.home / "skills/tidy-dates/SKILL.md").write_bytes(b"---\nname: [\x1b[31m\n---\n")
    assert "not taken" in typed("list") and "\x1b" not in typed("list")
    assert "line 2" in str(typed.json("list")["faults"]["tidy-dates"])  # type: ignore[index]
