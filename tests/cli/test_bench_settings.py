"""A bench measures what it is told: a setting that it does not read is refused, and none is passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.bench import ENGINE, MODEL, RETRIEVAL, SANDBOXES
from turnwise.cli.main import app
from turnwise.cli.options import read_config_of
from turnwise.config import Config
from turnwise.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "odd", "read"),
    [
        ("personalization", "train.lr=1e-3", "model.path"),
        ("soak", "gate.enabled=false", "model.path"),
        ("mixed", "train.min_batch=2", "model.path"),
        ("metaclaw data", "train.lr=1e-3", "model.path, engine.max_model_len"),
        ("metaclaw data --scripted", "model.path=m", "no setting"),
        ("metaclaw data --url http://127.0.0.1:9", "model.path=m", "server.auth, journal.url"),
        ("environments --at-once 1 --steps 1", "environments.warm=3", ", ".join(SANDBOXES)),
        ("skills", "skills.most=3", ", ".join(RETRIEVAL)),
        ("serve --quick", "engine.threads=1", "model.path"),
        ("serve --only engine", "train.lr=1e-3", ", ".join(MODEL + ENGINE)),
        ("train", "gate.enabled=false", "model.path, train.*"),
    ],
)
def test_a_setting_that_a_bench_does_not_read_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, odd: str, read: str
) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))  # without a model: what is not refused ends soon
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["bench", *words.split(), "--home", str(tmp_path), "--set", odd])
    name, key = words.split()[0], odd.split("=")[0]
    assert str(done.exception) == (
        f"`turnwise bench {name}` does not read {key}, so it would measure the same without it: leave --set {key}=… "
        f"out (played like this it reads {read})"
    )
    assert isinstance(done.exception, ConfigError)


def test_a_setting_that_is_read_is_in_force(tmp_path: Path) -> None:
    sets = ["model.path=m", "train.lr=1e-3", f"home={tmp_path}"]
    settings = read_config_of("bench train", ("model.path", "train."), None, None, sets)
    assert (settings.model.path, settings.train.lr, settings.home) == ("m", 1e-3, tmp_path)


def test_the_settings_that_benches_read_exist() -> None:
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    for key in (*MODEL, *ENGINE, *SANDBOXES, *RETRIEVAL):
        section, name = key.split(".")
        assert name in getattr(sections[section], "model_fields", {}), key
