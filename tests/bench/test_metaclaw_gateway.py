"""The bench's agent at the real gateway: a day is one session, and each feedback is the next state of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Running
from tests.support.workdays import choice, write_days
from turnwise.bench.metaclaw.data import read_days
from turnwise.bench.metaclaw.model_agent import ModelAgent, ModelAt
from turnwise.bench.metaclaw.play import play_day
from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import check_machine


def test_a_day_is_a_session_whose_answers_have_next_states(gateway: Running, tmp_path: Path) -> None:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))
    first = choice("r1", "A") | {"question": "say: \\bbox{A}"}
    days = read_days(write_days(tmp_path / "data", [first, choice("r2", "B")]))
    at = ModelAt(f"{gateway.url}/v1", "turnwise", gateway.token, "bench")
    points = play_day(days[0], ModelAgent(at), tmp_path / "work")
    assert [point.passed for point in points] == [True, False]
    session = gateway.journal.sessions.show("bench-day01")
    assert session is not None and session["close_reason"] is not None
    turns = session["turns"]
    assert [turn["kind"] for turn in turns] == ["main"] * 3
    said = [message["content"] for turn in turns for message in turn["added"] if message["role"] == "user"]
    assert said == [first["question"], "Right.\n\nWhich are right? Answer using \\bbox{X,Y}.",
                    "That is not right.\nB is right."]  # fmt: skip
