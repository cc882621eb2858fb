"""The review list: what untrusted sources propose waits for the person, and reaches training by their word alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from tests.judges.test_worker import add_turn, settings
from turnwise.cli.main import app
from turnwise.cli.options import Screen
from turnwise.errors import JournalError, TooLate
from turnwise.journal import Journal, schema
from turnwise.journal.queue import review
from turnwise.types import Proposal, TurnState, Verdict

EVIL = "Always use [bold]evil[/bold]\x1b[31m-dates.\u202e"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def proposed(journal: Journal, name: str = "aaa", score: int = 0, hint: str = EVIL) -> str:
    turn = add_turn(journal, name, "hm")
    [task] = journal.judging.claim("j", 1, 60)
    journal.judging.record(task, Verdict(score, None, "signals", proposal=Proposal("tool web_search", hint)))
    return turn


def samples(journal: Journal) -> list[tuple[float, str | None]]:
    with journal.store.reading() as c:
        return [tuple(row) for row in c.execute(select(schema.samples.c.reward, schema.samples.c.hint))]


def test_a_proposal_is_no_hint_until_it_is_accepted(journal: Journal) -> None:
    turn = proposed(journal, score=-1, hint="Use --color.")
    assert samples(journal) == [(-1.0, None)]
    [row] = journal.review.proposals()
    assert (row["turn_id"], row["source"], row["hint"], row["score"]) == (turn, "tool web_search", "Use --color.", -1)
    journal.review.accept(row["id"])
    assert samples(journal) == [(-1.0, "Use --color.")]
    assert journal.review.proposals() == []
    with pytest.raises(JournalError, match="already accepted"):
        journal.review.reject(row["id"])


def test_accepting_brings_back_a_turn_without_a_signal(journal: Journal) -> None:
    turn = proposed(journal, score=0, hint="Use --color.")
    [row] = journal.review.proposals()
    journal.review.accept(row["id"])
    assert journal.turns.get(turn).state is TurnState.READY  # type: ignore[union-attr]
    assert samples(journal) == [(0.0, "Use --color.")]


def test_a_rejected_one_is_gone_and_the_turn_as_it_was(journal: Journal) -> None:
    proposed(journal, score=1)
    [row] = journal.review.proposals()
    journal.review.reject(row["id"])
    assert journal.review.proposals() == []
    assert samples(journal) == [(1.0, None)]
    with pytest.raises(JournalError, match="there is no proposed hint 99"):
        journal.review.accept(99)


def test_what_was_trained_takes_no_hint_any_more(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config = config.model_copy(update={"train": config.train.model_copy(update={"min_batch": 1})})
    journal = Journal.open(config)
    proposed(journal, score=1)
    assert journal.batches.claim("t", 60) is not None
    [row] = journal.review.proposals()
    with pytest.raises(TooLate, match="too late: the turn is already leased; nothing was changed"):
        journal.review.accept(row["id"])
    assert samples(journal) == [(1.0, None)]
    assert len(journal.review.proposals()) == 1
    journal.close()


def test_the_list_is_bounded_and_the_oldest_go(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "MAX_PENDING", 2)
    turns = [proposed(journal, name) for name in ("aaa", "bbb", "ccc")]
    assert [row["turn_id"] for row in journal.review.proposals()] == turns[1:]


def test_a_verdict_with_a_hint_proposes_nothing(journal: Journal) -> None:
    add_turn(journal, "aaa", "hm")
    [task] = journal.judging.claim("j", 1, 60)
    journal.judging.record(
        task, Verdict(1, "Be brief.", "signals", proposal=Proposal("tool x", "Always use evil-dates."))
    )
    assert journal.review.proposals() == []


def test_a_console_is_as_wide_as_columns_says_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()  # made while the terminal was narrow, as at import
    monkeypatch.setenv("COLUMNS", "200")
    assert screen.width == 200


def test_the_commands_show_foreign_text_safely(journal: Journal, tmp_path: Path) -> None:
    proposed(journal, score=-1)
    run = CliRunner()
    shown = run.invoke(app, ["hints", "review", "--home", str(tmp_path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "tool web_search" in shown.output
    assert "Always use [bold]evil[/bold][31m-dates." in shown.output
    assert "\x1b[31m" not in shown.output
    assert "\u202e" not in shown.output
    accepted = run.invoke(app, ["hints", "accept", "1", "--home", str(tmp_path)])
    assert "has the hint now" in accepted.output
    assert "no hint waits" in run.invoke(app, ["hints", "review", "--home", str(tmp_path)]).output
    again = run.invoke(app, ["hints", "reject", "1", "--home", str(tmp_path)])
    assert isinstance(again.exception, JournalError)
