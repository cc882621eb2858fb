"""Whose request it is goes to the engines that order by it, and to no other. Only the engine is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.engines.base import BEHIND_PEOPLE
from turnwise.errors import ConfigError

ROLLOUT = {"X-Session-Id": "played", "X-Stream": "terminal", "X-Group-Id": "g", "X-Group-Size": "2"}
SETTINGS = {
    "local": {"engine.kind": "local"},
    "vllm": {"engine.kind": "vllm", "engine.url": "http://127.0.0.1:1"},
    "vllm that orders": {
        "engine.kind": "vllm", "engine.url": "http://127.0.0.1:1", "engine.priority_scheduling": True,
    },
}  # fmt: skip


@pytest.fixture(params=SETTINGS)
def told(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> Iterator[dict[str, object]]:
    """What an engine of this kind is told of the priority of a person's request, and of a rollout's."""
    settings: dict[str, object] = SETTINGS[request.param] | {"home": tmp_path / "home", "server.port": 0}
    stub = StubEngine(tokenizer, lambda prompt: "Fine.")
    with running(stub.app()) as engine_url:
        config = load_config(overrides=settings)
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        try:
            token = {"Authorization": f"Bearer {(config.home / 'token').read_text().strip()}"}
            found: dict[str, object] = {"kind": request.param}
            for who, headers in (("person", {}), ("rollout", ROLLOUT)):
                body = {
                    "model": "turnwise",
                    "messages": [{"role": "user", "content": f"a {who} asks"}],
                    "max_tokens": 8,
                }
                answer = httpx.post(
                    f"{thread.url}/v1/chat/completions", headers=token | headers, json=body, timeout=20
                )  # fmt: skip
                assert answer.status_code == 200, answer.text
                found[who] = next(b for b in reversed(stub.asked) if b["max_tokens"] == 8).get("priority")
            yield found
        finally:
            thread.stop()


def test_rollouts_stand_back_where_the_engine_knows_what_that_is(told: dict[str, object]) -> None:
    assert told["person"] is None, "0 is what every engine takes a request for"
    assert told["rollout"] == (None if told["kind"] == "vllm" else BEHIND_PEOPLE)


@pytest.mark.parametrize("kind", ["sglang", "upstream"])
def test_an_engine_that_is_told_nothing_is_not_promised_to_order(tmp_path: Path, kind: str) -> None:
    given: dict[str, object] = {"home": tmp_path, "engine.kind": kind, "engine.url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match="for kind = 'vllm'"):
        load_config(overrides=given | {"engine.priority_scheduling": True})
