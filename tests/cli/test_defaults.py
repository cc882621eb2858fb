"""What a command does that is told nothing: the demo plays the model that fits the machine, and both judges are held
beside each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from tests.judges.test_model import Endpoint, good
from tests.support.servers import running
from turnwise.cli.main import app
from turnwise.demo import play
from turnwise.errors import TurnwiseError


def test_the_demo_plays_the_model_that_fits_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[play.DemoOptions] = []

    def run_demo(options: play.DemoOptions, _: object) -> None:
        """Stands in for the demo, which takes minutes."""
        asked.append(options)
        raise TurnwiseError("played")

    monkeypatch.setattr(play, "run_demo", run_demo)
    CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert [options.model for options in asked] == ["auto"]


def test_both_judges_are_measured_the_free_one_and_the_model(tmp_path: Path) -> None:
    rows = [
        {"task": "t", "action": "a", "next_state": [{"role": "user", "content": said}], "label": label}
        for said, label in (("perfect, thanks", 1), ("No, that's wrong, you forgot the units!", -1))
    ]
    file = tmp_path / "labelled.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    model, served = Endpoint(good), FastAPI()
    served.add_api_route("/v1/chat/completions", model.reply, methods=["POST"])
    with running(served) as url:
        # an engine of another kind gives the free judge no states, so that none is started for it
        engine = '[engine]\nkind = "vllm"\nurl = "http://127.0.0.1:9"\n'
        (tmp_path / "config.toml").write_text(f'{engine}[judge]\nurl = "{url}/v1"\nvotes = 1\n', encoding="utf-8")
        done = CliRunner().invoke(app, ["judge", "eval", str(file), "--home", str(tmp_path), "--json"])
    reports = {report["judge"]: report for report in json.loads(done.output)}
    assert list(reports) == ["signals", "model"]
    assert reports["signals"]["decided"] == 2 and reports["signals"]["tokens"] == 0
    assert reports["model"]["confusion"]["1"]["-1"] == 1 and reports["model"]["tokens"] == 14 * len(model.bodies)
