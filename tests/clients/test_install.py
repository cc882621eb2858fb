"""The installer of the real clients: what could not be installed makes it fail, after all were tried."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients import install

LACKING = {"aider", "codex"}


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache folder, and an installer to which two clients are out of reach; what it was asked for."""
    asked: list[str] = []

    def installs(name: str) -> None:
        asked.append(name)
        if name in LACKING:
            raise subprocess.CalledProcessError(1, ["pip", "install", name])

    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    monkeypatch.delenv(install.OPTIONAL, raising=False)
    monkeypatch.setattr(install, "install", installs)
    return asked


def test_what_is_missing_is_named_and_fails_after_all_were_tried(tried: list[str]) -> None:
    with pytest.raises(SystemExit, match="not installed: codex, aider;"):
        install.main([])
    assert sorted(tried) == sorted(install.PACKAGES)


def test_a_machine_that_cannot_have_them_says_so(
    tried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(install.OPTIONAL, "1")
    install.main(["codex"])
    assert tried == ["node", "codex"]
    assert "not installed: codex; their tests will be skipped" in capsys.readouterr().out


def test_where_all_is_there_nothing_fails(tried: list[str]) -> None:
    install.main(["sdks"])
    assert tried == ["node", "sdks"]
