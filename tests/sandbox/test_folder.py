"""A folder that a hostile agent filled: what is read and written there stays there, and nothing is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnwise.errors import FolderFault
from turnwise.sandbox.folder import MOST_PARTS, GuestFolder, delete_folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "box").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "box"


@pytest.fixture
def folder(inside: Path) -> GuestFolder:
    return GuestFolder(inside)


def test_what_is_written_is_read_back(folder: GuestFolder, inside: Path) -> None:
    folder.write("day01/notes/a.txt", b"one, which is longer")
    folder.write("day01/notes/a.txt", b"two")
    assert folder.read("./day01//notes/a.txt") == b"two"
    assert folder.names("day01/notes") == ["a.txt"] and folder.has("day01/notes/a.txt")
    assert (inside / "day01/notes/a.txt").read_bytes() == b"two"


@pytest.mark.parametrize("way", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "", ".", "a\0b", "x" * 600,
                                 "/".join("a" * (MOST_PARTS + 1))])  # fmt: skip
def test_a_way_that_leads_elsewhere_is_refused(folder: GuestFolder, inside: Path, way: str) -> None:
    with pytest.raises(FolderFault):
        folder.read(way)
    with pytest.raises(FolderFault):
        folder.write(way, b"mine")
    assert (inside.parent / "secret.txt").read_text() == "secret"


def test_no_link_is_followed(folder: GuestFolder, inside: Path) -> None:
    (inside / "file").symlink_to(inside.parent / "secret.txt")
    (inside / "up").symlink_to(inside.parent)
    (inside / "self").symlink_to("self")
    for way in ("file", "up/secret.txt", "self"):
        with pytest.raises(FolderFault):
            folder.read(way)
        with pytest.raises(FolderFault):
            folder.write(way, b"mine")
        assert not folder.has(way)
    assert folder.names() == [] and (inside.parent / "secret.txt").read_text() == "secret"
    with pytest.raises(FolderFault):
        folder.names("up")


def test_a_folder_that_is_a_link_itself_is_not_entered(inside: Path) -> None:
    (inside.parent / "link").symlink_to(inside)
    with pytest.raises(FolderFault):
        GuestFolder(inside.parent / "link").read("a")


def test_a_pipe_gives_nothing_and_keeps_nobody_waiting(folder: GuestFolder, inside: Path) -> None:
    os.mkfifo(inside / "pipe.json")
    (inside / "sub.json").mkdir()
    for way in ("pipe.json", "sub.json"):
        with pytest.raises(FolderFault):
            folder.read(way)
        with pytest.raises(FolderFault):
            folder.write(way, b"mine")
    assert folder.names() == []


def test_a_file_of_a_gigabyte_is_refused_without_being_read(folder: GuestFolder, inside: Path) -> None:
    with (inside / "big.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(FolderFault, match="larger than"):
        folder.read("big.json")
    weight, entries = folder.weigh(100)
    assert entries == 1 and weight < 1 << 20, "what takes no room on the disk is not counted"


def test_too_many_files_and_too_deep_folders_are_counted_as_full(folder: GuestFolder, inside: Path) -> None:
    for number in range(30):
        (inside / f"{number}.txt").write_text("a")
    assert folder.weigh(20)[1] == 20
    assert folder.weigh(100)[1] == 30
    deep = "/".join(["d"] * 100)
    (inside / deep).mkdir(parents=True)
    assert folder.weigh(10_000)[1] == 10_000


def test_folders_in_each_other_without_end_are_deleted(inside: Path) -> None:
    at = os.open(inside, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert GuestFolder(inside).weigh(50)[1] == 50
    delete_folder(inside)
    assert not inside.exists() and (inside.parent / "secret.txt").exists()


def test_deleting_a_link_leaves_what_it_points_to(inside: Path) -> None:
    (inside / "link").symlink_to(inside.parent)
    delete_folder(inside / "link")
    assert (inside.parent / "secret.txt").exists() and not (inside / "link").is_symlink()


def test_a_name_that_no_file_can_have_is_refused(folder: GuestFolder) -> None:
    with pytest.raises(FolderFault):
        folder.write("a\ud800.txt", b"mine")
    with pytest.raises(FolderFault):
        folder.write("b" * 300, b"mine")
