from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.sft.chat_model import make_chat_model


@pytest.fixture(scope="session")
def chat_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("tiny-chat"))
