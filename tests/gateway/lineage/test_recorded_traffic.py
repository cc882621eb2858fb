"""What real clients sent, sent again: each recording is one session of steps with right next states.

The recordings come from the tests in tests/clients, with the same script for the engine, so the histories in them hold
the answers that the engine gives here; ids of tool calls and reasoning differ as the client rewrote them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.support.openclaw_story import check_story
from tests.support.scripted_agent import (
    Script,
    aider_edits,
    browser_actions,
    message,
    mini_swe_agent,
    openclaw_steps,
    smolagents_code,
    ten_commands,
)
from tests.support.tap import read_recording
from turnwise.agents.known import SESSION_HEADERS
from turnwise.types import TurnKind

TRAFFIC = Path(__file__).parents[1] / "traffic"


def steps_with(tool: str) -> Script:
    more = {"description": "echo"} if tool == "bash" else {}
    return Script(lambda step: (tool, {"command": f"echo result-{step}"} | more))


STEPS = {
    "openclaw": "exec",
    "openai": "run",
    "anthropic": "run",
    "pydantic": "run",
    "langchain": "run",
    "opencode": "bash",
    "ai": "run",
}
"""Recordings of a message a step, and the tool that the agent was told to call."""
CHAINS = {
    "codex": ten_commands("exec_command", "cmd"),
    "claude": ten_commands("Bash", "command"),
    "mini": mini_swe_agent(),
    "qwen": ten_commands("run_shell_command", "command"),
    "smolagents": smolagents_code,
    "browser": browser_actions,
}
"""Recordings of one task with ten calls."""
OTHERS = {"openclaw-side": openclaw_steps(), "aider": aider_edits}
"""Recordings with a story of their own."""
UNSENT = {"content-length", "authorization", "x-api-key", "host"}
NAMES = {*SESSION_HEADERS, "x-session-id", "x-session-affinity", "x-client-request-id"}


def replay(gateway: Running, name: str, named: bool) -> list[dict[str, Any]]:
    """Send the recording's requests one after the other; gives the sessions they made, with their turns.

    `named` False takes out the key that tells which conversation a request belongs to.
    """
    agent = name.partition("-")[0]
    gateway.stub.max_model_len = 200_000
    gateway.stub.reply = OTHERS.get(name) or (CHAINS[agent] if agent in CHAINS else steps_with(STEPS[agent]))
    for request in read_recording(TRAFFIC / f"{name}.json"):
        if request["method"] == "POST":
            headers = {k: v.encode() for k, v in request["headers"].items() if k not in UNSENT}
            headers |= {k: v.encode() for k, v in gateway.auth.items()}
            if not named:
                for key in ("prompt_cache_key", "client_metadata", "metadata"):
                    request["body"].pop(key, None)
                headers = {k: v for k, v in headers.items() if k not in NAMES}
            answer = httpx.post(gateway.url + request["path"], json=request["body"], headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
    found = [gateway.journal.sessions.show(row["id"]) for row in reversed(gateway.journal.sessions.last_seen())]
    return [session for session in found if session is not None]


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("name", sorted({path.stem for path in TRAFFIC.glob("*.json")} - set(OTHERS)))
def test_a_recording_is_one_session_with_right_next_states(gateway: Running, name: str, named: bool) -> None:
    sessions = replay(gateway, name, named)
    main = [[t for t in s["turns"] if t["kind"] == TurnKind.MAIN] for s in sessions]
    main = [turns for turns in main if turns]
    assert len(main) == 1, [len(turns) for turns in main]
    for i, turn in enumerate(main[0][:-1]):
        came_back = [(m["role"], m["content"]) for m in turn["next_state"] or []]
        if name.partition("-")[0] in CHAINS:
            assert any(f"result-{i}" in text or i == 10 for _, text in came_back), came_back
        elif turn["finish_reason"] == "tool_calls":
            assert any(role == "tool" and f"result-{i // 2 + 1}" in text for role, text in came_back), came_back
        else:
            assert any(role == "user" and f"[step {i // 2 + 2}]" in text for role, text in came_back), came_back
        assert not any(role in ("assistant", "system") for role, _ in came_back)


def test_what_openclaw_asks_for_beside_its_turns_is_apart_and_a_compacted_history_is_a_branch(gateway: Running) -> None:
    check_story(replay(gateway, "openclaw-side", named=True))


def test_aider_is_one_session_although_it_answers_itself(gateway: Running) -> None:
    [session] = replay(gateway, "aider", named=True)
    turns = session["turns"]
    assert len(turns) == 4
    for step, turn in enumerate(turns[:-1], 1):
        [reaction] = turn["next_state"]
        assert reaction["role"] == "user" and reaction["content"].startswith(message(step + 1))
