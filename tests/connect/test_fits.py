"""`doctor` says of each connected client whether its prompt fits, and which of its profiles does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.servers import running
from turnwise.agents import fits
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.connect.command import connect_client
from turnwise.doctor.checks import examine


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


def connected_home(tmp_path: Path, **settings: object) -> Path:
    """A home whose OpenClaw was connected, with an engine that is set afterwards."""
    home = tmp_path / "home"
    if not (home / "config.toml").exists():
        config = load_config(overrides={"home": home, "server.port": 9})
        connect_client(config, "openclaw", tmp_path / "openclaw.json", None, None, lambda _: True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (home / "config.toml").write_text("\n".join(["[train]", "enabled = false", "[engine]", *lines]))
    return home


def said_of_clients(home: Path) -> tuple[str, str]:
    [finding] = [f for f in examine(None, home) if f.check == "clients"]
    return finding.level, finding.text


def test_doctor_judges_by_the_least_context_of_the_replicas(tmp_path: Path, tokenizer: Tokenizer) -> None:
    stubs = [StubEngine(tokenizer, lambda _: "", max_model_len=n) for n in (100_000, 8_192)]
    with running(stubs[0].app()) as large, running(stubs[1].app()) as small:
        level, text = said_of_clients(connected_home(tmp_path, urls=[large, small]))
        assert (level, "its small profile fits into 8,192 tokens" in text) == ("ok", True)
        level, text = said_of_clients(connected_home(tmp_path, url=large))
        assert (level, "of 100,000 tokens" in text) == ("ok", True)


def test_doctor_does_not_judge_by_a_context_that_nobody_said(tmp_path: Path) -> None:
    for kind in ("upstream", "vllm"):
        level, text = said_of_clients(connected_home(tmp_path, kind=kind, url="http://127.0.0.1:9"))
        assert (level, "is not known" in text) == ("ok", True)
    home = connected_home(tmp_path, kind="upstream", url="http://127.0.0.1:9", max_model_len=4096)
    level, text = said_of_clients(home)
    assert (level, "the context is 4,096" in text) == ("note", True)
