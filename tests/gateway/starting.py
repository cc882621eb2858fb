"""A gateway for one test, with settings of its own, over Qwen3's renderer: one that may be stopped and started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from tests.conftest import GatewayThread, scripted
from tests.gateway.conftest import Agents
from tests.support.servers import running
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.journal import Journal


def settings(home: Path, model: Path, **changed: object) -> Config:
    """Settings have two underscores for the dot."""
    more = {key.replace("__", "."): value for key, value in changed.items()}
    return load_config(overrides={"home": home, "server.port": 0, "model.path": str(model)} | more)


@contextmanager
def stub_engine(model: Path) -> Iterator[tuple[StubEngine, str]]:
    """The engine that says what it is asked to say, and its address."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    assert end is not None
    stub = StubEngine(tokenizer, scripted, max_model_len=8192, end_token=end)
    with running(stub.app()) as url:
        yield stub, url


@contextmanager
def gateway_on(config: Config, stub: StubEngine, engine_url: str) -> Iterator[Agents]:
    """A gateway on the home of `config` until the block ends; stopping it must not fail."""
    thread = GatewayThread(config, engine_url)
    thread.start(config)
    journal = Journal.open(config)
    try:
        yield Agents(thread.url, (config.home / "token").read_text().strip(), stub, journal, config)
    finally:
        journal.close()
        thread.stop()
    assert thread.error is None, thread.error
