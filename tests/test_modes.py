"""`mode`: what it means for other settings, and that what contradicts it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import load_config
from turnwise.errors import ConfigError
from turnwise.loops.table import Places, loop_table

UPSTREAM = {"engine.kind": "upstream", "engine.url": "http://127.0.0.1:9/v1"}


def loops(tmp_path: Path, **settings: object) -> set[str]:
    config = load_config(overrides={"home": tmp_path} | {k.replace("__", "."): v for k, v in settings.items()})
    places = Places(3, "http://127.0.0.1:1", 1, None, ("http://127.0.0.1:9",), None)
    return {loop.name for loop in loop_table(config, tmp_path, places, [])}


def test_both_is_the_default(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path})
    assert (config.mode, config.train.when, config.train.enabled, config.skills.enabled) == ("both", "idle", True, True)
    assert config.trains
    assert loops(tmp_path) == {"gateway", "judge", "trainer", "evolver"}


def test_skills_only_has_no_trainer_and_makes_skills(tmp_path: Path) -> None:
    assert loops(tmp_path, mode="skills-only") == {"gateway", "judge", "evolver"}
    assert loops(tmp_path, mode="skills-only", skills__evolve=False) == {"gateway", "judge"}
    upstream = load_config(overrides={"home": tmp_path, "mode": "skills-only", **UPSTREAM})
    assert upstream.skills.enabled and not upstream.trains
    with pytest.raises(ConfigError, match="cannot be trained"):
        load_config(overrides={"home": tmp_path, **UPSTREAM})


def test_weights_only_has_no_skills(tmp_path: Path) -> None:
    assert loops(tmp_path, mode="weights-only") == {"gateway", "judge", "trainer"}
    config = load_config(overrides={"home": tmp_path, "mode": "weights-only"})
    assert not config.skills.enabled and not config.skills.evolve


def test_off_judges_and_does_not_train(tmp_path: Path) -> None:
    assert loops(tmp_path, train__when="off") == {"gateway", "judge", "evolver"}
    assert loops(tmp_path, train__when="manual") == {"gateway", "judge", "trainer", "evolver"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "skills-only", "train.enabled": True}, 'mode = "skills-only" means train.enabled = false'),
        ({"mode": "skills-only", "skills.enabled": "false"}, 'mode = "skills-only" means skills.enabled = true'),
        ({"mode": "weights-only", "skills.evolve": "true"}, 'mode = "weights-only" means skills.evolve = false'),
        ({"mode": "weights"}, "mode"),
        ({"mode": ["both"]}, "mode"),
        ({"mode": "skills-only", "train": "off"}, "train"),
        ({"train.when": "sometimes"}, "train.when"),
    ],
)
def test_what_contradicts_it_is_refused(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(overrides={"home": tmp_path, **settings})


def test_a_file_says_it_at_its_top(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('mode = "skills-only"\n[train]\nlr = 1e-3\n')
    config = load_config(overrides={"home": tmp_path})
    assert not config.train.enabled and config.train.lr == 1e-3
