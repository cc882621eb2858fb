"""The library in the journal and in its folder: every change, edits by hand, kills at any point, and the way back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.skills.texts import text
from turnwise.config import Config
from turnwise.errors import SkillError
from turnwise.journal import Journal
from turnwise.journal.skills.records import SkillChange
from turnwise.skills.folder import SkillFolder
from turnwise.skills.library import Library
from turnwise.skills.skill_file import FILE, parse
from turnwise.types import Skill, SkillState

ACTIVE = SkillState.ACTIVE


@pytest.fixture
def library(config: Config) -> Iterator[Library]:
    with closing(Journal.open(config)) as journal:
        yield Library(config, journal)


def skill(name: str, body: str = "Do it.") -> Skill:
    return parse(text(name, body=body), name)


def lying(library: Library) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in library.folder.path.glob(f"*/{FILE}")}


def file_of(library: Library, name: str) -> Path:
    return library.folder.path / name / FILE


def test_a_skill_is_in_the_journal_and_in_its_folder(library: Library) -> None:
    assert library.sync().revision.number == 0
    view = library.add([skill("one")], ACTIVE, "person", (("turn-1", "session-1"),))
    assert lying(library) == {"one": text("one", body="Do it.")}
    known = view.skills["one"]
    assert (known.state, known.version.number, known.version.made_by) == (ACTIVE, 1, "person")
    assert library._records.sources(known.version.id) == [("turn-1", "session-1")]
    assert library.sync().revision == view.revision, "nothing was changed, so nothing is recorded"


def test_a_name_is_taken_once(library: Library) -> None:
    library.add([skill("one")], ACTIVE, "person")
    with pytest.raises(SkillError, match="there is a skill 'one' already"):
        library.add([skill("two"), skill("one")], ACTIVE, "person")
    assert set(lying(library)) == {"one"}
    library.move("one", SkillState.RETIRED, "retire")
    assert library.add([skill("one", "Anew.")], ACTIVE, "person").skills["one"].version.number == 2


def test_an_edit_by_hand_is_a_version(library: Library) -> None:
    library.add([skill("one")], ACTIVE, "person")
    file_of(library, "one").write_bytes(text("one", body="By hand."))
    view = library.sync()
    assert (view.skills["one"].version.number, view.skills["one"].version.made_by) == (2, "hand")
    assert view.skills["one"].skill.body == "By hand."
    assert view.revision.what == "by hand: one"
    library.rollback(1)
    assert lying(library) == {"one": text("one", body="Do it.")}
    library.rollback(2)
    assert lying(library) == {"one": text("one", body="By hand.")}, "and back"


def test_a_library_that_is_deleted_as_a_whole_is_retired_and_a_rollback_brings_it_back(library: Library) -> None:
    library.add([skill("one"), skill("two")], ACTIVE, "person")
    shutil.rmtree(library.folder.path)
    view = library.sync()
    assert {known.state for known in view.skills.values()} == {SkillState.RETIRED} and lying(library) == {}
    assert view.revision.what == "by hand: one, two"
    library.rollback(1)
    assert set(lying(library)) == {"one", "two"}


def test_what_an_earlier_turnwise_wrote_down_within_the_folder_still_counts(library: Library) -> None:
    library.add([skill("one")], ACTIVE, "person")
    inside, beside = library.folder.path / ".written.json", library.folder.path.parent / "skills-written.json"
    beside.rename(inside)
    file_of(library, "one").unlink()
    assert library.sync().skills["one"].state is SkillState.RETIRED, "deleted by hand, not cut off"
    assert beside.exists() and not inside.exists()


def test_a_folder_made_by_hand_is_a_skill_and_one_that_is_deleted_is_retired(library: Library) -> None:
    SkillFolder(library.folder.path).put("mine", text("mine"), None)
    assert library.sync().skills["mine"].state is ACTIVE
    file_of(library, "mine").unlink()
    assert library.sync().skills["mine"].state is SkillState.RETIRED
    SkillFolder(library.folder.path).put("mine", text("mine"), None)
    assert library.sync().skills["mine"].state is ACTIVE


def test_a_broken_edit_is_said_left_alone_and_not_taken(library: Library) -> None:
    library.add([skill("one"), skill("two")], ACTIVE, "person")
    file_of(library, "one").write_bytes(b"---\nname: one\ndescription: [\n---\nx")
    view = library.sync()
    assert "one/SKILL.md, line" in view.faults["one"] and "not valid YAML" in view.faults["one"]
    assert view.skills["one"].skill.body == "Do it.", "what was last read is in force"
    library.edit("two", text("two", body="Else."))
    assert lying(library)["one"].endswith(b"[\n---\nx")
    with pytest.raises(SkillError, match=r"line 3.* before a rollback"):
        library.rollback(1)
    file_of(library, "one").write_bytes(text("one", body="Mended."))
    assert library.sync().skills["one"].skill.body == "Mended."


def test_a_name_that_is_not_its_folders_is_said(library: Library) -> None:
    SkillFolder(library.folder.path).put("mine", text("other"), None)
    view = library.sync()
    assert view.skills == {} and "says name: other, and its folder is mine" in view.faults["mine"]


def test_links_and_pipes_are_not_followed(library: Library, tmp_path: Path) -> None:
    library.add([skill("one")], ACTIVE, "person")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / FILE).write_bytes(text("linked"))
    (library.folder.path / "linked").symlink_to(secret)
    (library.folder.path / "piped").mkdir()
    os.mkfifo(file_of(library, "piped"))
    (library.folder.path / "file-link").mkdir()
    file_of(library, "file-link").symlink_to(secret / FILE)
    (library.folder.path / "Bad Name").mkdir()
    file_of(library, "Bad Name").write_bytes(text("bad"))
    file_of(library, "one").unlink()
    file_of(library, "one").symlink_to(secret / FILE)
    view = library.sync()
    assert set(view.skills) == {"one"}
    assert set(view.faults) == {"linked", "piped", "file-link", "Bad Name", "one"}
    with pytest.raises(SkillError, match="already"):
        library.add([skill("one", "x")], ACTIVE, "person")
    with pytest.raises(SkillError, match="is a link"):
        library.add([skill("linked")], ACTIVE, "person")
    assert (secret / FILE).read_bytes() == text("linked")
    assert sorted(file.name for file in secret.iterdir()) == [FILE]


def test_the_folder_itself_may_not_be_a_link(library: Library, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    library.folder.path.symlink_to(elsewhere)
    with pytest.raises(SkillError, match="is a link or a file, not a folder"):
        library.add([skill("one")], ACTIVE, "person")
    assert list(elsewhere.iterdir()) == []


def test_what_waits_for_review_or_is_retired_is_no_file(library: Library) -> None:
    library.add([skill("one")], SkillState.REVIEW, "import")
    assert lying(library) == {} and library.sync().injected == []
    library.move("one", ACTIVE, "accept", frozenset({SkillState.REVIEW}))
    assert set(lying(library)) == {"one"}
    with pytest.raises(SkillError, match="'one' is active; nothing was changed"):
        library.move("one", ACTIVE, "accept", frozenset({SkillState.REVIEW}))
    library.move("one", SkillState.DISABLED, "disable")
    assert set(lying(library)) == {"one"} and library.sync().injected == []
    library.move("one", SkillState.RETIRED, "retire")
    assert not (library.folder.path / "one").exists()


def test_files_of_the_person_in_a_skills_folder_stay(library: Library) -> None:
    library.add([skill("one")], ACTIVE, "person")
    (library.folder.path / "one" / "notes.txt").write_text("mine")
    library.move("one", SkillState.RETIRED, "retire")
    assert (library.folder.path / "one" / "notes.txt").read_text() == "mine"
    assert lying(library) == {}


def test_every_earlier_library_comes_back_byte_for_byte(library: Library) -> None:
    states: list[tuple[int, dict[str, bytes]]] = [(0, {})]

    def note(view: Any) -> None:
        states.append((view.revision.number, lying(library)))

    note(library.add([skill("one"), skill("two")], ACTIVE, "person"))
    note(library.edit("one", b"\xef\xbb\xbf" + text("one", body="Else.").replace(b"\n", b"\r\n") + b"\n\n\n"))
    note(library.move("two", SkillState.RETIRED, "retire"))
    file_of(library, "one").write_bytes(text("one", body="By hand."))
    note(library.sync())
    note(library.add([skill("three")], ACTIVE, "person"))
    for number, files in [*states, *reversed(states)]:
        view = library.rollback(number)
        assert lying(library) == files
        assert {name for name, known in view.skills.items() if known.state is ACTIVE} == set(files)
    with pytest.raises(SkillError, match="there is no library 999"):
        library.rollback(999)


def test_a_change_to_a_library_that_went_on_is_refused(library: Library) -> None:
    base = library.sync().revision
    library.add([skill("one")], ACTIVE, "person")
    with pytest.raises(SkillError, match="changed meanwhile"):
        library._records.change(base, "add two", "person", [SkillChange("two", ACTIVE, text("two"))])


class Killed(BaseException):
    """Stands for the end of the process at this point."""


STEPS = 9
"""More steps than any of these changes takes on the disk."""


@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("change", ["add", "edit", "retire", "rollback"])
def test_a_kill_at_any_step_leaves_the_library_before_or_after(
    library: Library, monkeypatch: pytest.MonkeyPatch, at: int, change: str
) -> None:
    """After the journal's transaction the change has happened, whatever of the folder was written by then."""
    library.add([skill("one"), skill("two")], ACTIVE, "person")
    library.edit("one", text("one", body="Second."))
    before = library.sync()
    changes = {
        "add": lambda: library.add([skill("three"), skill("four")], ACTIVE, "person"),
        "edit": lambda: library.edit("one", text("one", body="Third.")),
        "retire": lambda: library.move("two", SkillState.RETIRED, "retire"),
        "rollback": lambda: library.rollback(1),
    }
    steps = iter(range(100))

    def killed_at(name: str, real: Any) -> Any:
        def step(*given: Any, **named: Any) -> Any:
            if next(steps) == at:
                raise Killed(name)
            return real(*given, **named)

        return step

    ended = True
    with monkeypatch.context() as patched:
        for owner, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (Path, "replace"), (Path, "unlink"),
                            (Path, "rmdir")):  # fmt: skip
            patched.setattr(owner, name, killed_at(name, getattr(owner, name)))
        with suppress(Killed):
            changes[change]()
            ended = False
    assert ended or at, "the first step is one"
    after = library.sync()
    assert after.faults == {}
    assert after.revision.number in (before.revision.number, before.revision.number + 1), "no edit by hand was seen"
    used = {name: known.skill.content for name, known in after.skills.items() if known.state is ACTIVE}
    assert lying(library) == used
    assert [p.name for p in library.folder.path.rglob(".SKILL.md.*")] == []


def test_an_edit_by_hand_after_a_kill_is_kept(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.add([skill("one")], ACTIVE, "person")
    base = library.sync().revision
    library._records.change(base, "edit one", "person", [SkillChange("one", ACTIVE, text("one", body="Ours."))])
    file_of(library, "one").write_bytes(text("one", body="Theirs."))
    assert library.sync().skills["one"].skill.body == "Theirs."
    assert [v.made_by for v in library._records.history("one")] == ["person", "person", "hand"]
    assert library.sync().revision.number == base.number + 2


def test_two_homes_of_one_journal_follow_each_other(config: Config, library: Library, tmp_path: Path) -> None:
    """The folder follows the journal, and not the other way round, where it was not touched."""
    second = Library(config, Journal(library._records._store))
    second.folder = SkillFolder(tmp_path / "second")
    library.add([skill("one")], ACTIVE, "person")
    second.sync()
    assert lying(second) == lying(library)
    library.edit("one", text("one", body="Else."))
    second.sync()
    assert lying(second) == lying(library)
    assert library.sync().revision.number == 2


def test_a_home_that_cannot_be_locked_says_so(library: Library, config: Config) -> None:
    (config.home / "skills.lock").mkdir()
    with pytest.raises(SkillError, match="cannot be changed"):
        library.sync()


def test_a_file_that_cannot_be_read_is_named_when_its_skill_is_to_evolve(library: Library) -> None:
    view = library.add([skill("one")], ACTIVE, "person")
    file_of(library, "one").write_text("no skill")
    with pytest.raises(SkillError, match=r"one/SKILL\.md.*mend or delete"):
        library.evolve(view, "retire one", [SkillChange("one", SkillState.RETIRED)], "evolver")
