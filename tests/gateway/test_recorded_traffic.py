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
from tests.support.scripted_agent import Script
from tests.support.tap import read_recording
from turnwise.types import TurnKind

TRAFFIC = Path(__file__).parent / "traffic"
TOOLS = {"openclaw": "exec", "openai": "run", "anthropic": "run", "opencode": "bash"}
"""The tool that a recording's agent was told to call."""
UNSENT = {"content-length", "authorization", "x-api-key", "host"}
NAMES = {"session_id", "x-session-affinity", "x-client-request-id"}


def replay(gateway: Running, name: str, named: bool) -> list[dict[str, Any]]:
    """Send the recording's requests one after the other; gives the sessions they made, with their turns.

    `named` False takes out the key that tells which conversation a request belongs to.
    """
    tool = TOOLS[name.partition("-")[0]]
    gateway.stub.max_model_len = 200_000
    gateway.stub.reply = Script(lambda step: (tool, {"command": f"echo result-{step}"}))
    for request in read_recording(TRAFFIC / f"{name}.json"):
        if request["method"] == "POST":
            headers = {k: v for k, v in request["headers"].items() if k not in UNSENT} | gateway.auth
            if not named:
                request["body"].pop("prompt_cache_key", None)
                headers = {k: v for k, v in headers.items() if k not in NAMES}
            answer = httpx.post(gateway.url + request["path"], json=request["body"], headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
    found = [gateway.journal.show_session(row["id"]) for row in reversed(gateway.journal.list_sessions())]
    return [session for session in found if session is not None]


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("name", sorted(path.stem for path in TRAFFIC.glob("*.json")))
def test_a_recording_is_one_session_with_right_next_states(gateway: Running, name: str, named: bool) -> None:
    sessions = replay(gateway, name, named)
    main = [[t for t in s["turns"] if t["kind"] == TurnKind.MAIN] for s in sessions]
    main = [turns for turns in main if turns]
    assert len(main) == 1, [len(turns) for turns in main]
    for i, turn in enumerate(main[0][:-1]):
        came_back = [(m["role"], m["content"]) for m in turn["next_state"] or []]
        if turn["finish_reason"] == "tool_calls":
            assert any(role == "tool" and f"result-{i // 2 + 1}" in text for role, text in came_back), came_back
        else:
            assert any(role == "user" and f"[step {i // 2 + 2}]" in text for role, text in came_back), came_back
        assert not any(role in ("assistant", "system") for role, _ in came_back)
