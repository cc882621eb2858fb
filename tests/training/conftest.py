from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.training.homes import Bench, settings
from tests.training.tiny import SETTINGS, make_model, train_config
from turnwise.training.kinds import kept_states
from turnwise.training.policy import Policy


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tests run beside each other; results must not depend on how many cores are free."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def states_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a model says of labelled texts is read by each run of the tests, and kept in no folder of the person's."""
    folder = tmp_path_factory.mktemp("kept-states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_states, "cache_dir", lambda: folder)
        yield


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(params=["lora", "full"])
def both_weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs for an adapter, and for every weight of the model."""
    monkeypatch.setitem(SETTINGS, "weights", request.param)
    return request.param


@pytest.fixture
def policy(tiny_dir: Path) -> Policy:
    return Policy(tiny_dir, train_config())


@pytest.fixture
def make(tmp_path: Path, tiny_dir: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(name: str = "home", **changes: object) -> Bench:
        made.append(Bench(settings(tmp_path / name, tiny_dir, **changes)))
        return made[-1]

    yield build
    for bench in made:
        bench.journal.close()
