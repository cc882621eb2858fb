"""What must be true in the journal after a session of ten steps, each one tool call and one answer."""

from __future__ import annotations

from typing import Any

from tests.clients.conftest import Bench
from tests.support.scripted_agent import MARK

STEPS = 10


def texts(messages: list[dict[str, Any]] | None) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in messages or []]


def assert_one_session_of_steps(bench: Bench, result_of: str, steps: int = STEPS) -> list[dict[str, Any]]:
    """All main turns are one session, in order; each call is answered by its result, each answer by the next step.

    `result_of` is what the tool's output holds, with `{}` for the step. Gives the turns.
    """
    assert len(bench.main_sessions()) == 1, bench.story()
    turns = bench.main_sessions()[0]
    assert len(turns) == 2 * steps, bench.story()
    for i, turn in enumerate(turns[:-1]):
        step = i // 2 + 1
        came_back = texts(turn["next_state"])
        assert came_back, f"turn {i} has no next state\n{bench.story()}"
        if i % 2 == 0:
            assert turn["finish_reason"] == "tool_calls"
            assert any(role == "tool" and result_of.format(step) in text for role, text in came_back), bench.story()
        else:
            assert turn["finish_reason"] == "stop"
            said = [text for role, text in came_back if role == "user" and MARK.search(text)]
            assert said and MARK.findall(said[-1]) == [str(step + 1)], bench.story()
        assert not any(role in ("assistant", "system") for role, _ in came_back), bench.story()
    assert turns[-1]["next_state"] is None
    return turns


def assert_one_chain(bench: Bench, calls: int = STEPS) -> None:
    """One session in which every call is followed by its own result."""
    assert len(bench.main_sessions()) == 1, bench.story()
    turns = bench.main_sessions()[0]
    assert len(turns) == calls + 1, bench.story()
    for i, turn in enumerate(turns[:-1]):
        came_back = texts(turn["next_state"])
        if i < STEPS:
            assert any(f"result-{i}" in text for _, text in came_back), f"turn {i}\n{bench.story()}"
        assert not any(role in ("assistant", "system") for role, _ in came_back), bench.story()
