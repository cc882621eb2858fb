"""Who is shown pictures: a policy that sees, where its tasks or the person ask for it, and nobody else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from turnwise.cli.environments.observing import Observing, told_of_pictures
from turnwise.config import Config, load_config
from turnwise.environments.base import Task
from turnwise.errors import ConfigError
from turnwise.journal.rollouts.steps import StepFigures

PAGE = Task("page", "web", "p", {"url": "http://a/", "answer": "1"})
SEEN = Task("seen", "web", "p", {**PAGE.data, "observe": "marks"})
DESK = Task("desk", "desktop", "p")
SHELL = Task("shell", "terminal", "p")


def settings(home: Path, sees: bool, **more: object) -> Config:
    (home / "model").mkdir(exist_ok=True)
    kind = "idefics3" if sees else "llama"
    (home / "model" / "config.json").write_text(json.dumps({"model_type": kind}))
    return load_config(overrides={"home": home, "model.path": str(home / "model"), **more})


def views(observing: Observing) -> list[object]:
    return [task.data.get("observe") for task in observing.tasks]


def test_a_policy_that_sees_is_shown_what_is_asked_for(tmp_path: Path) -> None:
    config = settings(tmp_path, sees=True)
    assert views(Observing([PAGE, SEEN, SHELL], config, None, True)) == ["text", "marks", None]
    assert views(Observing([PAGE, SEEN], config, "both", True)) == ["both", "both"]
    by_setting = settings(tmp_path, True, **{"streams.web.pictures": True, "streams.desktop.pictures": True})
    found = Observing([PAGE, SEEN, DESK], by_setting, None, True)
    assert views(found)[:2] == ["both", "marks"] and found.settings.streams.desktop.pictures
    assert found.said is None and found.has_pictures


def test_a_policy_without_sight_is_shown_text_and_that_is_said(tmp_path: Path) -> None:
    config = settings(tmp_path, sees=False, **{"streams.desktop.pictures": True})
    found = Observing([PAGE, SEEN, DESK], config, None, True)
    assert views(found)[:2] == ["text", "text"] and not found.settings.streams.desktop.pictures
    assert found.said == f"the model {tmp_path / 'model'} sees no pictures: 2 tasks are shown as text"
    assert not found.has_pictures
    assert Observing([PAGE], config, "screenshot", True).said is not None
    assert Observing([PAGE, SHELL], config, None, True).said is None, "nobody asked for pictures"
    assert views(Observing([SEEN], config, None, False)) == ["marks"], "no model plays"


def test_what_an_upstream_sees_is_for_it_to_say(tmp_path: Path) -> None:
    away = {
        "engine.kind": "upstream",
        "engine.url": "http://127.0.0.1:9/v1",
        "engine.model": "m",
        "train.enabled": False,
    }
    assert views(Observing([SEEN], settings(tmp_path, False, **away), None, True)) == ["marks"]


def test_a_view_that_there_is_not_is_refused(tmp_path: Path) -> None:
    config = settings(tmp_path, sees=True)
    with pytest.raises(ConfigError, match="takes text, screenshot, marks, both, not 'video'"):
        Observing([PAGE], config, "video", True)
    with pytest.raises(ConfigError, match="none of these is one"):
        Observing([SHELL], config, "text", True)


def test_many_sizes_are_told_in_few_lines() -> None:
    shown = Counter({((100 * n, 100), (96, 32) if n > 1 else (100, 100)): 9 - n for n in range(1, 6)})
    lines = told_of_pictures(40, 10, StepFigures(3, 2, shown))
    assert lines[:2] == [
        "pictures: 40 taken, 10 of them replaced by words later, 30 in prompts",
        "steps: 3 samples of their own, 2 that go on from the one before",
    ]
    assert lines[2] == "8 pictures of 100 by 100 pixels, seen as they are"
    assert lines[3] == "7 pictures of 200 by 100 pixels, seen scaled to 96 by 32"
    assert lines[5:] == ["and pictures of 2 other sizes"]
