"""`kill -9` amid group commits: what a caller was told is durable is there, whole, and nothing is half done."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.messages import text_of
from turnwise.types import TurnState

WRITER = """
import sys, uuid
from concurrent.futures import ThreadPoolExecutor
from tests.support.versions import new_turn
from turnwise.config import load_config
from turnwise.journal import Answer, Journal
from turnwise.messages import saying
from turnwise.types import FinishReason

journal = Journal.open(load_config(overrides={"home": sys.argv[1]}))

def talk(number):
    before = None
    while True:
        turn = new_turn(session_id=f"s{number}", parent_id=before, next_state=[saying("user", "no")],
                        answers=before)
        journal.turns.begin(turn)
        sys.stdout.write(f"begun {turn.id}\\n")
        answer = saying("assistant", turn.id)
        journal.turns.finish(turn.id, Answer(answer, turn.id, FinishReason.STOP, [7, 8], [-0.5, -0.25]))
        sys.stdout.write(f"answered {turn.id}\\n")
        sys.stdout.flush()
        before = turn.id

with ThreadPoolExecutor(16) as pool:
    list(pool.map(talk, range(16)))
"""


@pytest.mark.parametrize("after_s", [0.1, 0.25, 0.4])
def test_nothing_that_was_promised_is_lost(
    tmp_path: Path, after_s: float, place: str, request: pytest.FixtureRequest
) -> None:
    if place == "postgres":  # what another process opens is told by the home's own configuration
        url = request.getfixturevalue("postgres").database()
        (tmp_path / "config.toml").write_text(f'[journal]\nurl = "{url}"\n')
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline().split()]
        while told[-1] and told[-1][0] != "answered":
            told.append(writer.stdout.readline().split())
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        told += [line.split() for line in writer.stdout.read().splitlines()]
    told = [words for words in told if len(words) == 2 and len(words[1]) == 32]
    journal = Journal.open(load_config(overrides={"home": tmp_path}))
    journal.turns.recover_interrupted()
    answered = {turn_id for what, turn_id in told if what == "answered"}
    assert answered
    for turn_id in answered:
        turn = journal.turns.get(turn_id)
        assert turn is not None
        assert turn.state in (TurnState.WAITING, TurnState.JUDGING)
        assert (text_of(turn.answer), turn.response_ids) == (turn_id, [7, 8])
    assert all(journal.turns.get(turn_id) is not None for what, turn_id in told if what == "begun")
    for session in journal.sessions.last_seen():
        turns = journal.sessions.show(session["id"])["turns"]
        assert [turn["index"] for turn in turns] == list(range(len(turns)))
        states = [journal.turns.get(turn["id"]).state for turn in turns]
        assert all(state is TurnState.JUDGING for state in states[:-1]), "each reply is its predecessor's next state"
    journal.close()
