"""The gateway with a model that reasons and calls tools, and the SDKs of both makers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from anthropic import Anthropic
from openai import OpenAI
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, Running, scripted
from tests.gateway.callers import FORMATS, Caller
from tests.support.models import make_qwen3
from tests.support.rows import turn_row
from tests.support.servers import running
from tests.support.wire import ChatMessage
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.journal.packing import unpack_json


@dataclass
class Agents(Running):
    @property
    def openai(self) -> OpenAI:
        return self.client()

    @property
    def anthropic(self) -> Anthropic:
        return Anthropic(base_url=self.url, api_key=self.token, max_retries=0, timeout=30)

    def next_state(self, turn_id: str) -> list[ChatMessage]:
        """What came back after a recorded answer."""
        row = turn_row(self.journal, turn_id)
        assert row is not None
        return unpack_json(row.next_state)


@pytest.fixture(scope="session")
def qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def _qwen(tmp_path_factory: pytest.TempPathFactory, qwen3_dir: Path) -> Iterator[Agents]:
    home = tmp_path_factory.mktemp("home") / "home"
    config = load_config(overrides={"home": home, "server.port": 0, "model.path": str(qwen3_dir)})
    tokenizer = Tokenizer.from_file(str(qwen3_dir / "tokenizer.json"))
    stub = StubEngine(tokenizer, scripted, max_model_len=8192, end_token=tokenizer.token_to_id("<|im_end|>"))
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        journal = Journal.open(config)
        token = (config.home / "token").read_text().strip()
        yield Agents(thread.url, token, stub, journal, config)
        journal.close()
        thread.stop()


@pytest.fixture
def qwen(_qwen: Agents) -> Iterator[Agents]:
    """The real gateway with Qwen3's renderer, one for all tests of a file: each begins a conversation of its own.

    The engine says what the last user message asks it to say ("say: …").
    """
    yield _qwen
    stub = _qwen.stub
    stub.reply, stub.token_delay_s, stub.die_after, stub.refuse_with = scripted, 0.0, None, None
    stub.sampled.clear()
    stub.asked.clear()


@pytest.fixture(params=[f"{name}-{how}" for name in FORMATS for how in ("whole", "streamed")])
def caller(qwen: Agents, request: pytest.FixtureRequest) -> Caller:
    """One client of every format, whole and streamed."""
    name, how = request.param.split("-")
    return Caller(qwen, name, how == "streamed")
