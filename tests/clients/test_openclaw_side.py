"""What the real OpenClaw asks for beside a person's turns, and the history that it compacted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.conftest import Bench, need
from tests.clients.openclaw_gateway import running_gateway
from tests.support.openclaw_story import check_story
from tests.support.scripted_agent import SUB_AGENT_STEP, message, openclaw_steps

pytestmark = pytest.mark.clients

SETTINGS = {
    "gateway": {"mode": "local", "auth": {"mode": "none"}},
    "tools": {"allow": ["exec", "read", "write", "sessions_spawn"], "toolSearch": False},
    "update": {"checkOnStart": False},
    "agents": {
        "defaults": {
            "heartbeat": {"every": "0m"},
            # so early that a second turn is enough for both
            "compaction": {"keepRecentTokens": 300, "memoryFlush": {"softThresholdTokens": 20_000}},
        }
    },
}
CONTEXT = 24_000
MAIN = "agent:main:main"


def text_of(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"])


@pytest.mark.timeout(900)
def test_titles_heartbeats_memory_sub_agents_and_compaction(bench: Bench) -> None:
    program = need("openclaw")
    file = bench.person / ".openclaw/openclaw.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(SETTINGS))
    bench.stub.max_model_len = CONTEXT
    bench.connect("openclaw")
    bench.stub.max_model_len = 200_000  # it counts tokens more sparingly than this tokenizer
    bench.stub.reply = openclaw_steps()
    try:
        with running_gateway(bench, program) as openclaw:
            key = openclaw.call("sessions.create", agentId="main", message=message(1))["key"]
            openclaw.wait_for(lambda body: "session title" in text_of(body))
            openclaw.wait_for(lambda body: "Pre-compaction memory flush" in text_of(body))
            openclaw.say(key, message(2))
            openclaw.run("sessions", "compact", key, "--json")
            openclaw.say(key, message(3))

            openclaw.say(MAIN, message(4))
            openclaw.run("system", "event", "--text", "Look at the oven.", "--mode", "now")
            openclaw.wait_for(lambda body: "heartbeat monitor" in text_of(body))
            openclaw.say(MAIN, message(5))

            openclaw.say(MAIN, message(SUB_AGENT_STEP))
            openclaw.wait_for(lambda body: "A background task completed" in text_of(body))
    finally:
        bench.record("openclaw-side")
    check_story(bench.sessions())
