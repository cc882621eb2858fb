"""What holds for an answer whose client says neither how long nor how warm: the model's own, or what is configured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, Running, scripted
from tests.support.servers import running
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.journal import Journal

HELLO: Any = [{"role": "user", "content": "Hello"}]
WORDS = "say: " + "word " * 1000


@contextmanager
def serving(home: Path, tokenizer: Tokenizer, **settings: Any) -> Iterator[Running]:
    config = load_config(overrides={"home": home, "server.port": 0} | settings)
    stub = StubEngine(tokenizer, scripted)
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        journal = Journal.open(config)
        token = (config.home / "token").read_text().strip()
        yield Running(thread.url, token, stub, journal, config)
        journal.close()
        thread.stop()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (512, 0.6)),
        ({"model.max_tokens": 64, "model.temperature": 0.2}, (64, 0.2)),
        ({"model.temperature": 0.0}, (512, 0.0)),
    ],
)
def test_the_readmes_hello_is_bounded(
    home: Path, tokenizer: Tokenizer, settings: dict[str, Any], expected: tuple[int, float]
) -> None:
    with serving(home, tokenizer, **settings) as gateway:
        answer = gateway.client().chat.completions.create(model="turnwise", messages=HELLO)
        (asked,) = gateway.stub.asked
        assert (asked["max_tokens"], asked["temperature"]) == expected
        assert gateway.turn(answer).temperature == expected[1]


def test_an_answer_that_reaches_the_default_ends_with_length(home: Path, tokenizer: Tokenizer) -> None:
    with serving(home, tokenizer) as gateway:
        asked: Any = [{"role": "user", "content": WORDS}]
        answer = gateway.client().chat.completions.create(model="turnwise", messages=asked)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None and answer.usage.completion_tokens == 512
        response = gateway.client().responses.create(model="turnwise", input=WORDS)
        assert (response.status, response.temperature) == ("incomplete", 0.6)


def test_the_clients_own_values_go_first(home: Path, tokenizer: Tokenizer) -> None:
    with serving(home, tokenizer, **{"model.max_tokens": 9, "model.temperature": 0.1}) as gateway:
        client = gateway.client()
        client.chat.completions.create(model="turnwise", messages=HELLO, max_tokens=800, temperature=1.2)
        (asked,) = gateway.stub.asked
        assert (asked["max_tokens"], asked["temperature"]) == (800, 1.2)


def test_another_model_has_all_that_fits(home: Path, tokenizer: Tokenizer, model_dir: Path) -> None:
    with serving(home, tokenizer, **{"model.path": str(model_dir)}) as gateway:
        answer = gateway.client().chat.completions.create(model="turnwise", messages=HELLO)
        (asked,) = gateway.stub.asked
        prompt = gateway.turn(answer).prompt_ids
        assert (asked["max_tokens"], asked["temperature"]) == (gateway.stub.max_model_len - len(prompt), 1.0)
