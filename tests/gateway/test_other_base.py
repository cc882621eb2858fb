"""A version of another base model is neither served nor written out for use elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from tests.support.versions import publish
from tests.training.tiny import make_model
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.engines.base import Engine
from turnwise.errors import AdapterError
from turnwise.gateway.errors import ApiError
from turnwise.gateway.versions import ServingVersions
from turnwise.journal import Journal
from turnwise.models.identity import BASE, base_digest


class LoadingEngine:
    """Takes every adapter that it is given."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    async def load_adapter(self, name: str, path: Path) -> None:
        self.loaded.append(name)


def test_only_versions_of_this_base_model_serve_and_go_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(tmp_path / "model")
    config = load_config(overrides={"home": tmp_path / "home", "model.path": str(model)})
    journal = Journal.open(config)
    digests: list[Any] = [base_digest(model), "0" * 64, None]
    for digest in digests:
        folder = config.versions_dir / f"v{publish(journal)}"
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(json.dumps({BASE: digest} if digest else {}))
    engine = LoadingEngine()
    versions = ServingVersions(journal, cast(Engine, engine))
    asyncio.run(versions.ensure_loaded(1))
    with pytest.raises(ApiError, match="version 2 was trained on another base model"):
        asyncio.run(versions.ensure_loaded(2))
    asyncio.run(versions.ensure_loaded(3))  # of before the digest was kept
    assert engine.loaded == ["v1", "v3"]
    journal.close()
    monkeypatch.chdir(config.home)  # the versions of this test are named by where they stand in it
    words = ["versions", "export", "2", str(tmp_path / "out"), "--set", f"model.path={model}"]
    done = CliRunner().invoke(app, [*words, "--home", str(config.home)])
    assert isinstance(done.exception, AdapterError) and "another base model" in str(done.exception)
    assert not (tmp_path / "out").exists()
