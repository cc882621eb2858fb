"""Homes whose weights are at a server: a stand-in in this process, and a real one where `make test-tinker` made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.support.skyrl_server import PYTHON, SkyrlServer, skyrl_server
from tests.training.homes import Bench, settings
from tests.training.hosted.stand_in import StandInServer
from turnwise.config import TrainConfig
from turnwise.training.backends import tinker
from turnwise.training.backends.tinker import TinkerBackend
from turnwise.training.hosted.server import TinkerServer
from turnwise.training.publish import held_dir
from turnwise.training.weights.files import load_version_dir
from turnwise.types import PolicyVersion

KEY = "tml-a-key-that-nobody-may-read"
REAL = [
    pytest.mark.tinker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="no SkyRL here; `make test-tinker` installs it and runs this"),
]
SETTINGS: dict[str, object] = {
    "train.backend": "tinker",
    "train.estimator": "sampled",
    "train.lora_alpha": 32.0,
    "train.tinker_timeout_s": 300.0,
}


@pytest.fixture(scope="session")
def skyrl(tmp_path_factory: pytest.TempPathFactory, tiny_dir: Path) -> Iterator[SkyrlServer]:
    with skyrl_server(tiny_dir, tmp_path_factory.mktemp("skyrl") / "server") as server:
        yield server


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The secret in the environment of the client."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    return KEY


@pytest.fixture
def sessions_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test began at the server ends with it: the server has room for so many adapters, and no more."""
    made: list[TinkerServer] = []

    class Remembered(TinkerServer):
        def __init__(self, config: TrainConfig, model: Path) -> None:
            super().__init__(config, model)
            made.append(self)

    monkeypatch.setattr(tinker, "TinkerServer", Remembered)
    yield
    for server in made:
        server.close()


@pytest.fixture(params=["stand-in", pytest.param("skyrl", marks=REAL)])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, key: str) -> dict[str, object]:
    """The settings with which a home is at a server."""
    if request.param == "skyrl":
        request.getfixturevalue("sessions_end")
        return {"train.tinker_url": request.getfixturevalue("skyrl").url, "train.tinker_reduction": "mean"}
    kept: dict[str, Any] = {}

    def stand_in(config: TrainConfig, model: Path) -> StandInServer:
        server = StandInServer(config, model)
        server.kept = kept  # beyond the life of a trainer
        return server

    monkeypatch.setattr(tinker, "TinkerServer", stand_in)
    return {}


@pytest.fixture
def at_server(tmp_path: Path, tiny_dir: Path, server: dict[str, object]) -> Iterator[Callable[..., Bench]]:
    """A home at a server, by its name and changes of its settings."""
    made: list[Bench] = []

    def build(name: str = "home", **changes: object) -> Bench:
        made.append(Bench(settings(tmp_path / name, tiny_dir, **(SETTINGS | server | changes))))
        return made[-1]

    yield build
    for bench in made:
        bench.journal.close()


def backend_of(bench: Bench) -> TinkerBackend:
    bench.config.versions_dir.mkdir(parents=True, exist_ok=True)
    return TinkerBackend(bench.config, Path(bench.config.model.path))


def weights_of(bench: Bench, backend: TinkerBackend) -> dict[str, Tensor]:
    """What the server has now."""
    path = str(held_dir(bench.config.versions_dir))
    with backend.stage(PolicyVersion(0, 0, path, 0.0, {}, {}, [])) as put_in_place:
        put_in_place()
    return load_version_dir(Path(path)).weights
