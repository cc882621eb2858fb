"""A home with published versions of a tiny model that has a real chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from tests.support.models import make_tiny_model, write_random_adapter
from tests.support.versions import answered, publish, set_aside
from tests.training.homes import Bench
from tests.training.homes import settings as bench_settings
from tests.training.tiny import make_model
from turnwise.cli.main import app
from turnwise.config import Config, load_config
from turnwise.journal import Journal


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny-chat"), model_dir)


@pytest.fixture
def settings(tmp_path: Path, tiny_chat: Path) -> Config:
    overrides: dict[str, object] = {"home": tmp_path / "home", "model.path": str(tiny_chat), "train.lora_rank": 4}
    return load_config(overrides=overrides | {"engine.threads": 1, "engine.dtype": "float32"})


@pytest.fixture
def two(settings: Config, tiny_chat: Path) -> Iterator[Journal]:
    """Two versions with weights of their own, and a turn of a session that is set aside."""
    journal = Journal.open(settings)
    for number in (1, 2):
        assert publish(journal) == number
        write_random_adapter(settings.versions_dir / f"v{number}", tiny_chat, 0.5, seed=number)
    turn = answered(journal, session_id="kept-aside", prompt_ids=[1, 4093, 198, 19556, 2, 198], prompt_tokens=6)
    journal.verdicts.feedback(turn, 1, None)
    set_aside(journal, turn)
    yield journal
    journal.close()


@pytest.fixture
def run(settings: Config, tiny_chat: Path) -> Callable[..., Result]:
    def command(*args: str) -> Result:
        (settings.home).mkdir(exist_ok=True)
        pairs = {"model.path": tiny_chat, "engine.threads": 1, "engine.dtype": "float32", "train.lora_rank": 4}
        sections: dict[str, list[str]] = {}
        for key, value in pairs.items():
            section, name = key.split(".")
            said = value if isinstance(value, int) else f'"{value}"'
            sections.setdefault(section, []).append(f"{name} = {said}")
        text = "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
        (settings.home / "config.toml").write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, [*args, "--home", str(settings.home)], env={"COLUMNS": "200"})

    return command


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture
def make(tmp_path: Path, tiny: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def build(name: str, **changes: object) -> Bench:
        made.append(Bench(bench_settings(tmp_path / name, tiny, **changes)))
        return made[-1]

    yield build
    for bench in made:
        bench.journal.close()
    torch.set_num_threads(before)
