"""Skills from elsewhere: what an archive may hold, and what it may not; nothing of it is ever unpacked."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.skills.texts import text
from turnwise.errors import SkillError
from turnwise.skills.packs import MOST_UNPACKED, read_pack, read_skill, write_pack
from turnwise.skills.skill_file import parse


def zipped(path: Path, members: dict[str, bytes], mode: int = 0o100644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo("x")
            info.filename = name  # as given: ZipInfo itself would cut it at a NUL
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def tarred(path: Path, members: dict[str, bytes], kind: bytes = tarfile.REGTYPE, how: str = "w:gz") -> Path:
    with tarfile.open(path, how) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return path


TWO = {"one/SKILL.md": text("one"), "deep/er/two/SKILL.md": text("two"), "one/scripts/run.sh": b"rm", "README": b""}


@pytest.mark.parametrize("how", ["zip", "tar.gz", "tar", "folder"])
def test_a_pack_is_read(tmp_path: Path, how: str) -> None:
    path = tmp_path / f"pack.{how}"
    if how == "zip":
        zipped(path, TWO)
    elif how == "folder":
        for name in ("one", "two"):
            (path / name).mkdir(parents=True)
            (path / name / "SKILL.md").write_bytes(text(name))
    else:
        tarred(path, TWO, how="w:gz" if how == "tar.gz" else "w")
    assert [skill.name for skill in read_pack(path)] == ["one", "two"]


@pytest.mark.parametrize(
    "name", ["../x/SKILL.md", "/x/SKILL.md", "a/../../SKILL.md", "..\\x\\SKILL.md", "C:/x/SKILL.md"]
)
@pytest.mark.parametrize("make", [zipped, tarred])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, name: str, make: object) -> None:
    path = make(tmp_path / "pack", {"one/SKILL.md": text("one"), name: text("two")})  # type: ignore[operator]
    with pytest.raises(SkillError, match="leads out of its folder"):
        read_pack(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(SkillError, match="is a link or a device"):
        read_pack(tarred(tmp_path / "p", {"one/SKILL.md": b""}, kind))
    with pytest.raises(SkillError, match="is a link or a device"):
        read_pack(zipped(tmp_path / "z", {"one/SKILL.md": b"/etc/passwd"}, 0o120777))


def test_what_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match="is larger than 16 KB"):
        read_pack(zipped(tmp_path / "z", {"one/SKILL.md": b"x" * (1 << 20)}))
    bomb = tarred(tmp_path / "t", {"a": b"\0" * (MOST_UNPACKED + 1), "one/SKILL.md": text("one")})
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(SkillError, match="unpacks to more than 64 MB"):
        read_pack(bomb)


def test_what_is_no_pack_is_said(tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"PK\x03\x04 noise" * 100)
    for path, said in (
        (file, "cannot be read as a .zip"),
        (tmp_path / "none", "there is no file"),
        (zipped(tmp_path / "empty", {"README": b"x"}), "there is no SKILL.md in"),
        (zipped(tmp_path / "twice", {"a/SKILL.md": text("one"), "b/SKILL.md": text("one")}), "is in .* already"),
        (zipped(tmp_path / "bad", {"a/SKILL.md": text("../one")}), "a/SKILL.md, line 2: .* cannot be a skill's name"),
    ):
        with pytest.raises(SkillError, match=said):
            read_pack(path)
    with pytest.raises(SkillError, match="there is no file"):
        read_skill(tmp_path / "none")


def test_what_is_exported_is_imported_byte_for_byte(tmp_path: Path) -> None:
    skills = [parse(text("one").replace(b"\n", b"\r\n"), "f"), parse(text("two"), "f")]
    write_pack(tmp_path / "pack.zip", skills)
    assert read_pack(tmp_path / "pack.zip") == skills
    with pytest.raises(SkillError, match="exists"):
        write_pack(tmp_path / "pack.zip", skills)
    with pytest.raises(SkillError, match=r"must end with \.zip"):
        write_pack(tmp_path / "pack", skills)
