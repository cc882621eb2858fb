"""`kill -9` of any loop at any moment: no answered turn is lost, none is trained twice. The journal is the witness."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from tests.support.models import make_tiny_model
from tests.support.postgres import Cluster, cluster, programs
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from turnwise.journal import Journal, schema
from turnwise.journal.packing import unpack_json
from turnwise.messages import text_of
from turnwise.types import TurnState

KILLS = 52
CLIENTS = 3
REPLIES = [
    "no, that is wrong, please answer in one short sentence",
    "great, exactly what I needed, thank you!",
    "too long. just the number please",
    "perfect",
]


def converse(server: Server, number: int, stop: threading.Event, answered: dict[str, str], seed: int) -> None:
    """Talk for ever, as a patient person: a failed request is sent again. Notes every answer that arrived whole."""
    rng = random.Random(f"{seed}/{number}")
    for conversation in itertools.count():
        messages = [{"role": "user", "content": f"question {number}/{conversation}"}]
        for _ in range(rng.choice([2, 3])):
            answer = None
            while answer is None:
                if stop.is_set():
                    return
                with contextlib.suppress(Exception):  # the gateway or the engine was just killed: ask again
                    raw = server.client(timeout=30).chat.completions.with_raw_response.create(
                        model="turnwise",
                        messages=messages,
                        max_tokens=8,
                        extra_headers={"X-Session-Id": f"c{number}-{conversation}"},
                    )
                    answer = raw.parse().choices[0].message.content or ""
                    answered[raw.headers["x-turnwise-turn-id"]] = answer
                if answer is None:
                    time.sleep(0.1)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": rng.choice(REPLIES)}]


def followed_by_another(journal: Journal, answered: Iterable[str]) -> list[str]:
    """The answered turns after which the same conversation got another answer: each of them has had a reply."""
    conversations: dict[str, list[str]] = {}
    for turn_id in answered:  # in the order in which the answers came
        conversations.setdefault(journal.turns.get(turn_id).session_id, []).append(turn_id)
    return [turn_id for turns in conversations.values() for turn_id in turns[:-1]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[Cluster | None]:
    """A server for the journal, or None for a file in the home."""
    if request.param == "sqlite":
        yield None
        return
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL here: `make postgres` installs it")
    with cluster(found) as one:
        one.run("CREATE DATABASE chaos")
        yield one


def cut(database: Cluster) -> None:
    """End every connection of the journal's database, as a network that fails does."""
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'chaos'")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_kills_lose_nothing_and_train_nothing_twice(
    tmp_path: Path, model_dir: Path, database: Cluster | None
) -> None:
    seed = 20261121
    model = make_tiny_model(tmp_path / "model", model_dir)
    rng = random.Random(seed)
    answered: dict[str, str] = {}
    killed: Counter[str] = Counter()
    settings = {
        "train__min_batch": 2,
        "train__max_batch": 6,
        "train__lease_s": 1.5,
        "judge__lease_s": 1.5,
        "train__lora_rank": 2,
        "gate__enabled": False,
        "train__max_staleness": 1000,
        "engine__threads": 1,
        "train__threads": 1,
    }
    victims = ["engine", "gateway", "judge", "trainer", "trainer"]
    if database is not None:
        settings["journal__url"] = database.url("chaos")
        victims.append("connections")
    with serving(tmp_path / "home", model, **settings) as server:
        stop = threading.Event()
        clients = [
            threading.Thread(target=converse, args=(server, n, stop, answered, seed), daemon=True)
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        deadline = time.monotonic() + 600
        while sum(killed.values()) < KILLS:
            assert time.monotonic() < deadline, f"only {killed} after ten minutes"
            time.sleep(rng.uniform(0.2, 2.5))
            name = rng.choice(victims)
            if name == "connections" and database is not None:
                cut(database)
                killed[name] += 1
            elif (process := server.loop(name)) is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    killed[name] += 1
        answers_at_the_last_kill = len(answered)
        wait_until(lambda: len(answered) > answers_at_the_last_kill + 5, 120)  # it serves again
        stop.set()
        for client in clients:
            client.join(timeout=60)
        # On a slow machine no trainer lived long enough to make an update: one that is left alone does.
        wait_until(lambda: server.status()["turns"].get("trained", 0) > 0, 180)
        wait_until(
            lambda: server.status()["turns"]["judging"] == 0 and server.status()["batches"].get("open", 0) == 0, 180
        )
        journal = server.journal()
        lost = [turn_id for turn_id in answered if journal.turns.get(turn_id) is None]
        assert lost == []
        for turn_id, text in answered.items():
            turn = journal.turns.get(turn_id)
            assert turn.state is not TurnState.SERVED
            assert text_of(turn.answer) == text, "the recorded answer is the one that was given"
            assert turn.response_ids
        followed = followed_by_another(journal, answered)
        assert len(followed) > len(answered) / 4, "conversations went on"
        for turn_id in followed:
            session = journal.sessions.show(journal.turns.get(turn_id).session_id)
            [turn] = [t for t in session["turns"] if t["id"] == turn_id]
            assert turn["next_state"], f"{turn_id} was replied to"
            assert turn["state"] != TurnState.WAITING
        with journal.store.reading() as c:  # one snapshot: the trainer goes on with what waits
            trained = c.execute(
                select(func.count()).select_from(schema.turns).where(schema.turns.c.state == TurnState.TRAINED)
            ).scalar_one()
            done = c.execute(schema.batches.select().where(schema.batches.c.state == "done")).all()
            versions = c.execute(schema.versions.select()).all()
        used = Counter(turn for row in done for turn in unpack_json(row.turn_ids))
        assert [turn for turn, times in used.items() if times > 1] == [], "no turn is in two finished batches"
        assert trained == len(used)
        assert sorted(v.number for v in versions) == list(range(1, len(versions) + 1))
        assert len(versions) == len(done)
        journal.close()
    assert set(killed) == set(victims)
    assert trained > 0
    print(f"\nkilled {dict(killed)}; {len(answered)} answers, {trained} turns trained in {len(versions)} versions")
