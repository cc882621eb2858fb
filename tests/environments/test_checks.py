"""Checks look at what an agent left: wrong answers of the right form, files made to mislead, and bombs."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sqlite3
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.environments.test_terminal import HOLDS
from turnwise.environments.terminal.checks import failed, read_checks
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder


def reason(folder: Path, **check: Any) -> str | None:
    return failed(GuestFolder(folder), read_checks([check])[0], Sandboxes())


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_has_the_files_and_no_others(tmp_path: Path, mode: str) -> None:
    (tmp_path / "a").write_bytes(tar_of({"d/x.txt": b"1\n"}, mode))
    assert reason(tmp_path, kind="tar", way="a", **{"is": {"d/x.txt": "1\n"}}) is None
    assert reason(tmp_path, kind="tar", way="a", **{"is": {"d/x.txt": "2\n"}})
    assert reason(tmp_path, kind="tar", way="a", **{"is": {"d/x.txt": "1\n", "y": ""}})
    assert reason(tmp_path, kind="tar", way="a", **{"is": {}})


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0nothing")
    for kind in ("tar", "zip"):
        assert "no such archive" in str(reason(tmp_path, kind=kind, way="a", **{"is": {}}))
    assert "not compressed" in str(reason(tmp_path, kind="gzip", way="a", **{"is": "x"}))
    assert "no JSON" in str(reason(tmp_path, kind="json", way="a", **{"is": 1}))
    assert "not a database" in str(reason(tmp_path, kind="sqlite", way="a", asks="SELECT * FROM t", **{"is": [[1]]}))


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    big = b"\0" * (8 << 20)
    (tmp_path / "tar").write_bytes(gzip.compress(tar_of({"x": big})))
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", big)
    (tmp_path / "gzip").write_bytes(gzip.compress(big))
    assert "too large" in str(reason(tmp_path, kind="tar", way="tar", **{"is": {}}))
    assert "too large" in str(reason(tmp_path, kind="zip", way="zip", **{"is": {}}))
    assert reason(tmp_path, kind="gzip", way="gzip", **{"is": "x"}) == "gzip is not as expected"
    (tmp_path / "json").write_text("[" * 100_000)
    assert "no JSON" in str(reason(tmp_path, kind="json", way="json", **{"is": 1}))


def test_a_number_is_no_truth(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps({"on": 1, "b": [2]}))
    assert reason(tmp_path, kind="json", way="a", **{"is": {"b": [2], "on": 1}}) is None
    assert reason(tmp_path, kind="json", way="a", **{"is": {"b": [2], "on": True}})


def test_a_database_that_never_ends_answering_is_given_up(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute(
            "CREATE VIEW people AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
        )
    database.close()
    said = reason(tmp_path, kind="sqlite", way="a.db", asks="SELECT * FROM people", **{"is": [[1]]})
    assert said is not None and "interrupted" in said


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "box"
    outside.write_text("x\n")
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    assert reason(folder, kind="file", way="a", **{"is": "x\n"})
    assert reason(folder, kind="mode", way="a", **{"is": "644"})
    assert reason(folder, kind="gone", way="a"), "a link that leads nowhere is still there"
    assert reason(folder, kind="link", way="a", **{"is": str(outside)}) is None
    (folder / "a").unlink()
    assert reason(folder, kind="gone", way="a") is None
    assert "no a" in str(reason(folder, kind="link", way="a", **{"is": "x"}))


@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
def test_git_reads_a_copy_and_runs_nothing_that_was_left(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *words], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "main", ".")
    git("commit", "-q", "--allow-empty", "-m", "first")
    trap = tmp_path / "sprung"
    (tmp_path / ".git" / "config").write_text(
        f'[core]\n\tfsmonitor = "touch {trap}"\n\tpager = "touch {trap}"\n[alias]\n\tlog = "!touch {trap}"\n'
    )
    asked = {"kind": "git", "way": ".git", "asks": "log --format=%s main"}
    assert reason(tmp_path, **asked, **{"is": "first\n"}) is None
    assert reason(tmp_path, **asked, **{"is": "second\n"}) and not trap.exists()
    git("pack-refs", "--all")
    assert reason(tmp_path, **asked, **{"is": "first\n"}) is None
    (tmp_path / ".git" / "HEAD").unlink()
    assert "there is no" in str(reason(tmp_path, **asked, **{"is": "first\n"}))


@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
@pytest.mark.parametrize("way", ["refs/heads", "objects/pack"])
def test_a_repository_with_a_file_for_a_folder_is_not_as_expected(tmp_path: Path, way: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    place = tmp_path / ".git" / way
    for entry in place.iterdir():
        entry.unlink()
    place.rmdir()
    place.write_text("x")
    said = reason(tmp_path, kind="git", way=".git", asks="log", **{"is": "x"})
    assert said == f".git/{way} is no folder"


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(tmp_path: Path) -> None:
    """Its padding stands before the first member, where no size of a member is seen."""
    header = tarfile.TarInfo("x").tobuf(tarfile.PAX_FORMAT)
    (tmp_path / "a").write_bytes(lzma.compress(b"0" * (64 << 20) + header))
    assert reason(tmp_path, kind="tar", way="a", **{"is": {"x": ""}}) == "a: the archive is too large"
    with zipfile.ZipFile(tmp_path / "b", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x", b"0" * (8 << 20))
    assert "another way" in str(reason(tmp_path, kind="zip", way="b", **{"is": {"x": ""}}))
