"""A disk that is really full: a small one in memory, under a real gateway. The engine alone is a stub."""

from __future__ import annotations

import json
import logging
import os
import random
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, Running, scripted
from tests.support.servers import running, wait_until
from tests.support.small_disk import SmallDisk, small_disk
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.errors import JournalError, JournalFull
from turnwise.gateway import server
from turnwise.journal import Journal
from turnwise.journal.status import Status
from turnwise.types import TurnState

__all__ = ["small_disk"]


def settings(disk: SmallDisk, when_full: str) -> Config:
    return load_config(overrides={"home": disk.path / "home", "server.port": 0, "journal.when_full": when_full})


@pytest.fixture
def start(tokenizer: Tokenizer, model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(server, "LOST_AFTER_S", 0.2)
    stub = StubEngine(tokenizer, scripted)
    with running(stub.app()) as engine_url:
        threads: list[GatewayThread] = []
        journals: list[Journal] = []

        def go(config: Config) -> Running:
            threads.append(GatewayThread(config, engine_url))
            threads[-1].start(config)
            journals.append(Journal.open(config))
            token = (config.home / "token").read_text().strip()
            return Running(threads[-1].url, token, stub, journals[-1], config)

        yield go
        for journal in journals:
            journal.close()
        for thread in threads:
            thread.stop()


def ask(gateway: Running, text: str, stream: bool = False) -> httpx.Response:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": text}], "stream": stream}
    return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=60)


def noise(length: int = 4000) -> str:
    return "".join(random.choices(string.ascii_letters, k=length))


def status(gateway: Running) -> dict[str, Any]:
    return httpx.get(f"{gateway.url}/v1/status", headers=gateway.person, timeout=20).json()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_refused_while_full_and_served_again_by_itself(small_disk: SmallDisk, start: Any, stream: bool) -> None:
    gateway = start(settings(small_disk, "refuse"))
    kept = ask(gateway, "say: kept").headers["x-turnwise-turn-id"]
    small_disk.fill()
    responses = [ask(gateway, noise(), stream) for _ in range(20)]  # what the file still has room for is answered
    assert {r.status_code for r in responses[-5:]} == {507}
    assert "disk is full" in responses[-1].json()["error"]["message"]
    assert not any("x-turnwise-recorded" in r.headers for r in responses)
    small_disk.empty()
    assert ask(gateway, "say: again", stream).status_code == 200
    assert status(gateway)["unrecorded"] == 0
    whole(gateway, kept)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_served_while_full_counted_said_once_and_recorded_again_by_itself(
    small_disk: SmallDisk, start: Any, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gateway = start(settings(small_disk, "serve"))
    kept = ask(gateway, "say: kept").headers["x-turnwise-turn-id"]
    small_disk.fill()
    responses = [ask(gateway, f"say: {n} {noise()}", stream) for n in range(20)]
    assert {r.status_code for r in responses} == {200}
    for n, response in enumerate(responses):
        assert ("data: [DONE]" if stream else f"{n} ") in response.text, "the person has the answer"
    unrecorded = [r for r in responses if r.headers.get("x-turnwise-recorded") == "no"]
    assert unrecorded[-5:] == responses[-5:]
    count = status(gateway)["unrecorded"]
    assert len(unrecorded) <= count <= 20
    metrics = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin, timeout=20).text
    assert f"turnwise_unrecorded_turns {float(count)}" in metrics
    said = [r for r in caplog.records if "later ones are answered but not recorded" in r.getMessage()]
    assert len(said) <= 2, "once, and once more if there was room for a little one in between"
    assert len([r for r in caplog.records if r.getMessage().startswith("upkeep:")]) < 20
    small_disk.empty()
    again = ask(gateway, "say: again", stream)
    assert "x-turnwise-recorded" not in again.headers
    assert gateway.turn(again.headers["x-turnwise-turn-id"]).state is TurnState.WAITING
    assert status(gateway)["unrecorded"] == count
    for response in unrecorded:
        assert gateway.turn(response.headers["x-turnwise-turn-id"]) is None
    whole(gateway, kept)


def test_a_start_on_a_full_disk_is_a_sentence_and_harms_nothing(small_disk: SmallDisk, start: Any) -> None:
    """SQLite needs a little room to open the journal at all. The supervisor tries again until there is some."""
    config = settings(small_disk, "serve")
    kept = start(config)
    turn = ask(kept, "say: kept").headers["x-turnwise-turn-id"]
    elsewhere = config.model_copy(update={"home": small_disk.path / "new"})
    small_disk.fill()
    with pytest.raises(JournalError, match=r"disk is full|No space left"):
        Journal.open(elsewhere)
    small_disk.empty()
    opened = Journal.open(elsewhere)
    assert opened.status.figures()["turns"][TurnState.SERVED] == 0
    opened.close()
    whole(kept, turn)


def whole(gateway: Running, kept: str) -> None:
    """Nothing is half there: the file is sound, every turn has an end, records.jsonl has whole lines of all events."""
    wait_until(lambda: gateway.journal.status.figures()["turns"][TurnState.SERVED] == 0)
    assert gateway.turn(kept).state in (TurnState.WAITING, TurnState.EXCLUDED)
    with gateway.journal.store.reading() as c:
        assert c.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"

    def exported() -> bool:
        with gateway.journal.store.reading() as c:
            return c.exec_driver_sql("SELECT count(*) FROM events").scalar() == 1

    wait_until(exported)
    events = [json.loads(line)["event"] for line in gateway.config.records_path.read_text().splitlines()]
    assert events == list(range(1, len(events) + 1))


def test_a_configuration_file_is_never_half_written(small_disk: SmallDisk) -> None:
    """`connect` edits files of other programs: on a full disk it leaves them as they were."""
    target = small_disk.path / "agent"
    target.mkdir()
    file = target / "config.toml"
    before = 'model = "other"\n' + "# kept\n" * 50
    file.write_text(before)
    small_disk.fill()
    done = subprocess.run(
        [sys.executable, "-m", "turnwise", "connect", "codex", "--url", "http://127.0.0.1:9", "--home", str(target)],
        env=os.environ | {"CODEX_HOME": str(target), "HOME": str(target)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert file.read_text() == before
    assert "Traceback" not in done.stderr, done.stderr


def test_a_gateway_starts_although_nothing_can_be_written(
    config: Config, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full disk is a stand-in: what the gateway says of itself at its start finds no room."""
    real, refused = Status.say, []

    def once_full(self: Status, name: str, status: dict[str, Any]) -> None:
        if not refused:
            refused.append(name)
            raise JournalFull("the journal cannot be written: the disk is full")
        real(self, name, status)

    monkeypatch.setattr(Status, "say", once_full)
    gateway = start(config)
    assert ask(gateway, "say: hello").status_code == 200
    assert refused == ["gateway"]
    wait_until(lambda: status(gateway)["loops"].get("gateway", {}).get("url") == gateway.url)
