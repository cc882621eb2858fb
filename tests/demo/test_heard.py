"""What became of the person's words is read from a home, by commands that any user has, and said in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.journal.test_queue import judged, waiting_for_judge
from tests.support.versions import answered, publish
from turnwise.config import load_config
from turnwise.demo.heard import Heard, heard_in
from turnwise.journal import Journal
from turnwise.types import Exclusion, TurnState


@pytest.fixture
def journal(home: Path) -> Iterator[Journal]:
    with closing(Journal.open(load_config(overrides={"home": home, "gate.probe_share": 0.0}))) as opened:
        yield opened


def test_what_was_said_to_each_answer_is_read_with_what_became_of_it(home: Path, journal: Journal) -> None:
    """Turns that nobody has judged are among them; one to which nobody said anything is not."""
    publish(journal, judged(journal, -1, "be brief", session_id="learning-0"))
    judged(journal, 0, session_id="learning-0")
    waiting_for_judge(journal, answered(journal, session_id="learning-0"))
    answered(journal, session_id="learning-0")
    heard, unread = asyncio.run(heard_in(home, ["learning-0"]))
    assert heard == [
        Heard("the reply", -1, "be brief", "trained", learned_by=[1]),
        Heard("the reply", 0, None, "excluded", "no signal"),
        Heard("the reply", None, None, "judging"),
    ]
    assert unread == []


def test_a_session_that_cannot_be_read_is_named(home: Path, journal: Journal) -> None:
    judged(journal, 1, session_id="learning-0")
    heard, unread = asyncio.run(heard_in(home, ["learning-0", "learning-1"]))
    assert heard == [Heard("the reply", 1, None, "ready")] and unread == ["learning-1"]


def test_where_there_is_no_journal_nothing_could_be_read(home: Path) -> None:
    assert asyncio.run(heard_in(home, ["learning-0"])) == ([], ["the list of versions", "learning-0"])


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        (Heard("", 1, None, "trained", learned_by=[2]), "learned by version 2"),
        (Heard("", 1, None, "trained", learned_by=[2, 5]), "learned by versions 2 and 5"),
        (Heard("", 1, None, "trained"), "learned"),
        (Heard("", 1, None, "leased"), "in an update that was under way"),
        (Heard("", 1, None, "ready", learned_by=[2]), "waits for an update; learned by version 2 before"),
        (Heard("", None, None, "waiting"), "not judged yet"),
        (Heard("", 0, None, "excluded", "no valid vote"), "left out: the judge could not judge it"),
        (Heard("", 1, None, "excluded", "training on it failed"), "left out: training on it failed"),
    ],
)
def test_what_became_of_a_turn_is_said_in_plain_words(heard: Heard, said: str) -> None:
    assert heard.became() == said


@pytest.mark.parametrize("state", TurnState)
def test_there_are_words_for_every_state(state: TurnState) -> None:
    assert Heard("", None, None, state, Exclusion.MASKED if state is TurnState.EXCLUDED else None).became()
