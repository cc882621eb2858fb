"""`doctor` says of each connected client whether its prompt fits, and which of its profiles does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.servers import running
from turnwise.agents import fits
from turnwise.agents.known import AGENTS
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.connect.command import connect_client
from turnwise.doctor.checks import examine


def measured(monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    """OpenClaw's first prompt as if it had been measured so."""
    monkeypatch.setitem(AGENTS, "openclaw", replace(AGENTS["openclaw"], first_prompt=sizes))


@pytest.mark.parametrize(
    ("context", "fine", "words"),
    [
        (4096, False, "needs 5,512 tokens even with its small profile"),
        (8192, True, "its small profile fits into 8,192 tokens, its default one needs 15,512"),
        (32768, True, "its prompt fits (15,000 of 32,768 tokens)"),
    ],
)
def test_the_profile_that_fits_is_named(monkeypatch: pytest.MonkeyPatch, context: int, fine: bool, words: str) -> None:
    measured(monkeypatch, {"small": 5000, "default": 15000})
    good, said = fits.advice("openclaw", context)
    assert good is fine
    assert words in said


def test_doctor_looks_at_connected_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, {"small": 5000})
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


def said_by_connect(tmp_path: Path, client: str, dry: bool = False, **settings: object) -> tuple[str, str]:
    """What `connect` asks with, and what it says at the end."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    config = load_config(overrides={"home": tmp_path / "home", "server.port": 9, "train.enabled": False} | given)
    asked: list[str] = []
    ask = None if dry else lambda text: not asked.append(text)
    said = connect_client(config, client, tmp_path / client, None, None, ask)
    return "".join(asked), said


@pytest.mark.parametrize(
    ("client", "settings", "cure"),
    [
        ("opencode", {}, "set engine.max_model_len = 8192 and start `turnwise serve` again"),
        ("codex", {}, "smollm2-135m-instruct takes 8,192 at most, so set model.path"),
        ("claude-code", {"engine__max_model_len": 65536}, "the context is 8,192: smollm2"),
        ("codex", {"model__path": "MODEL"}, "set engine.max_model_len = 10000 and"),
        ("codex", {"model__path": "somebody/a-model"}, "set engine.max_model_len = 16384 and"),
        (
            "qwen-code",
            {"engine__kind": "upstream", "engine__url": "http://127.0.0.1:9", "engine__max_model_len": 4096},
            "engine.max_model_len = 32768",
        ),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_connect_says_at_once_that_a_client_does_not_fit(
    tmp_path: Path, client: str, settings: dict[str, object], cure: str, dry: bool
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"max_position_embeddings": 10_000}))
    settings = {key: str(tmp_path / "model") if value == "MODEL" else value for key, value in settings.items()}
    asked, said = said_by_connect(tmp_path, client, dry, **settings)
    assert cure in (said if dry else asked), said + asked
    if not dry:
        assert "but its prompt does not fit yet" in said and "try:" not in said
        _, again = said_by_connect(tmp_path, client, **settings)
        assert "needs no change" in again and cure in again


@pytest.mark.parametrize(("kind", "option"), [("vllm", "--max-model-len"), ("sglang", "--context-length")])
def test_the_cure_of_an_engine_elsewhere_is_its_own_option(
    tmp_path: Path, tokenizer: Tokenizer, kind: str, option: str
) -> None:
    config = load_config(overrides={"home": tmp_path, "engine.kind": kind, "engine.url": "http://x"})
    assert f"start {kind} with {option} 16384" in fits.advice("codex", 4096, config)[1]
    assert "whoever runs that server" in fits.advice("codex", 4096)[1]


def test_connect_names_the_profile_that_fits(tmp_path: Path) -> None:
    asked, said = said_by_connect(tmp_path, "openclaw", engine__max_model_len=8192)
    assert "note: its small profile fits into 8,192 tokens, its minimal one needs 10,479" in asked
    assert "try: openclaw" in said
    for client in ("aider", "mini-swe-agent"):
        asked, said = said_by_connect(tmp_path, client)
        assert "note:" not in asked + said and "try:" in said


def test_a_dry_run_says_how_it_is_done_and_tried(tmp_path: Path) -> None:
    _, said = said_by_connect(tmp_path, "aider", dry=True)
    assert "+openai-api-base" in said and not (tmp_path / "aider").exists()
    assert said.endswith(
        f"nothing was written to {tmp_path / 'aider'}. `turnwise connect aider` asks, and writes this; then try: "
        'aider --message "Say hello"'
    )
