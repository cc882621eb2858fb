"""`turnwise forget --retrain` that was begun before, or beside others: whose session it is, and what it depends on by
now."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import insert, select
from typer.testing import CliRunner, Result

from tests.support.rows import turn_row
from tests.training.homes import Bench, feed
from tests.versions.lives import BATCHES, GONE, close, forget, live, serving
from turnwise.cli.main import app
from turnwise.errors import AmbiguousId, PlaceTaken, TurnwiseError
from turnwise.journal import Journal, schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.rebuilt import RebuildNote
from turnwise.training.publish import version_dir
from turnwise.types import TurnState
from turnwise.versions.rebuilding import forgetting


@pytest.fixture
def typed(tiny: Path) -> Callable[..., Result]:
    def command(bench: Bench, *args: str) -> Result:
        text = f'[model]\npath = "{tiny}"\n[train]\nlora_rank = 4\nwhen = "always"\n'
        (bench.config.home / "config.toml").write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, ["forget", *args, "--home", str(bench.config.home)])

    return command


def is_there(journal: Journal, session: str) -> bool:
    with journal.store.reading() as c:
        found = select(schema.sessions.c.id).where(schema.sessions.c.id == session)
        return c.execute(found).one_or_none() is not None


def test_a_dry_run_of_one_that_was_begun_changes_nothing(
    make: Callable[..., Bench], typed: Callable[..., Result]
) -> None:
    bench = make("one")
    live(bench)
    bench.journal.rebuilding.begin(RebuildNote(GONE, [2, 3]))
    told = typed(bench, GONE, "--retrain", "--dry-run")
    assert "would be rebuilt on version 1: version 2, version 3" in told.stdout, told.output
    assert is_there(bench.journal, GONE) and bench.journal.versions.latest() == 3
    refused = typed(bench, GONE, "--retrain")  # nobody says yes
    assert refused.exit_code == 1 and is_there(bench.journal, GONE)
    body = json.loads(typed(bench, GONE, "--retrain", "--dry-run", "--json").stdout)
    assert body["rebuild"] == [2, 3] and body["turns"] == 1


def test_a_session_whose_id_another_begins_with_is_there(make: Callable[..., Bench]) -> None:
    bench = make("one")
    feed(bench.journal, range(5, 6))  # session-5
    with bench.journal.store.transaction() as c:
        row = {str(key): value for key, value in c.execute(select(schema.sessions)).mappings().one().items()}
        row.pop("rowid", None)
        c.execute(insert(schema.sessions).values(row | {"id": "session-5" + "f" * 31}))
    bench.journal.rebuilding.begin(RebuildNote(GONE))
    forget(bench)
    assert not is_there(bench.journal, GONE)
    assert is_there(bench.journal, "session-5" + "f" * 31)


def test_what_learned_from_it_since_it_was_begun_is_rebuilt_too(make: Callable[..., Bench]) -> None:
    bench, never = make("one"), make("never")
    bench.journal.rebuilding.begin(RebuildNote(GONE))  # ended before it had deleted anything
    live(bench)
    live(never, without={5})
    forget(bench)
    assert close(serving(bench), serving(never))
    assert [v.number for v in bench.journal.versions.all() if v.pruned] == [2, 3]


def test_branches_that_were_to_go_too_go_when_it_goes_on(make: Callable[..., Bench]) -> None:
    bench = make("one")
    feed(bench.journal, range(5, 7))
    with bench.journal.store.transaction() as c:
        of = schema.sessions.c.id == "session-6"
        c.execute(schema.sessions.update().where(of).values(parent_id=GONE))
    bench.journal.rebuilding.begin(RebuildNote(GONE, with_branches=True))
    forget(bench)
    assert not is_there(bench.journal, "session-6")


def test_it_goes_on_under_every_name_of_the_session_and_never_with_another(make: Callable[..., Bench]) -> None:
    bench = make("one")
    feed(bench.journal, range(5, 6))
    notes = bench.journal.rebuilding
    unfinished = "session-" + "5" * 32
    for session in (unfinished, "a", "ab"):
        notes.begin(RebuildNote(session))
    for given in (unfinished, "5" * 32, f"{unfinished}/", "session-55", "55"):
        assert notes.meant(given) == unfinished
    assert notes.meant("a") == "a" and notes.meant("ab") == "ab"
    with pytest.raises(AmbiguousId, match="write 'session-5/'"):
        notes.meant(GONE)
    assert notes.meant(f"{GONE}/") == GONE and notes.noted(GONE) is None
    with pytest.raises(AmbiguousId, match="several"):
        notes.meant("session-")
    with pytest.raises(TurnwiseError, match="no session"):
        notes.meant("nobody")


def test_a_chain_that_became_shorter_cuts_what_is_done(make: Callable[..., Bench]) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5})
    want = never.weights(2)
    count = 0

    class Later(threading.Event):
        """Set when a second update is done."""

        def is_set(self) -> bool:
            nonlocal count
            done = bench.config.home / "rebuilding" / "done.json"
            count = len(json.loads(done.read_text())["done"]) if done.exists() else 0
            return count == 1

    with pytest.raises(TurnwiseError, match="the same command goes on"):
        forget(bench, stop=Later())
    done = bench.config.home / "rebuilding" / "done.json"
    told = json.loads(done.read_text())
    told["done"].append(told["done"][0] | {"number": 5, "batch": 3, "inputs": "another"})
    done.write_text(json.dumps(told))
    made = bench.config.home / "rebuilding" / "versions"
    (made / "v5").mkdir()
    bench.journal.versions.serve(2)
    forget(bench)
    assert bench.journal.versions.latest() == 4 and close(serving(bench), want)
    assert not version_dir(bench.config.versions_dir, 5).exists()


def test_turns_of_others_that_no_version_learned_from_yet_are_never_learned_from(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    feed(bench.journal, range(20, 23))
    with bench.journal.store.transaction() as c:
        skill = {"name": "brief", "content": b"words", "made_by": "evolver", "created_at": 1.0}
        for number in (1, 2):  # the second text holds the words of the first
            c.execute(insert(schema.skill_versions).values(skill | {"id": number, "number": number}))
        c.execute(insert(schema.skill_sources).values(version=1, turn_id="turn-5", session_id=GONE))
        c.execute(insert(schema.skill_uses).values(version=1, turn_id="turn-20"))
        c.execute(insert(schema.skill_uses).values(version=2, turn_id="turn-21"))
    forget(bench)
    for turn in ("turn-20", "turn-21"):
        row = turn_row(bench.journal, turn)
        assert (row.state, row.exclusion) == (TurnState.EXCLUDED, "forgotten by request"), turn
    assert turn_row(bench.journal, "turn-22").state == TurnState.READY


def test_no_trainer_comes_between_deleting_and_rebuilding(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5})
    feed(bench.journal, range(20, 24))
    delete, came = forgetting.forget_session, []

    def deleting(*args: object) -> object:
        done = delete(*args)  # type: ignore[arg-type]
        came.append(bench.journal.batches.claim("trainer", 60, at_once=True))
        return done

    monkeypatch.setattr(forgetting, "forget_session", deleting)
    forget(bench)
    assert came == [None]
    assert close(serving(bench), serving(never))


def test_a_wish_of_the_session_does_not_end_the_place_that_forgets_it(make: Callable[..., Bench]) -> None:
    bench = make("one", **{"train.method": "combined"})
    live(bench)
    with bench.journal.store.reading() as c:
        hinted = select(schema.verdicts.c.turn_id).where(schema.verdicts.c.hint.is_not(None))
        told = set(c.execute(hinted).scalars())
    assert told, "some turns have hints"
    session = sorted(told & {f"turn-{n}" for n in BATCHES[1]})[0].replace("turn", "session")
    forget(bench, session)
    assert bench.journal.versions.latest() == 5


def test_where_the_place_is_taken_nothing_is_deleted(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    bench.journal.tuning.take("another", 60, "sft-1")
    with pytest.raises(PlaceTaken):
        forget(bench)
    assert is_there(bench.journal, GONE) and bench.journal.rebuilding.unfinished() == []


def test_settings_that_cannot_be_read_are_found_out_before_anything_is_deleted(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    with bench.journal.store.transaction() as c:
        of = schema.batches.c.id == 2
        read = unpack_json(c.execute(select(schema.batches.c.read).where(of)).scalar_one())
        read["train"]["of_a_later_turnwise"] = 1
        c.execute(schema.batches.update().where(of).values(read=pack_json(read)))
    with pytest.raises(TurnwiseError, match="cannot be read by this turnwise"):
        forget(bench)
    assert is_there(bench.journal, GONE) and bench.journal.rebuilding.unfinished() == []
