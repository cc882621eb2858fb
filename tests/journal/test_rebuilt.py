"""What updates read is kept and read again; rebuilt versions take the place of others in one step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from tests.support.versions import answered, set_aside
from turnwise.config import Config, load_config
from turnwise.errors import JournalError, LeaseLost, PlaceTaken
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.queue.rebuilt import RebuildNote, RebuiltUpdate
from turnwise.journal.replay.anew import begin_anew
from turnwise.types import Batch, Exclusion, PolicyVersion, TurnState


@pytest.fixture
def config(tmp_path) -> Config:
    return load_config(overrides={"home": tmp_path / "home", "gate.probe_share": 0.0})


def learned(journal: Journal, *turns: str, hint: str | None = None) -> Batch:
    """A batch of these turns, each a session of its own, which became a version."""
    for turn in turns:
        answered(journal, turn, session_id=f"session-{turn}", version=journal.versions.latest())
        journal.verdicts.feedback(turn, 1, hint and f"{hint} {turn}")
    batch = journal.batches.claim("trainer", 60, at_once=True)
    assert batch is not None
    journal.updates.keep(batch, [probe.turn_id for probe in journal.batches.gate_probes(9, turns)])
    number = journal.batches.reserve_version(batch)
    made = PolicyVersion(number, batch.parent, f"versions/v{number}", 1.0, {"loss": 1.0}, {"alpha": 1.0})
    journal.batches.finish(batch, made)
    return batch


def rebuilt(journal: Journal, batch: Batch, old: int, number: int, parent: int, turns: list[str]) -> RebuiltUpdate:
    version = PolicyVersion(number, parent, f"versions/v{number}", 2.0, {"loss": 2.0}, {"alpha": 0.5}, turns)
    return RebuiltUpdate(batch.id, old, version, version.gate)


def state(journal: Journal, turn: str) -> tuple[str, str | None]:
    with journal.store.reading() as c:
        columns = schema.turns.c
        row = c.execute(select(columns.state, columns.exclusion).where(columns.id == turn)).one()
        return row.state, row.exclusion


def test_what_an_update_read_is_read_again_without_what_is_forgotten(journal: Journal) -> None:
    probe = answered(journal, session_id="aside")
    journal.verdicts.feedback(probe, 1, None)
    set_aside(journal, probe)
    batch = learned(journal, "a", "b", "c", hint="be brief")
    forget(journal, "session-b")
    found = journal.updates.again(batch.id, ["c"])
    assert [(s.turn_id, s.reward, s.hint) for s in found.samples] == [("a", 1.0, "be brief a")]
    assert (found.hints, found.hint_turns) == (["be brief a"], ["a"])
    assert [p.turn_id for p in found.probes] == [probe]
    assert found.left_out == ["c"]
    assert found.settings["train"]["method"] == journal.store.config.train.method
    assert journal.updates.examined_on([probe]) == {1}
    assert journal.updates.learned_from(["a"]) == {1}
    forget(journal, "aside")
    assert journal.updates.again(batch.id, ()).probes == []


def test_rewards_are_those_of_then_whatever_was_said_since(journal: Journal) -> None:
    batch = learned(journal, "a", "b")
    assert journal.verdicts.feedback("a", -1, "the other way") == (
        "taken for the next update: the turn was trained on otherwise"
    )
    found = journal.updates.again(batch.id, ())
    assert [(s.turn_id, s.reward, s.hint) for s in found.samples] == [("a", 1.0, None), ("b", 1.0, None)]


def test_a_batch_of_before_it_was_kept_is_not_read_again(journal: Journal) -> None:
    answered(journal, "a", session_id="s")
    journal.verdicts.feedback("a", 1, None)
    batch = journal.batches.claim("trainer", 60, at_once=True)
    assert batch is not None and not journal.updates.can_be_read(batch.id)
    with pytest.raises(JournalError, match="before it was kept"):
        journal.updates.again(batch.id, ())
    with pytest.raises(LeaseLost):
        journal.updates.keep(replace(batch, lease_token="another's"), [])


def test_rebuilt_versions_serve_and_the_others_are_gone_in_one_step(journal: Journal) -> None:
    first, second, third = (learned(journal, *turns) for turns in ("ab", "cd", "ef"))
    note = RebuildNote("session-c", [2], ["f"])
    journal.rebuilding.begin(note)
    assert journal.rebuilding.noted("session-c") == note
    forget(journal, "session-c")
    place = journal.tuning.take("rebuild", 60, "rebuild-session-c")
    with pytest.raises(PlaceTaken, match="forget --retrain"):
        journal.tuning.refuse_if_taken(60, "another run")
    waits = journal.batches.waits_for()
    assert waits is not None and "`turnwise forget --retrain` has the trainer's place" in waits
    done = [rebuilt(journal, second, 2, 4, 1, ["d"]), rebuilt(journal, third, 3, 5, 4, ["e"])]
    placed: list[str] = []

    def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        journal.rebuilding.publish(place, note.session, done, 1, [2, 3], ["f"], fail)
    assert journal.versions.latest() == 3 and len(journal.versions.all()) == 3, "nothing of it is recorded"
    journal.rebuilding.publish(place, note.session, done, 1, [2, 3], ["f"], lambda: placed.append("there"))
    assert placed == ["there"] and journal.versions.latest() == 5
    assert [(v.number, v.parent, v.pruned) for v in journal.versions.all()] == [
        (1, 0, False), (2, 1, True), (3, 2, True), (4, 1, False), (5, 4, False),
    ]  # fmt: skip
    assert journal.updates.batches_of([1, 2, 4, 5]) == {1: first.id, 4: second.id, 5: third.id}
    assert state(journal, "f") == (TurnState.EXCLUDED, Exclusion.FORGOTTEN)
    assert [state(journal, turn)[0] for turn in "abde"] == [TurnState.TRAINED] * 4
    assert journal.rebuilding.unfinished() == [] and journal.batches.any_open() is False
    gone = forget(journal, "session-d").versions
    assert gone == {2: ["d"], 4: ["d"]}, "both learned from it"


def test_what_nothing_came_of_is_ready_again_and_the_version_below_serves(journal: Journal) -> None:
    learned(journal, "a")
    second = learned(journal, "b", "c")
    journal.rebuilding.begin(RebuildNote("session-b", [2], []))
    forget(journal, "session-b")
    place = journal.tuning.take("rebuild", 60, "rebuild-session-b")
    refused = RebuiltUpdate(second.id, 2, None, {"accepted": False, "reasons": ["its answers repeat"]})
    journal.rebuilding.publish(place, "session-b", [refused], 1, [2], [], lambda: None)
    assert journal.versions.latest() == 1
    assert state(journal, "c") == (TurnState.READY, None)
    again = journal.batches.claim("trainer", 60, at_once=True)
    assert again is not None and (again.parent, [s.turn_id for s in again.samples]) == (1, ["c"])
    journal.batches.release(again)
    journal.rebuilding.begin(RebuildNote("session-a", [1], []))
    place = journal.tuning.take("rebuild", 60, "rebuild-session-a")
    journal.rebuilding.publish(place, "session-a", [], 0, [1], [], lambda: None)
    assert journal.versions.latest() == 0, "the base model"


def test_who_lost_the_place_publishes_nothing(journal: Journal) -> None:
    batch = learned(journal, "a")
    place = journal.tuning.take("rebuild", 60, "rebuild-x")
    journal.versions.serve(0)
    with pytest.raises(LeaseLost):
        journal.rebuilding.publish(place, "x", [rebuilt(journal, batch, 1, 2, 0, ["a"])], 0, [1], [], lambda: None)
    assert len(journal.versions.all()) == 1


def test_a_promotion_keeps_why_and_gives_a_batch_under_way_back(journal: Journal) -> None:
    learned(journal, "a")
    learned(journal, "b")
    answered(journal, "c", session_id="c")
    journal.verdicts.feedback("c", 1, None)
    batch = journal.batches.claim("trainer", 60, at_once=True)
    assert batch is not None
    assert journal.versions.promote(1, "it was shorter") == 2
    assert [(p["version"], p["before"], p["reason"]) for p in journal.versions.promotions()] == [
        (1, 2, "it was shorter")
    ]
    with pytest.raises(LeaseLost):
        journal.batches.renew(batch, 60)
    with pytest.raises(JournalError, match="serves already"):
        journal.versions.promote(1, "again")
    assert journal.versions.verdicts_on(0) == {
        "praised": 0, "blamed": 0, "neutral": 0, "person_praised": 2, "person_blamed": 0,
    }  # fmt: skip


def test_a_journal_on_a_server_is_never_begun_anew(journal: Journal, place: str, tmp_path) -> None:
    if place == "postgres":
        url = journal.store.config.journal.model_copy(update={"url": "postgresql://somewhere/x"})
        journal.store.config = journal.store.config.model_copy(update={"journal": url})
    with pytest.raises(JournalError, match="no copy of it"):
        begin_anew(journal, journal.store.config.home)
