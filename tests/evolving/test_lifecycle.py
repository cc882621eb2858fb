"""Candidates on trial: who goes without, what is counted, and what is decided."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.skills.texts import text
from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.evolving.lifecycle import chance_of_help, decide_on
from turnwise.journal import Journal
from turnwise.journal.skills.records import SkillChange, SkillTrial
from turnwise.skills.serving import is_withheld
from turnwise.types import SkillState

CANDIDATE = SkillState.CANDIDATE


@pytest.mark.parametrize(
    ("trial", "to"),
    [
        (SkillTrial(7, 0, 0, 3), None),  # too few
        (SkillTrial(8, 0, 0, 3), SkillState.PROVEN),
        (SkillTrial(0, 8, 3, 0), SkillState.RETIRED),
        (SkillTrial(4, 4, 2, 2), None),
        (SkillTrial(20, 20, 10, 10), SkillState.RETIRED),  # it does not help
        (SkillTrial(0, 8), None),  # nothing to compare with
        (SkillTrial(0, 20), SkillState.RETIRED),
        (SkillTrial(30, 0), SkillState.PROVEN),
    ],
)
def test_what_is_decided(trial: SkillTrial, to: SkillState | None) -> None:
    assert decide_on(CANDIDATE, trial) is to
    for state in set(SkillState) - {CANDIDATE}:
        assert decide_on(state, trial) is None, "only candidates are on trial"


def test_the_chance_is_that_of_the_textbook() -> None:
    """P(p > q) of two Beta posteriors: 1/2 where both are alike, 5/6 of (1, 0) against (0, 1)."""
    assert chance_of_help(SkillTrial()) == pytest.approx(0.5)
    assert chance_of_help(SkillTrial(3, 2, 3, 2)) == pytest.approx(0.5)
    assert chance_of_help(SkillTrial(1, 0, 0, 1)) == pytest.approx(5 / 6)


@given(*[st.integers(0, 30)] * 4)
def test_the_chance_and_its_opposite_are_one(a: int, b: int, c: int, d: int) -> None:
    both = chance_of_help(SkillTrial(a, b, c, d)) + chance_of_help(SkillTrial(c, d, a, b))
    assert both == pytest.approx(1)


def test_a_share_of_sessions_goes_without_and_always_the_same_ones() -> None:
    sessions = [uuid.UUID(int=n).hex for n in range(2000)]
    out = [session for session in sessions if is_withheld(session, 7, 0.1)]
    assert 150 < len(out) < 250 and out == [session for session in sessions if is_withheld(session, 7, 0.1)]
    assert not any(is_withheld(session, 7, 0.0) for session in sessions)
    assert out != [session for session in sessions if is_withheld(session, 8, 0.1)], "other sessions for another skill"


def test_a_trial_counts_judged_turns_with_and_without(tmp_path: Path) -> None:
    with closing(Journal.open(load_config(overrides={"home": tmp_path / "home"}))) as journal:
        source = answered(journal, session_id="source")
        change = SkillChange("tidy-dates", CANDIDATE, text(), ((source, "source"),))
        version = journal.skills.evolve(journal.skills.current(), "evolve", [change]).entries["tidy-dates"].version
        for score, withheld in ((1, False), (1, False), (-1, False), (1, True), (-1, True), (-1, True), (None, True)):
            some: dict[str, object] = {"withheld": (version,)} if withheld else {"skills": (version,)}
            fields = {"session_id": uuid.uuid4().hex, "generation": 1} | some
            turn = answered(journal, None, None, **fields)
            if score is not None:
                journal.verdicts.feedback(turn, score, None)
            assert journal.skills.used(turn) == (() if withheld else (version,))
        assert journal.skills.trials([version]) == {version: SkillTrial(2, 1, 1, 2)}
        assert journal.skills.uses()["tidy-dates"].turns == 3, "those that it stood in"
