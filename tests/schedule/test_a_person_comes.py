"""The window, end to end: a person's request stops training in the middle of a step, and quiet lets it go on.

Gateway, engine, journal and trainer are the real ones. The trainer's watch has a clock that runs ahead, so that ten
minutes of quiet pass in seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import GatewayThread, Running
from tests.support.models import make_tiny_model
from tests.support.processes import engine_process
from tests.support.servers import wait_until
from turnwise.config import Config, load_config
from turnwise.journal import Journal
from turnwise.schedule import traffic
from turnwise.schedule.traffic import LastRequest
from turnwise.schedule.watch import STATUS_KEY, WindowWatch
from turnwise.training import step, worker
from turnwise.training.leave import Leave

pytestmark = pytest.mark.slow
AHEAD = 200
"""How many times as fast the watch's clock runs: three seconds without a request are ten minutes."""


@pytest.fixture
def tiny(tmp_path: Path, model_dir: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny", model_dir)


@pytest.fixture
def server(tmp_path: Path, tiny: Path) -> Iterator[Running]:
    settings: dict[str, object] = {
        "home": tmp_path / "home", "model.path": str(tiny), "train.when": "idle", "train.min_batch": 6,
        "train.minibatch": 6, "train.epochs": 20, "train.microbatch_tokens": 64, "train.lora_rank": 2,
        "train.threads": 1, "train.lessons": 0, "gate.enabled": False,
    }  # fmt: skip
    config = load_config(overrides=settings)
    with engine_process(tiny, max_num_seqs=4, adapters_dir=config.versions_dir) as url:
        gateway = GatewayThread(config, url)
        gateway.start(config)
        wait_until(lambda: httpx.get(f"{gateway.url}/readyz").status_code == 200, 60)
        journal = Journal.open(config)
        yield Running(gateway.url, (config.home / "token").read_text().strip(), None, journal, config)  # type: ignore[arg-type]
        journal.close()
        gateway.stop()


def watch_ahead(config: Config, journal: Journal) -> WindowWatch:
    def last() -> LastRequest | None:
        found = traffic.last_request(journal)
        if found is None or found.under_way:
            return found
        return LastRequest(0, found.seconds_ago * AHEAD)

    def say(data: dict[str, object]) -> None:
        journal.status.say(STATUS_KEY, data)

    return WindowWatch([], last, say, config.schedule.quiet_min, monotonic=lambda: time.monotonic() * AHEAD)


def said(server: Running) -> dict[str, object]:
    return server.journal.status.figures()["loops"].get("trainer", {})


def judged_turns(server: Running, count: int) -> None:
    for n in range(count):
        answer = server.client().chat.completions.create(
            model="turnwise", messages=[{"role": "user", "content": f"question {n}"}], max_tokens=40
        )
        turn = answer.id.removeprefix("chatcmpl-")
        body = {"score": -1, "text": "Be brief."}
        httpx.post(f"{server.url}/v1/turns/{turn}/feedback", headers=server.person, json=body).raise_for_status()


def test_a_request_stops_a_step_between_two_micro_batches_and_quiet_lets_it_go_on(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[float] = []
    real = step.backward

    def counted(*args, **options):
        time.sleep(0.1)  # a larger model takes so long
        done.append(time.monotonic())
        return real(*args, **options)

    monkeypatch.setattr(step, "backward", counted)
    judged_turns(server, 6)
    journal = Journal.open(server.config)
    leave = Leave(server.config, journal, watch_ahead(server.config, journal))
    stop = threading.Event()
    trainer = threading.Thread(target=worker.run, args=(server.config, stop, leave), daemon=True)
    trainer.start()
    try:
        wait_until(lambda: len(done) >= 4, 120)  # nobody asked for it: the gateway was quiet
        talking = server.client().chat.completions.create(
            model="turnwise", messages=[{"role": "user", "content": "and now?"}], max_tokens=2000, seed=1, stream=True
        )
        next(iter(talking))
        wait_until(lambda: (traffic.last_request(server.journal) or LastRequest(0, 0)).under_way)
        seen = len(done)
        wait_until(lambda: said(server).get("state") == "paused", 30)
        assert len(done) - seen <= 1, "at most the micro-batch that was begun"
        stood = len(done)
        assert "A request is being answered" in str(said(server)["for"])
        threading.Event().wait(1.0)
        assert len(done) == stood and server.journal.versions.latest() == 0
        talking.close()  # the person has read enough
        wait_until(lambda: server.journal.versions.latest() == 1, 120)
        assert len(done) > stood, "it went on"

        def version() -> str:
            raw = server.client().chat.completions.with_raw_response.create(
                model="turnwise", messages=[{"role": "user", "content": "next"}], max_tokens=4
            )
            return raw.headers["x-turnwise-version"]

        wait_until(lambda: version() == "1", 60)
    finally:
        stop.set()
        trainer.join(60)
        journal.close()
    assert not trainer.is_alive()
