"""Serving and learning do not depend on records.jsonl: with it, without it, and where it cannot be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from tests.gateway.callers import FORMATS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.servers import wait_until
from turnwise.journal import Journal, schema
from turnwise.types import TurnState, Verdict

CALLERS = [(name, stream) for name in FORMATS for stream in (False, True)]


def score(gateway: Agents, turn_id: str, value: int, text: str) -> None:
    url = f"{gateway.url}/v1/turns/{turn_id}/feedback"
    httpx.post(url, headers=gateway.person, json={"score": value, "text": text}, timeout=20).raise_for_status()


def learn(gateway: Agents) -> list[tuple[Any, ...]]:
    """Conversations of every format, judged and scored; gives the samples of the next batch without their names."""
    for how in CALLERS:
        talk = Talk(Caller(gateway, *how), [user(f"say: first for {how}")])
        first = talk.ask()
        talk.say("say: No, shorter please.")
        second = talk.ask()
        [task] = gateway.journal.judging.claim("judge", 9, 60.0)
        assert task.turn_id == first.id
        gateway.journal.judging.record(task, Verdict(score=-1, hint="Be shorter.", judge="test", reason="asked to"))
        score(gateway, second.id, 1, "Like that.")
    batch = gateway.journal.batches.claim("trainer", 60.0)
    assert batch is not None
    return [
        (s.prompt_ids, s.response_ids, s.logprobs, s.temperature, s.version, s.reward, s.hint, s.hint_at)
        for s in batch.samples
    ]


def test_the_samples_are_the_same_with_records_and_without(tmp_path: Path, qwen3_dir: Path) -> None:
    samples = []
    with stub_engine(qwen3_dir) as (stub, url):
        for records in (True, False):
            kept = {"journal__records": records, "train__min_batch": 1}
            config = settings(tmp_path / str(records), qwen3_dir, **kept)
            with gateway_on(config, stub, url) as gateway:
                samples.append(learn(gateway))
                with gateway.journal.store.reading() as c:
                    outbox = c.execute(select(func.count()).select_from(schema.events)).scalar_one()
            assert config.records_path.exists() == records
            assert bool(outbox) == records
    assert len(samples[0]) == 2 * len(CALLERS)
    assert samples[0] == samples[1]


def test_records_that_cannot_be_written_stop_neither_serving_nor_learning(
    tmp_path: Path, qwen3_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(tmp_path / "home", qwen3_dir, train__min_batch=1, sessions__idle_close_s=2.0)
    lock = config.records_path.with_name("records.jsonl.lock")
    lock.mkdir(parents=True)  # nobody can lock a folder, not even root
    with stub_engine(qwen3_dir) as (stub, url):
        with gateway_on(config, stub, url) as gateway:
            samples = learn(gateway)
            open_turn = Caller(gateway, "chat", False).ask([user("say: and then nothing")])
            wait_until(lambda: gateway.turn(open_turn.id).state is TurnState.READY)  # upkeep goes on
            wait_until(lambda: "gateway" in gateway.journal.status.figures()["loops"])
            wait_until(lambda: "records.jsonl" in caplog.text)
        assert len(samples) == 2 * len(CALLERS)
        lock.rmdir()
        with gateway_on(config, stub, url) as gateway:  # the one before let go of the home
            again = Caller(gateway, "chat", False).ask([user("say: again")])
            assert again.state is TurnState.WAITING
    records = [json.loads(line) for line in config.records_path.read_text().splitlines()]
    assert [r["event"] for r in records] == list(range(1, len(records) + 1)), "nothing was lost meanwhile"
    journal = Journal.open(config)
    assert sum(r["kind"] == "turn" for r in records) == sum(journal.status.figures()["turns"].values())
    journal.close()
