"""`doctor` says of each connected client whether its prompt fits, and which of its profiles does."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import load_config
from turnwise.connect import fits
from turnwise.connect.command import connect_client
from turnwise.doctor import examine


@pytest.mark.parametrize(
    ("context", "fine", "words"),
    [
        (4096, False, "needs 5,512 tokens even with its small profile"),
        (8192, True, "its small profile fits into 8,192 tokens, its default one needs 15,512"),
        (32768, True, "its prompt fits (15,000 of 32,768 tokens)"),
    ],
)
def test_the_profile_that_fits_is_named(monkeypatch: pytest.MonkeyPatch, context: int, fine: bool, words: str) -> None:
    monkeypatch.setitem(fits.FIRST_PROMPT, "openclaw", {"small": 5000, "default": 15000})
    good, said = fits.advice("openclaw", context)
    assert good is fine
    assert words in said


def test_doctor_looks_at_connected_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fits.FIRST_PROMPT, "openclaw", {"small": 5000})
    home = tmp_path / "home"
    config = load_config(overrides={"home": home, "server.port": 9})
    connect_client(config, "openclaw", tmp_path / "openclaw.json", None, None, lambda _: True)
    connect_client(config, "aider", tmp_path / "aider.yml", None, None, lambda _: True)
    found = {f.text: f.level for f in examine(None, home) if f.check == "clients"}
    assert found["aider is connected"] == "ok"
    [long] = [text for text, level in found.items() if level == "note"]
    assert "engine.max_model_len" in long
