"""Which backend holds the weights, as the configuration says."""

from __future__ import annotations

import os
from pathlib import Path

from turnwise.config import Config
from turnwise.errors import ConfigError
from turnwise.pictures.store import PictureStore
from turnwise.training.backends.base import Backend
from turnwise.training.backends.local import LocalBackend


def backend_of(config: Config, model: Path | str, pictures: PictureStore | None = None) -> Backend:
    """``pictures`` are those that texts show, where they are not the home's.

    Raises ConfigError for several processes of a backend that is one, and ModelError."""
    if config.train.backend == "tinker":
        from turnwise.training.backends.tinker import TinkerBackend

        return TinkerBackend(config, model)
    if config.train.backend == "fsdp2":
        from turnwise.training.backends.fsdp2 import started

        return started(config, model)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            f'this is one of {os.environ["WORLD_SIZE"]} processes, and train.backend = "local" is one; '
            'set train.backend = "fsdp2", or start it without torchrun'
        )
    return LocalBackend(config, model, pictures=pictures)
