"""`turnwise versions promote`: a version serves by a person's decision, and why stays with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.training.homes import Bench, feed
from tests.training.homes import settings as tiny_settings
from tests.training.tiny import make_model
from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.journal import Journal
from turnwise.types import TurnState
from turnwise.versions.forgetting import forget_session

Run = Callable[..., Result]
WHY = "its answers are shorter"


def test_a_version_that_was_left_serves_again_and_the_reason_is_kept(two: Journal, run: Run) -> None:
    assert run("versions", "rollback", "1").exit_code == 0
    done = run("versions", "promote", "2", "--reason", WHY)
    assert done.exit_code == 0 and "version 2 serves from now on, in place of version 1" in done.stdout
    assert two.versions.latest() == 2
    shown = json.loads(run("versions", "show", "2").stdout)["promoted"]
    assert [(one["before"], one["reason"]) for one in shown] == [(1, WHY)]
    assert WHY in run("versions", "list").stdout
    listed = json.loads(run("versions", "list", "--json").stdout)
    assert [version["promoted"] for version in listed] == [None, WHY]


def test_what_cannot_serve_is_refused_and_what_serves_goes_on(two: Journal, run: Run, settings: Config) -> None:
    assert run("versions", "rollback", "1").exit_code == 0
    weights = settings.versions_dir / "v2" / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    (settings.versions_dir / "v1" / "meta.json").write_text(json.dumps({"base_sha256": "0" * 64}), encoding="utf-8")
    for number, reason, said in (
        ("2", WHY, "version 2 cannot serve"),
        ("7", WHY, "there is no published version 7"),
        ("0", WHY, "rollback 0"),
        ("2", "  ", "say why"),
    ):
        done = run("versions", "promote", number, "--reason", reason)
        assert done.exit_code == 1 and said in str(done.exception)
    assert "the one before it is version 1" in str(run("versions", "promote", "2", "--reason", WHY).exception)
    weights.write_bytes(whole)
    two.versions.serve(2)
    assert "another base model" in str(run("versions", "promote", "1", "--reason", WHY).exception)
    assert "serves already" in str(run("versions", "promote", "2", "--reason", WHY).exception)
    assert two.versions.promotions() == []


@pytest.fixture
def refused(tmp_path: Path) -> Bench:
    """A home whose gate refused its first batch."""
    bench = Bench(tiny_settings(tmp_path / "tiny-home", make_model(tmp_path / "tiny"), **{"gate.max_step_kl": 1e-9}))
    feed(bench.journal, range(91, 92))
    with bench.journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET state = 'excluded', exclusion = 'its session is set aside for the gate'")
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert bench.turns() == {TurnState.READY: 4, TurnState.EXCLUDED: 1}
    return bench


def promote_held(bench: Bench) -> Result:
    config = f'[model]\npath = "{bench.config.model.path}"\n'
    (bench.config.home / "config.toml").write_text(config, encoding="utf-8")
    return CliRunner().invoke(app, ["versions", "promote", "held", "--reason", WHY, "--home", str(bench.config.home)])


def test_what_the_gate_held_serves_by_a_persons_decision_and_its_samples_are_learned(refused: Bench) -> None:
    listed = CliRunner().invoke(app, ["versions", "list", "--home", str(refused.config.home)])
    assert "held" in listed.stdout and "refused:" in listed.stdout
    done = promote_held(refused)
    assert done.exit_code == 0, done.output
    assert "version 1 serves from now on, in place of the base model" in done.stdout
    version = refused.journal.versions.get(1)
    assert version is not None and version.turn_ids == [f"turn-{n}" for n in range(4)]
    assert version.gate["accepted"] is False
    assert refused.turns() == {TurnState.TRAINED: 4, TurnState.EXCLUDED: 1}
    assert refused.journal.versions.promotions()[0]["reason"] == WHY
    assert any(weight.abs().sum() > 0 for name, weight in refused.weights(1).items() if "lora_B" in name)
    assert "holds no version" in str(promote_held(refused).exception)
    feed(refused.journal, range(4, 8))
    assert refused.claim_and_work(), "the next update goes on from it"
    refused.journal.close()


def test_what_the_gate_held_goes_with_any_session_that_is_forgotten(refused: Bench) -> None:
    assert (refused.config.versions_dir / "held").is_dir()
    forget_session(refused.config, refused.journal, "session-2")
    assert "holds no version" in str(promote_held(refused).exception)
    refused.journal.close()
