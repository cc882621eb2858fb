"""What `turnwise status` says when the gate stands in the way of every update: in red, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.journal.test_queue import Clock, judged, open_journal
from tests.journal.test_refusals import refuse_next
from turnwise.cli import main as cli

RED, PLAIN = "\x1b[31m", "\x1b[0m"


def gate_row(home: Path, refusals: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The row of the gate in the table of a home whose last batches were refused."""
    journal = open_journal(home, Clock(), min_batch=2, max_batch=6, max_age_s=100)
    for _ in range(refusals):
        judged(journal), judged(journal)
        refuse_next(journal)
    journal.close()
    screen = Console(width=400, force_terminal=True, color_system="standard")
    monkeypatch.setattr(cli, "out", screen)
    with screen.capture() as captured:
        cli.status(home=home)
    [row] = [line for line in captured.get().splitlines() if "gate" in "".join(line.split("│")[1:2])]
    return row


def test_three_refused_batches_in_a_row_are_a_red_row_that_says_why_and_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = gate_row(home, 3, monkeypatch)
    said = (
        "nothing new is learned: the gate refused the last 3 batches, because too far (gate.max_step_kl = 0.5). "
        "To go on: lower train.lr"
    )
    assert f"{RED}gate{PLAIN}" in row and f"{RED}{said}{PLAIN}" in row


def test_two_are_counted_and_are_no_alarm(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = gate_row(home, 2, monkeypatch)
    assert "refused 2 batches since the last version" in row and RED not in row
