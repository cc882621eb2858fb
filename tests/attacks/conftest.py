"""How much of an attack is played: a form of about two minutes in `make test`, all of it in `make test-attacks`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.models import make_qwen3


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether attacks are played in full: TURNWISE_ATTACKS=full."""
    return os.environ.get("TURNWISE_ATTACKS") == "full"


@pytest.fixture(scope="session")
def qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3(tmp_path_factory.mktemp("qwen3"))
