"""A gateway that is stopped in the middle of an answer tells the client so, in its format, and shows no traceback."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import closing

import httpx
import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running, wait_until
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config
from turnwise.gateway import server
from turnwise.journal import Journal
from turnwise.types import Exclusion

SAYS = "the server stops before the answer was complete"
ASKED = {"model": "turnwise", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", ASKED),
        ("messages", ASKED | {"max_tokens": 2000}),
        ("responses", {"model": "turnwise", "input": "hi"}),
    ],
)
def test_a_client_is_told_that_the_server_stops(
    config: Config,
    tokenizer: Tokenizer,
    model_dir: object,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: dict[str, object],
    stream: bool,
) -> None:
    monkeypatch.setattr(server, "GRACE_S", 2)
    stub = StubEngine(tokenizer, lambda _: "word " * 2000)
    stub.token_delay_s = 0.05
    told: list[tuple[int, str]] = []
    with running(stub.app()) as engine, caplog.at_level(logging.INFO):
        thread = GatewayThread(config, engine)
        thread.start(config)
        headers = {"Authorization": f"Bearer {(config.home / 'token').read_text().strip()}"}

        began = threading.Event()

        def ask() -> None:
            asked = body | {"stream": stream}
            with httpx.stream("POST", f"{thread.url}/v1/{path}", headers=headers, json=asked, timeout=30) as answer:
                began.set()
                told.append((answer.status_code, answer.read().decode()))

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: began.is_set() if stream else stub.sampled)
        thread.stop()
        asking.join(timeout=20)
    [(status, text)] = told
    assert status == (200 if stream else 503)
    last = json.loads([line for line in text.splitlines() if line.startswith("data: {")][-1][6:] if stream else text)
    assert SAYS in json.dumps(last), text[-500:]
    assert "error" in last or last["type"] in ("error", "response.failed")
    with closing(Journal.open(config)) as journal:
        assert journal.status.figures()["excluded"] == {Exclusion.INTERRUPTED: 1}, "its client did not break it off"
    assert "Traceback" not in caplog.text and not [r for r in caplog.records if r.exc_info], caplog.text
