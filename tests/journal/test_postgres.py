"""What only a server has: several machines, a connection that breaks, addresses with passwords."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import inspect
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, scripted
from tests.support.postgres import Cluster, cluster, programs
from tests.support.servers import running, wait_until
from tests.support.versions import answered
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.config.reference import as_toml
from turnwise.doctor.journal import examine_journal
from turnwise.errors import ConfigError, JournalError, JournalUnavailable
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.erasing import vacuum
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.deletion.retention import prune
from turnwise.journal.records.export import RecordsExporter
from turnwise.journal.triggers import make_triggers
from turnwise.messages import saying, text_of
from turnwise.types import TurnKind, TurnState, Verdict

pytestmark = pytest.mark.files  # not twice: each test here says where its journal lies
REPLY = [saying("user", "no")]


def on(url: str, home: Path) -> Config:
    return load_config(overrides={"home": home, "journal.url": url, "journal.busy_timeout_s": 2.0})


@pytest.fixture
def config(postgres: Cluster, tmp_path: Path) -> Config:
    return on(postgres.database(), tmp_path / "home")


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A server that a test may stop."""
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL here: `make postgres` installs it")
    with cluster(found) as one:
        yield one


def test_migrations_make_what_the_schema_says(config: Config) -> None:
    with closing(Journal.open(config)) as journal, journal.store.reading() as c:
        found = inspect(c)
        for name, table in schema.metadata.tables.items():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
            assert columns == {c.name: c.nullable if c.name != "rowid" else False for c in table.c}, name
            indexes = {index["name"] for index in found.get_indexes(name) if not index.get("duplicates_constraint")}
            assert indexes == {index.name for index in table.indexes}, name


SHAPE = {
    "columns": "SELECT table_name, column_name, data_type, is_nullable, collation_name, identity_generation"
    " FROM information_schema.columns WHERE table_schema = 'public'",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace AND conrelid <> 0",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
}
"""Where a server tells of its tables and what belongs to them."""


def test_a_new_journal_is_as_one_that_was_brought_up_to_date(own: Cluster, tmp_path: Path) -> None:
    """`postgres_0008.sql` is the first schema that was ever made on a server."""
    own.run("CREATE DATABASE old")
    own.run((Path(__file__).parent / "postgres_0008.sql").read_text(), "old")
    own.run("CREATE TABLE alembic_version (version_num VARCHAR(32) CONSTRAINT alembic_version_pkc PRIMARY KEY)", "old")
    own.run("INSERT INTO alembic_version VALUES ('0008')", "old")
    shapes = []
    for url in (own.url("old"), own.database()):
        with closing(Journal.open(on(url, tmp_path / "home"))) as journal:
            with journal.store.transaction() as c:
                make_triggers(c)  # as the next migration will have it
            with journal.store.reading() as c:
                shapes.append({name: sorted(map(str, c.exec_driver_sql(sql))) for name, sql in SHAPE.items()})
    assert shapes[0] == shapes[1]


def test_judges_on_two_machines_never_hold_the_same_turn(config: Config) -> None:
    with closing(Journal.open(config)) as journal, closing(Journal.open(config)) as other:
        for n in range(40):
            turn = answered(journal, session_id=f"s{n}")
            answered(journal, session_id=f"s{n}", parent_id=turn, answers=turn, next_state=REPLY)
        together = threading.Barrier(4)

        def claim(number: int) -> list[str]:
            together.wait()
            by = (journal, other)[number % 2]
            return [task.turn_id for _ in range(5) for task in by.judging.claim(f"judge-{number}", 2, 60)]

        with ThreadPoolExecutor(4) as pool:
            claimed = [turn_id for ids in pool.map(claim, range(4)) for turn_id in ids]
        assert len(claimed) == len(set(claimed)) == 40


def test_a_judge_passes_over_rows_that_another_is_leasing(config: Config) -> None:
    with closing(Journal.open(config)) as journal, closing(Journal.open(config)) as other:
        for session in ("a", "b"):
            turn = answered(journal, session_id=session)
            answered(journal, session_id=session, parent_id=turn, answers=turn, next_state=REPLY)
        with journal.store.transaction(leasing=True) as c:
            first = c.exec_driver_sql("SELECT id FROM turns WHERE state = 'judging' ORDER BY rowid LIMIT 1 FOR UPDATE")
            held = first.scalar_one()
            [task] = other.judging.claim("judge", 2, 60)
            assert task.turn_id != held


def test_leases_of_other_machines_outlive_a_start_of_this_one(config: Config) -> None:
    with closing(Journal.open(config, boot="this machine")) as journal:
        turn = answered(journal)
        answered(journal, parent_id=turn, answers=turn, next_state=REPLY)
        [task] = journal.judging.claim("judge", 1, 60)
        journal.store.end_leases()
        journal.judging.record(task, Verdict(1, None, "model"))
        assert journal.turns.get(turn).state is TurnState.READY  # type: ignore[union-attr]


def test_size_is_kept_although_tables_do_not_shrink(config: Config) -> None:
    with closing(Journal.open(config)) as journal:
        for n in range(120):
            answered(journal, session_id=f"s{n}", kind=TurnKind.SIDE, messages=[saying("user", f"{n} " * 99)])
            journal.sessions.close(f"s{n}", "done")
        RecordsExporter(journal).export_all()
        with journal.store.reading() as c:
            limit = journal.store.database.used_bytes(c) // 2
        went = prune(journal, None, limit)
        assert 50 <= went.turns <= 85
        assert prune(journal, None, limit).turns == 0, "what a deletion leaves in the tables is no reason for another"
        before, after = vacuum(journal)
        assert after < before


def test_a_journal_has_one_gateway(config: Config) -> None:
    with closing(Journal.open(config)) as journal, closing(Journal.open(config)) as other:
        assert journal.store.hold_for_gateway() and not other.store.hold_for_gateway()
        journal.store.database.let_go()
        wait_until(other.store.hold_for_gateway)


def test_what_postgres_cannot_store_is_replaced_and_found_again(config: Config) -> None:
    with closing(Journal.open(config)) as journal:
        turn = answered(journal, session_id="a\0b", messages=[saying("user", "c\0d")])
        found = journal.turns.get(turn)
        assert found is not None and text_of(found.messages[0]) == "c\0d"
        assert journal.sessions.show("a\0b") is not None
        assert journal.lookups.by_answer("client", "none", "a\0b") == []


def test_a_server_that_goes_away_is_a_sentence_and_work_goes_on_when_it_is_back(own: Cluster, tmp_path: Path) -> None:
    config = on(own.database(), tmp_path / "home")
    with closing(Journal.open(config)) as journal:
        kept = answered(journal)
        own.stop(kill=True)
        faults: list[str] = []

        def refused() -> bool:
            try:
                answered(journal)
            except JournalUnavailable as e:
                faults.append(str(e))
            return bool(faults)

        wait_until(refused, 30)  # the process behind a connection may outlive its server for a moment, and answer
        assert "journal postgresql://" in faults[0] and " cannot be reached" in faults[0]
        assert journal.store.write_fault is not None
        [said] = [text for check, level, text in examine_journal(config) if (check, level) == ("journal", "fault")]
        assert "check that the server runs" in said
        own.start()
        again = answered(journal)
        assert journal.store.write_fault is None
        assert {journal.turns.get(turn).state for turn in (kept, again)} == {TurnState.WAITING}  # type: ignore[union-attr]


def test_doctor_says_what_to_do(postgres: Cluster, tmp_path: Path) -> None:
    def said(url: str) -> list[tuple[str, str, str]]:
        return list(examine_journal(on(url, tmp_path / "home")))

    url = postgres.database()
    Journal.open(on(url, tmp_path / "home")).close()
    assert said(url)[0][:2] == ("journal", "ok")
    assert "make it with `createdb`" in said(postgres.url("nowhere"))[0][2]
    postgres.run("CREATE DATABASE bare")
    assert said(postgres.url("bare"))[0][1] == "note" and "is empty" in said(postgres.url("bare"))[0][2]
    postgres.run("CREATE ROLE guest LOGIN")
    [(_, level, text), *_] = said(url.replace("turnwise@", "guest@"))
    assert level == "fault" and "may not be written" in text


@pytest.mark.parametrize("secret", ["hunter2", "hun#ter2", "hun/ter2", "hun?ter2", "hun:ter2", "hun%40ter2"])
def test_a_password_is_never_shown(tmp_path: Path, secret: str) -> None:
    url = f"postgresql://me:{secret}@127.0.0.1:1/journal?password=hunter2&sslpassword=hunter2"
    config = on(url, tmp_path / "home")
    with pytest.raises(JournalError) as caught:
        Journal.open(config)
    with pytest.raises(ConfigError) as refused:
        load_config(overrides={"home": tmp_path / "home", "journal.url": f"mysql://me:{secret}@host/journal"})
    shown = [as_toml(config), repr(config), str(caught.value), str(refused.value)]
    shown += [text for _, _, text in examine_journal(config)]
    assert not [text for text in shown if "hunter2" in text or secret in text or "ter2" in text]
    assert "postgresql://me:***@127.0.0.1:1/journal" in as_toml(config)


@pytest.mark.parametrize("url", ["postgresql://me:p@ss:w0rd@host/j", "postgresql://[::1/j", "postgresql://host:abc/j"])
def test_an_address_that_cannot_be_read_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    for given in ({"journal.url": url}, {"journal": url}):
        with pytest.raises(ConfigError) as refused:
            load_config(overrides={"home": tmp_path / "home", **given})
        assert "w0rd" not in str(refused.value)


def test_a_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    """A listener that takes connections and says nothing, as behind a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/journal?connect_timeout=2"
        with pytest.raises(JournalUnavailable, match="cannot be reached"):
            Journal.open(on(url, tmp_path / "home"))


def test_forgetting_is_for_the_home_of_the_gateway(config: Config, tmp_path: Path) -> None:
    """Its records have what is forgotten as well."""
    with (
        closing(Journal.open(config)) as serving,
        closing(Journal.open(on(config.journal.url, tmp_path / "b"))) as other,
    ):
        answered(other, session_id="private")
        assert serving.store.hold_for_gateway() and serving.store.still_held()
        for attempt in (lambda: forget(other, "private"), lambda: vacuum(other)):
            with pytest.raises(JournalError, match="another home"):
                attempt()
        assert other.sessions.find("private") == "private"


def test_a_gateway_that_lost_its_connection_takes_its_place_again_unless_another_has_it(
    config: Config, postgres: Cluster
) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    with closing(Journal.open(config)) as first, closing(Journal.open(config)) as second:
        assert first.store.hold_for_gateway() and not second.store.hold_for_gateway()
        postgres.run(cut)
        assert first.store.still_held() and second.store.has_gateway()
        postgres.run(cut)
        wait_until(second.store.hold_for_gateway)
        assert not first.store.still_held()


def test_tables_of_another_program_are_left_alone(postgres: Cluster, tmp_path: Path) -> None:
    postgres.run("CREATE DATABASE taken")
    postgres.run("CREATE TABLE sessions (name text)", "taken")
    with pytest.raises(JournalError, match="give turnwise a database of its own"):
        Journal.open(on(postgres.url("taken"), tmp_path / "home"))


def test_a_gateway_refuses_while_its_server_is_away_and_goes_on_afterwards(
    own: Cluster, tmp_path: Path, tokenizer: Tokenizer, model_dir: Path
) -> None:
    config = on(own.database(), tmp_path / "home")
    stub = StubEngine(tokenizer, scripted)
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        token = (config.home / "token").read_text().strip()

        def ask(text: str) -> httpx.Response:
            body = {"model": "turnwise", "messages": [{"role": "user", "content": f"say: {text}"}]}
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.post(f"{thread.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

        assert ask("one").json()["choices"][0]["message"]["content"] == "one"
        own.stop(kill=True)
        refused = ask("two")
        assert refused.status_code == 507 and "could not be recorded" in refused.text
        wait_until(lambda: "journal" in httpx.get(f"{thread.url}/readyz", timeout=60).json().get("degraded", {}), 60)
        own.start()
        kept = ask("three")
        assert kept.status_code == 200, kept.text
        with closing(Journal.open(config)) as journal:
            turn = journal.turns.get(kept.json()["id"].removeprefix("chatcmpl-"))
            assert turn is not None and text_of(turn.answer) == "three"
        thread.stop()
