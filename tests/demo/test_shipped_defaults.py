"""What the demo shows is what ships: its servers differ from the defaults in what docs/demo.md says, and nothing else.

The settings are those of the file that a server of the demo is started with; here it ends at once, for want of a model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise import machine
from turnwise.config import Config, load_config
from turnwise.demo.personas import PERSONAS
from turnwise.demo.play import DemoOptions, _Run, _Scale
from turnwise.demo.server import ServerError

PAGE = Path(__file__).parents[2] / "docs" / "demo.md"
OF_THE_RUN = {"home", "model.path"}
WAITED_FOR = {"train.when": "always", "train.threads": machine.cores()}
"""Nobody is away in a demo: its person waits for what is learned."""
WEIGHTS_ALONE = {"skills.evolve": False}


def flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def changed(folder: Path, *, learning: bool, **options: Any) -> dict[str, Any]:
    """The settings of an arm's server that are not the defaults, but for its home and its model."""
    demo = DemoOptions(out=folder, model=str(folder / "no-model"), **options)
    run = _Run(demo, PERSONAS["reader"], _Scale(1, 1, 1, 1, 1))
    with pytest.raises(ServerError, match="no-model"), run._server("arm", learning=learning):
        pytest.fail("there is no model")
    played = flat(load_config(overrides={"home": folder / "home-arm"}).model_dump())
    shipped = flat(Config().model_dump())
    return {key: value for key, value in played.items() if value != shipped[key] and key not in OF_THE_RUN}


def test_the_learning_arm_differs_from_what_ships_in_what_the_page_says(tmp_path: Path) -> None:
    assert changed(tmp_path, learning=True) == WAITED_FOR | WEIGHTS_ALONE
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert 'but for `train.when = "always"` on all cores' in page and "`skills.evolve = false`" in page


def test_the_options_add_the_method_and_the_seed(tmp_path: Path) -> None:
    asked = {"train.method": "binary", "train.seed": 7}
    assert changed(tmp_path, learning=True, method="binary", seed=7) == WAITED_FOR | WEIGHTS_ALONE | asked


def test_the_control_arm_is_the_same_with_learning_off(tmp_path: Path) -> None:
    assert changed(tmp_path, learning=False) == WAITED_FOR | WEIGHTS_ALONE | {"train.enabled": False}
