"""Old turns and versions go when a limit is set; what training, a conversation or a version's story needs stays."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Running
from tests.support.earlier import take_back
from tests.support.servers import wait_until
from tests.support.versions import answered, new_turn, publish, set_aside
from turnwise.cli.journal import amount
from turnwise.config import Config, load_config
from turnwise.doctor.journal import examine_journal
from turnwise.errors import JournalError, TurnwiseError
from turnwise.journal import Answer, Journal, schema
from turnwise.journal.deletion.erasing import vacuum
from turnwise.journal.deletion.retention import Keeper, bound_outbox, prune, prune_records, prune_versions
from turnwise.journal.records.export import RecordsExporter
from turnwise.messages import saying
from turnwise.types import FinishReason, TurnState

NOW = 1_800_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(config: Config, clock: Clock):  # type: ignore[no-untyped-def]
    opened = Journal.open(config, clock)
    yield opened
    opened.close()


def add(journal: Journal, parent: str | None = None, session: str = "s", n: int = 0) -> str:
    """An answered turn that is stored as what it adds to its parent."""
    new = new_turn(
        session_id=session,
        parent_id=parent,
        extends_parent=parent is not None,
        messages=[saying("user", f"{n} " + "word " * 20)],
        prompt_ids=[n, n + 1],
        tools=[{"type": "function", "function": {"name": "look"}}],
    )
    journal.turns.begin(new)
    message = saying("assistant", f"answer {n}")
    journal.turns.finish(new.id, Answer(message, f"c-{new.id}", FinishReason.STOP, [7, n], [-0.5, -0.25]))
    return new.id


def content(journal: Journal, turn_id: str) -> object:
    turn = journal.turns.get(turn_id)
    return turn and (turn.messages, turn.prompt_ids, turn.tools, turn.answer, turn.response_ids)


def ids(journal: Journal) -> set[str]:
    with journal.store.reading() as c:
        return set(c.exec_driver_sql("SELECT id FROM turns").scalars())


def put(journal: Journal, turn_id: str, state: TurnState) -> None:
    with journal.store.transaction() as c:
        c.execute(schema.turns.update().where(schema.turns.c.id == turn_id).values(state=state))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_stays_reads_as_before(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Conversations of any shape, cut at any age: a turn that stays has the same messages, ids and tools."""
    clock = Clock()
    journal = Journal.open(load_config(overrides={"home": tmp_path_factory.mktemp("home")}), clock)
    turns: list[tuple[str, float, TurnState]] = []
    for n in range(data.draw(st.integers(1, 12))):
        clock.now += 1
        session = data.draw(st.sampled_from(["a", "b"]))
        of_session = [turn for turn in turns if turn[0].startswith(session)]
        parent = data.draw(st.sampled_from([None, *(turn[0] for turn in of_session)])) if of_session else None
        turn_id = add(journal, parent, session, n)
        renamed = f"{session}{n:03d}"
        with journal.store.transaction() as c:
            c.execute(schema.turns.update().where(schema.turns.c.id == turn_id).values(id=renamed))
        state = data.draw(st.sampled_from([TurnState.EXCLUDED, TurnState.TRAINED, TurnState.READY, TurnState.JUDGING]))
        put(journal, renamed, state)
        turns.append((renamed, clock.now, state))
    cut = NOW + data.draw(st.integers(0, len(turns) + 1))
    kept = {name for name, at, state in turns if at >= cut or state in (TurnState.READY, TurnState.JUDGING)}
    before = {name: content(journal, name) for name in kept}
    assert prune(journal, cut, None, dry_run=True).turns == len(turns) - len(kept)
    assert {name: content(journal, name) for name in kept} == before and len(ids(journal)) == len(turns)
    prune(journal, cut, None)
    assert ids(journal) == kept
    assert {name: content(journal, name) for name in kept} == before
    with journal.store.reading() as c:
        assert len(c.execute(schema.blobs.select()).all()) == (1 if kept else 0)
        if c.dialect.name == "sqlite":  # PostgreSQL has looked at each of them already
            assert c.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    journal.close()


@pytest.mark.files
def test_size_is_kept_and_the_file_shrinks_when_asked(journal: Journal) -> None:
    for n in range(400):
        put(journal, add(journal, session=f"s{n}", n=n), TurnState.EXCLUDED)
        journal.sessions.close(f"s{n}", "done")
    with journal.store.reading() as c:
        size = journal.store.database.used_bytes(c)
    done = prune(journal, None, size * 3 // 4)
    with journal.store.reading() as c:
        assert journal.store.database.used_bytes(c) < size
    assert 100 <= done.turns < 400 and done.sessions == done.turns, "of what is not the outbox"
    assert journal.sessions.show("s399") and not journal.sessions.show("s0"), "the oldest first"
    before, after = vacuum(journal)
    assert after < before


def test_tools_are_stored_once(journal: Journal) -> None:
    tools = [{"type": "function", "function": {"name": f"tool-{random.random()}", "description": str(random.random())}}
             for _ in range(300)]  # fmt: skip
    for n in range(10):
        new = new_turn(session_id=f"s{n}", tools=tools)
        journal.turns.begin(new)
        assert journal.turns.get(new.id).tools == tools  # type: ignore[union-attr]
    with journal.store.reading() as c:
        sizes = c.exec_driver_sql("SELECT length(data) FROM blobs").scalars().all()
        assert c.exec_driver_sql("SELECT max(length(tools)) FROM turns").scalar() is None
    assert len(sizes) == 1


def test_what_a_version_learned_from_stays_known(journal: Journal, clock: Clock) -> None:
    number = publish(journal)
    learned = journal.versions.get(number).turn_ids  # type: ignore[union-attr]
    session = journal.turns.get(learned[0]).session_id  # type: ignore[union-attr]
    for _ in range(40):  # newer ones for the gate
        journal.verdicts.feedback(answered(journal), 1, None)
    clock.now += 100
    prune(journal, clock.now - 50, None)
    assert journal.turns.get(learned[0]) is None
    assert journal.versions.get(number).turn_ids == learned  # type: ignore[union-attr]
    with journal.store.reading() as c:
        assert c.execute(schema.provenance.select()).all() == [(learned[0], session, number, None)]


def test_the_gate_keeps_what_it_looks_at(journal: Journal, clock: Clock) -> None:
    good = answered(journal)
    journal.verdicts.feedback(good, 1, None)
    set_aside(journal, good)
    clock.now += 100
    prune(journal, clock.now - 50, None)
    assert [s.turn_id for s in journal.batches.gate_probes(8, exclude=[])] == [good]


def test_old_versions_lose_their_weights_and_no_more(journal: Journal, config: Config, clock: Clock) -> None:
    numbers = []
    for _ in range(8):
        clock.now += 1
        numbers.append(publish(journal))
        folder = config.versions_dir / f"v{numbers[-1]}"
        folder.mkdir(parents=True)
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            (folder / name).write_text("{}")
    clock.now += 90 * 86_400
    answered(journal, version=2, pinned=True)  # asked for by its name
    journal.versions.serve(3)  # serves
    clock.now += 1
    journal.versions.serve(4)
    clock.now += 1
    journal.versions.serve(3)  # 4 was lately rolled back to
    assert prune_versions(journal, 2, dry_run=True) == [1, 5, 6]
    assert prune_versions(journal, 2) == [1, 5, 6]
    assert sorted(f.name for f in config.versions_dir.iterdir()) == ["v2", "v3", "v4", "v7", "v8"]
    assert [v.number for v in journal.versions.all() if v.pruned] == [1, 5, 6]
    assert journal.versions.newest(100) == [2, 3, 4, 7, 8]
    with pytest.raises(JournalError, match="version 5 was pruned"):
        journal.versions.serve(5)
    assert journal.versions.latest() == 3
    assert not [said for said in examine_journal(config) if said[0] == "versions"], (
        "what is meant to be gone is no fault"
    )
    (config.versions_dir / "v5").mkdir()  # a prune that was cut off before the folder went
    assert prune_versions(journal, 2) == [] and not (config.versions_dir / "v5").exists()


def test_the_parent_of_a_batch_under_way_stays(journal: Journal, config: Config, clock: Clock) -> None:
    for _ in range(2):
        publish(journal)
    journal.verdicts.feedback(answered(journal), 1, None)
    journal.store.config = load_config(overrides={"home": config.home, "train.min_batch": 1})
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None and batch.parent == 2
    with journal.store.transaction() as c:  # as if two more had been published beside it
        c.exec_driver_sql("UPDATE versions SET number = number + 10")
        c.exec_driver_sql(
            "INSERT INTO versions SELECT 2, 0, 'x', NULL, metrics, gate, 1, 1, 0, NULL, NULL FROM versions LIMIT 1"
        )
    assert prune_versions(journal, 1) == [11]


def test_a_pruned_version_is_a_clear_404(gateway: Running) -> None:
    publish(gateway.journal)
    with gateway.journal.store.transaction() as c:
        c.execute(schema.versions.update().values(pruned_at=1.0))
    reply = gateway.client().with_options(max_retries=0)
    with pytest.raises(Exception, match="version 1 was pruned") as fault:
        reply.chat.completions.create(model="turnwise@v1", messages=[{"role": "user", "content": "hi"}])
    assert fault.value.status_code == 404  # type: ignore[attr-defined]


def test_models_lists_the_newest_and_finds_the_rest_by_name(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.gateway.app.MOST_LISTED", 2)
    for _ in range(4):
        publish(gateway.journal)

    def listed_names() -> set[str]:
        return {model.id for model in gateway.client().models.list().data}

    wait_until(lambda: "turnwise@v4" in listed_names() and "turnwise@v1" not in listed_names())  # v1 served until now
    listed = gateway.client().models.list()
    names = {model.id for model in listed.data}
    assert {"turnwise", "turnwise@base", "turnwise@v3", "turnwise@v4"} <= names and "turnwise@v1" not in names
    assert listed.has_more is True  # type: ignore[attr-defined]
    assert gateway.client().models.retrieve("turnwise@v1").id == "turnwise@v1"


def test_the_gateway_applies_the_limits_a_little_at_a_time(config: Config, clock: Clock) -> None:
    limits = {"home": config.home, "journal.keep_days": 1, "journal.keep_versions": 1}
    journal = Journal.open(load_config(overrides=limits), clock)
    for n in range(510):
        put(journal, add(journal, n=n), TurnState.EXCLUDED)
    for _ in range(3):
        publish(journal)
    clock.now += 3 * 86_400
    add(journal)
    keeper = Keeper(journal)
    left = []
    for _ in range(4):
        keeper.tick()
        left.append(len(ids(journal)))
    assert left[0] > left[1] == left[-1], "one tick does not do it all"
    assert left[-1] == 1, "the turn of today; those that versions were trained on are nothing for the gate"
    assert [v.number for v in journal.versions.all() if v.pruned] == [1, 2]
    journal.close()


def test_a_clock_that_jumps_ahead_deletes_nothing(config: Config, clock: Clock) -> None:
    journal = Journal.open(load_config(overrides={"home": config.home, "journal.keep_days": 1}), clock)
    put(journal, add(journal), TurnState.EXCLUDED)
    keeper = Keeper(journal, steady=lambda: clock.now - NOW if clock.now < NOW + 86_400 * 30 else 60.0)
    clock.now += 86_400 * 365
    for _ in range(3):
        keeper.tick()
    assert len(ids(journal)) == 1
    journal.close()


def test_the_outbox_is_bounded_while_nothing_exports(journal: Journal, config: Config) -> None:
    for _ in range(30):
        answered(journal)
    with journal.store.reading() as c:
        before = c.exec_driver_sql("SELECT count(*), max(id) FROM events").one()
    assert bound_outbox(journal, most=20) == before[1] - 11
    with journal.store.reading() as c:
        assert c.exec_driver_sql("SELECT count(*), max(id) FROM events").one() == (12, before[1] + 1)
    RecordsExporter(journal).export_all()
    lines = [json.loads(line) for line in config.records_path.read_text().splitlines()]
    assert lines[-1]["kind"] == "gap" and lines[-1]["last"] == before[1] - 11, "the file says what it lacks"
    assert bound_outbox(journal, most=20) == 0


def test_old_records_go_when_asked(journal: Journal, config: Config, clock: Clock) -> None:
    answered(journal)
    exporter = RecordsExporter(journal)
    exporter.export_all()
    clock.now += 100
    lines = config.records_path.read_text().splitlines()
    assert prune_records(config, clock.now - 50, dry_run=True) == len(lines)
    assert len(config.records_path.read_text().splitlines()) == len(lines)
    assert prune_records(config, clock.now - 50) == len(lines)
    answered(journal)
    exporter.export_all()
    numbers = [json.loads(line)["event"] for line in config.records_path.read_text().splitlines()]
    assert numbers == sorted(set(numbers)) and numbers[0] == len(lines), "the export goes on behind the last event"


def test_vacuum_is_refused_beside_a_running_gateway(gateway: Running) -> None:
    with pytest.raises(JournalError, match="stop `turnwise serve` first"):
        vacuum(gateway.journal)


@pytest.mark.parametrize(("text", "seconds"), [("90d", 90 * 86_400), ("12h", 43_200), ("1.5 w", 907_200)])
def test_ages_are_read(text: str, seconds: float) -> None:
    assert amount(text, ("h", "d", "w"), "--older-than") == seconds


@pytest.mark.parametrize("text", ["90", "d", "-3d", "0d", "3 years", "", "1e9d"])
def test_other_ages_are_refused(text: str) -> None:
    with pytest.raises(TurnwiseError, match="--older-than is a number with one of h, d, w"):
        amount(text, ("h", "d", "w"), "--older-than")


@pytest.mark.files
def test_a_journal_of_before_keeps_its_figures_tools_and_versions(config: Config) -> None:
    """Down to the schema of before and up again: what the new columns and figures hold is found from the rows."""
    journal = Journal.open(config)
    publish(journal)
    turn_id = add(journal)
    journal.verdicts.feedback(turn_id, 1, None)
    set_aside(journal, turn_id)
    status, turn, version = journal.status.figures(), journal.turns.get(turn_id), journal.versions.get(1)
    take_back(journal, "0005")
    journal.close()
    with sqlite3.connect(config.journal_path) as db:
        assert db.execute("SELECT length(tools) FROM turns WHERE id = ?", (turn_id,)).fetchone()[0]
    db.close()
    journal = Journal.open(config)
    assert journal.status.figures() | {"loops": 0} == status | {"loops": 0}
    assert (journal.turns.get(turn_id), journal.versions.get(1)) == (turn, version)
    assert [s.turn_id for s in journal.batches.gate_probes(8, exclude=[])] == [turn_id]
    journal.close()


def test_paths_are_only_those_of_versions(journal: Journal, config: Config, tmp_path: Path) -> None:
    """A version's recorded path is not what is deleted: it may point anywhere."""
    publish(journal)
    publish(journal)
    precious = tmp_path / "precious"
    precious.mkdir()
    with journal.store.transaction() as c:
        c.execute(schema.versions.update().values(path=str(precious)))
    assert prune_versions(journal, 1) == [1]
    assert precious.exists()
