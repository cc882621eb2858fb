"""Edits of the library's files at the very moment turnwise writes there: neither side's text is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.skills.texts import text
from turnwise import files
from turnwise.config import Config
from turnwise.journal import Journal
from turnwise.journal.skills.records import SkillChange
from turnwise.messages import saying
from turnwise.skills.library import Library, LibraryView
from turnwise.skills.serving import ServingSkills
from turnwise.skills.skill_file import parse
from turnwise.types import SkillState

OLD, OURS, THEIRS, LATER = (text(body=f"1. The {which} text.") for which in ("old", "written", "edited", "later"))


@pytest.fixture
def library(config: Config, journal: Journal) -> Library:
    found = Library(config, journal)
    found.add([parse(OLD, "old")], SkillState.ACTIVE, "person")
    return found


@pytest.fixture
def file(config: Config, library: Library) -> Path:
    return config.skills_dir / "tidy-dates" / "SKILL.md"


@pytest.fixture
def at_the_last_moment(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Has something done once, when what turnwise writes is on disk and has not its name yet."""
    waiting: list[Callable[[], None]] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        if waiting and list(file.parent.glob(".SKILL.md.*")):
            waiting.pop()()

    monkeypatch.setattr(files.os, "fsync", fsync)
    yield waiting.append
    assert not waiting, "nothing was written, so the test shows nothing"


def texts(journal: Journal) -> list[bytes]:
    return [version.content for version in journal.skills.history("tidy-dates")]


def in_place(file: Path, content: bytes) -> Callable[[], None]:
    return lambda: file.write_bytes(content) and None  # type: ignore[func-returns-value]


def as_a_new_file(file: Path, content: bytes) -> Callable[[], None]:
    def save() -> None:
        beside = file.with_name("edited~")
        beside.write_bytes(content)
        beside.replace(file)

    return save


def evolve(library: Library) -> None:
    change = SkillChange("tidy-dates", SkillState.ACTIVE, OURS)
    library.evolve(library.sync(), "ours", [change], "evolver")


@pytest.mark.parametrize("save", [in_place, as_a_new_file])
def test_an_edit_while_turnwise_writes_a_new_text_counts_last_and_both_are_kept(
    library: Library,
    journal: Journal,
    file: Path,
    save: Callable[..., Callable[[], None]],
    at_the_last_moment: Callable,
) -> None:
    at_the_last_moment(save(file, THEIRS))
    evolve(library)
    assert file.read_bytes() == THEIRS
    assert library.sync().skills["tidy-dates"].skill.content == THEIRS
    assert texts(journal) == [OLD, OURS, THEIRS] and file.read_bytes() == THEIRS


def test_of_two_edits_at_once_the_newer_one_lies_there(
    library: Library, journal: Journal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is saved when the first has been found and is put back."""
    swap, edits = files.exchange, [THEIRS, LATER]

    def exchange(one: Path, other: Path) -> bool:
        if edits:
            as_a_new_file(file, edits.pop(0))()
        return swap(one, other)

    monkeypatch.setattr("turnwise.skills.folder.exchange", exchange)
    evolve(library)
    library.sync()
    assert file.read_bytes() == LATER and texts(journal)[-2:] == [OURS, LATER]


@pytest.mark.parametrize("save", [in_place, as_a_new_file])
def test_an_edit_while_a_skill_is_retired_brings_it_back(
    library: Library,
    journal: Journal,
    file: Path,
    save: Callable[..., Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, edits = library.folder.take_out, [save(file, THEIRS)]

    def take_out(name: str, lying: bytes) -> None:
        edits.pop()()
        look(name, lying)

    monkeypatch.setattr(library.folder, "take_out", take_out)
    library.move("tidy-dates", SkillState.RETIRED, "retire")
    assert file.read_bytes() == THEIRS
    known = library.sync().skills["tidy-dates"]
    assert (known.skill.content, known.state) == (THEIRS, SkillState.ACTIVE)


def test_a_file_that_somebody_makes_while_turnwise_adds_the_skill_stays(
    config: Config,
    journal: Journal,
    library: Library,
    at_the_last_moment: Callable,
) -> None:
    library.move("tidy-dates", SkillState.RETIRED, "retire")
    file = config.skills_dir / "tidy-dates" / "SKILL.md"
    at_the_last_moment(in_place(file, THEIRS))
    library.move("tidy-dates", SkillState.ACTIVE, "enable")
    assert library.sync().skills["tidy-dates"].skill.content == file.read_bytes() == THEIRS


def test_a_file_that_is_deleted_while_turnwise_writes_stays_deleted(
    library: Library,
    journal: Journal,
    file: Path,
    at_the_last_moment: Callable,
) -> None:
    at_the_last_moment(file.unlink)
    evolve(library)
    assert library.sync().skills["tidy-dates"].state is SkillState.RETIRED
    assert texts(journal) == [OLD, OURS] and not file.exists()


def test_a_link_put_there_at_that_moment_is_not_followed(
    library: Library,
    file: Path,
    tmp_path: Path,
    at_the_last_moment: Callable,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")

    def link() -> None:
        file.unlink()
        file.symlink_to(elsewhere)

    at_the_last_moment(link)
    evolve(library)
    assert file.is_symlink() and elsewhere.read_bytes() == b"mine" and "tidy-dates" in library.sync().faults


def test_where_files_cannot_be_exchanged_a_text_is_written_all_the_same(
    library: Library, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_EXCHANGE", {})
    evolve(library)
    assert file.read_bytes() == OURS and not list(file.parent.glob(".SKILL.md.*"))


def test_a_file_system_without_second_names_takes_a_new_skill(
    config: Config, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on exFAT, which cannot be mounted here: the call for a second name is made to fail as it does there."""

    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    library = Library(config, journal)
    library.add([parse(OLD, "old")], SkillState.ACTIVE, "person")
    file = config.skills_dir / "tidy-dates" / "SKILL.md"
    assert parse(file.read_bytes(), "new").body == parse(OLD, "old").body


@pytest.mark.parametrize(("content", "back"), [(THEIRS, True), (OLD, False)])
def test_a_file_that_a_killed_writer_had_moved_aside_goes_back_if_it_is_somebodys(
    library: Library, file: Path, journal: Journal, content: bytes, back: bool
) -> None:
    aside = file.with_name(f".SKILL.md.{'a' * 32}")
    file.rename(aside)
    aside.write_bytes(content)
    library.sync()
    assert not aside.exists() and file.exists() == back
    if back:
        assert texts(journal)[-1] == THEIRS


def test_leftovers_are_looked_for_in_no_link(library: Library, file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".SKILL.md.abcdefgh").write_text("mine")
    (file.parent.parent / "linked").symlink_to(elsewhere)
    library.sync()
    assert (elsewhere / ".SKILL.md.abcdefgh").read_text() == "mine"


def test_what_serves_sees_an_edit_that_came_while_it_read_the_files(
    config: Config, journal: Journal, library: Library, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(b"")  # as a writer leaves it for a moment
    reading, still_to_come = Library.sync, [THEIRS]

    def sync(self: Library) -> LibraryView:
        view = reading(self)
        if still_to_come:
            file.write_bytes(still_to_come.pop())
        return view

    monkeypatch.setattr(Library, "sync", sync)
    skills = ServingSkills(config, journal)
    for _ in range(3):
        skills.take_up()
    assert "The edited text" in skills.chosen([saying("user", "use the skill tidy-dates")]).whole
