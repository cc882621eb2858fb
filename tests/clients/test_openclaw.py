"""The real OpenClaw client: ten steps with tool calls in one conversation, by its small profile and its default one."""

from __future__ import annotations

import json
import time

import pytest

from tests.clients.checks import STEPS, assert_one_session_of_steps
from tests.clients.conftest import Bench, need, shown
from tests.support.scripted_agent import Script, message
from tests.support.versions import publish

pytestmark = pytest.mark.clients

MINIMAL = {"tools": {"allow": ["exec", "read", "write"], "toolSearch": False}}


def converse(bench: Bench, settings: dict[str, object], named: bool, steps: int = STEPS) -> None:
    """`named`: each request says which conversation it belongs to, as `turnwise connect` sets it up."""
    openclaw = need("openclaw")
    file = bench.person / ".openclaw/openclaw.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))
    bench.connect("openclaw")
    if not named:
        text = file.read_text()
        assert '"supportsPromptCacheKey": true' in text
        file.write_text(text.replace('"supportsPromptCacheKey": true', '"supportsPromptCacheKey": false'))
    bench.stub.reply = Script(lambda step: ("exec", {"command": f"echo result-{step}"}))
    for step in range(1, steps + 1):
        if step == steps // 2 + 1:
            publish(bench.journal)
            time.sleep(1.0)  # the gateway looks for a new version a few times a second
        done = bench.run(openclaw, "agent", "--local", "--session-id", "s1", "--message", message(step), "--json")
        assert done.returncode == 0, shown(done)
        assert f"Step {step} is done." in done.stdout, shown(done)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("profile", "settings"), [("minimal", MINIMAL), ("default", {})])
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_ten_steps(bench: Bench, profile: str, settings: dict[str, object], named: bool) -> None:
    try:
        converse(bench, settings, named)
    finally:
        bench.record(f"openclaw-{profile}" if named else f"openclaw-{profile}-unnamed")
    turns = assert_one_session_of_steps(bench, "result-{}")
    assert [t["version"] for t in turns] == [0] * STEPS + [1] * STEPS
