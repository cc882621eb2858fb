"""Generations of skills: after the bump to g + 1 nothing of generation g or below is trained on, in whatever order
turns are judged, skills evolve, batches are leased and versions published."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.skills.texts import text
from tests.support.versions import answered
from turnwise.config import Config, load_config
from turnwise.errors import JournalError, SkillError
from turnwise.journal import Journal, schema
from turnwise.journal.skills.records import SkillChange
from turnwise.messages import saying
from turnwise.types import Batch, Exclusion, PolicyVersion, SkillState, TurnState, Verdict

T = schema.turns.c


def settings(home: Path, **more: object) -> Config:
    fixed = {"home": home, "train.min_batch": 2, "train.max_batch": 3, "gate.probe_share": 0.0}
    return load_config(overrides={**fixed, **more})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal.open(settings(tmp_path / "home"))) as opened:
        yield opened


def judged(journal: Journal, score: int = 1, generation: int | None = 0) -> str:
    turn = answered(journal, session_id=f"s{random.random()}", generation=generation)
    journal.verdicts.feedback(turn, score, None)
    return turn


def evolve(journal: Journal, *turns: str) -> int:
    """A skill that was made from these failures; gives what it cost."""
    sources = tuple((turn, "session-1") for turn in turns)
    change = SkillChange("tidy-dates", SkillState.CANDIDATE, text(), sources)
    return journal.skills.evolve(journal.skills.current(), "evolve", [change]).cost


def where(journal: Journal, turn: str) -> tuple[TurnState, str | None]:
    with journal.store.reading() as c:
        row = c.execute(select(T.state, T.exclusion).where(T.id == turn)).one()
        return TurnState(row.state), row.exclusion


def publish(journal: Journal, batch: Batch) -> None:
    number = journal.batches.reserve_version(batch)
    journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", 0.0))


def test_a_bump_takes_the_generation_off_the_queue(journal: Journal) -> None:
    failure, other, unstamped = judged(journal, -1), judged(journal), judged(journal, 1, None)
    later = judged(journal, 1, 1)
    waiting = answered(journal, session_id="w", generation=0)
    assert evolve(journal, failure) == 3
    current = journal.skills.current()
    assert [(bump.generation, bump.cost) for bump in journal.skills.bumps()] == [(1, 3)]
    assert (current.generation, current.cost, current.entries["tidy-dates"].state) == (1, 3, SkillState.CANDIDATE)
    assert where(journal, failure) == (TurnState.EXCLUDED, Exclusion.SUPPORT_DATA)
    assert where(journal, other) == where(journal, unstamped) == (TurnState.EXCLUDED, Exclusion.EARLIER_GENERATION)
    assert where(journal, later)[0] is TurnState.READY, "of the generation that begins"
    assert where(journal, waiting)[0] is TurnState.WAITING
    journal.verdicts.feedback(waiting, 1, None)
    assert where(journal, waiting) == (TurnState.EXCLUDED, Exclusion.EARLIER_GENERATION)
    assert journal.skills.sources(current.entries["tidy-dates"].version) == [(failure, "session-1")]


def test_a_batch_under_way_is_put_back(journal: Journal) -> None:
    turns = [judged(journal), judged(journal)]
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None
    evolve(journal, turns[0])
    with pytest.raises(JournalError):
        publish(journal, batch)
    assert [where(journal, turn)[1] for turn in turns] == [Exclusion.SUPPORT_DATA, Exclusion.EARLIER_GENERATION]
    assert journal.batches.claim("trainer", 60) is None


def test_failures_are_never_trained_on_whatever_is_said_later(journal: Journal) -> None:
    failure = judged(journal, -1, 5)
    evolve(journal, failure)
    with suppress(JournalError):
        journal.verdicts.feedback(failure, 1, "But it was right.")
    assert where(journal, failure) == (TurnState.EXCLUDED, Exclusion.SUPPORT_DATA)


def test_a_failure_that_waited_while_another_began_a_generation_is_support_data(journal: Journal) -> None:
    waits, first = judged(journal, -1), judged(journal, -1)
    evolve(journal, first)
    assert where(journal, waits) == (TurnState.EXCLUDED, Exclusion.EARLIER_GENERATION)
    assert evolve(journal, waits) == 0
    assert where(journal, waits) == (TurnState.EXCLUDED, Exclusion.SUPPORT_DATA)
    assert journal.status.figures()["excluded"].get(Exclusion.EARLIER_GENERATION, 0) == 0


def test_the_wish_of_a_failure_reaches_the_lessons(journal: Journal) -> None:
    """A wish is made of a turn while a model writes a skill of it and others: it stays a wish."""
    failure, other = judged(journal, -1), judged(journal, -1)
    for turn, hint in ((failure, "use metric units"), (other, "that is wrong")):
        journal.verdicts.feedback(turn, -1, hint)
    wish = SkillChange("wish-metric", SkillState.ACTIVE, text("wish-metric"), ((failure, "session-1"),))
    journal.skills.change(journal.skills.current(), "extractive: wish-metric", "extractive", [wish])
    evolve(journal, failure, other)
    assert where(journal, failure) == where(journal, other) == (TurnState.EXCLUDED, Exclusion.SUPPORT_DATA)
    judged(journal, 1, 1), judged(journal, 1, 1)
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None and batch.hints == ["use metric units"]


def test_older_generations_can_be_kept(tmp_path: Path) -> None:
    with closing(Journal.open(settings(tmp_path / "kept", **{"skills.keep_older_generations": True}))) as journal:
        failure, other = judged(journal, -1), judged(journal)
        assert evolve(journal, failure) == 1
        assert where(journal, failure)[1] == Exclusion.SUPPORT_DATA and where(journal, other)[0] is TurnState.READY


def test_a_rollback_lowers_no_generation(journal: Journal) -> None:
    evolve(journal, judged(journal))
    back = journal.skills.go_back(journal.skills.current(), 0)
    assert (back.generation, back.entries) == (1, {})


def test_a_change_that_fails_bumps_nothing(journal: Journal) -> None:
    """All of it is one transaction: also when its last statement fails."""
    turn = judged(journal)
    base = journal.skills.current()
    with pytest.raises(SkillError):
        journal.skills.evolve(base, "evolve", [SkillChange("a", SkillState.CANDIDATE, text("a")),
                                               SkillChange("b", SkillState.CANDIDATE)])  # fmt: skip
    evolve(journal)
    with pytest.raises(SkillError, match="changed meanwhile"):
        journal.skills.evolve(base, "late", [])
    assert journal.skills.current().generation == 1 and journal.skills.history("a") == []
    assert where(journal, turn)[1] == Exclusion.EARLIER_GENERATION


@pytest.mark.parametrize("seed", range(8))
def test_nothing_of_an_earlier_generation_is_trained_in_any_order(journal: Journal, seed: int) -> None:
    chance = random.Random(seed)
    open_batches: list[Batch] = []
    made: dict[str, int] = {}
    support: set[str] = set()
    bumped_at: list[set[str]] = []  # what was trained when each bump was done
    published = 0

    def trained() -> set[str]:
        with journal.store.reading() as c:
            return set(c.execute(select(T.id).where(T.state == TurnState.TRAINED)).scalars())

    for _ in range(90):
        step = chance.choice(["ask", "ask", "ask", "react", "judge", "judge", "feedback", "claim", "finish", "evolve",
                              "close"])  # fmt: skip
        known = list(made)
        if step == "ask":
            stamp = max(journal.skills.current().generation - chance.choice([0, 0, 0, 1]), 0)  # or a stale picture
            made[answered(journal, session_id=f"s{chance.random()}", generation=stamp or None)] = stamp
        elif step == "react" and known:
            journal.turns.react(chance.choice(known), [saying("user", "no")])
        elif step == "judge":
            for task in journal.judging.claim("judge", 2, 60):
                journal.judging.record(task, Verdict(chance.choice([1, -1]), None, "test"))
        elif step == "feedback" and known:
            with suppress(JournalError):
                journal.verdicts.feedback(chance.choice(known), chance.choice([1, -1]), "words")
        elif step == "claim" and not open_batches:
            batch = journal.batches.claim("trainer", 60)
            open_batches += [batch] if batch is not None else []
        elif step == "finish" and open_batches:
            with suppress(JournalError):
                publish(journal, open_batches.pop())
                published += 1
        elif step == "close" and known:
            turn = journal.turns.get(chance.choice(known))
            assert turn is not None
            journal.sessions.close(turn.session_id, "done")
        elif step == "evolve" and known and chance.random() < 0.4:
            failures = chance.sample([turn for turn in known if turn not in trained()] or known, 1)
            support |= set(failures) - trained()
            evolve(journal, *failures)
            bumped_at.append(trained())
        done = trained()
        assert not done & support
        for generation, before in enumerate(bumped_at):
            assert not {turn for turn in done - before if made[turn] <= generation}
    assert bumped_at and made
