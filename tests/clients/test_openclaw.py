"""The real OpenClaw client: ten steps with tool calls in one conversation, by its small profile and its default one."""

from __future__ import annotations

import json
import time

import pytest

from tests.clients.checks import STEPS, assert_one_session_of_steps
from tests.clients.conftest import Bench, need, shown
from tests.support.scripted_agent import MARK, Script, message
from tests.support.versions import publish

pytestmark = pytest.mark.clients

MINIMAL = {"tools": {"allow": ["exec", "read", "write"], "toolSearch": False}}
SMALL = MINIMAL | {"agents": {"defaults": {"contextInjection": "never", "skipBootstrap": True}}}
PROFILES: dict[str, dict[str, object]] = {"minimal": MINIMAL, "default": {}}


def set_up(bench: Bench, settings: dict[str, object], named: bool) -> str:
    """OpenClaw, connected. `named`: each request says which conversation it belongs to, as `connect` arranges it."""
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
    return openclaw


def say(bench: Bench, openclaw: str, text: str) -> None:
    done = bench.run(openclaw, "agent", "--local", "--session-id", "s1", "--message", text, "--json")
    assert done.returncode == 0, shown(done)
    steps = MARK.findall(text)
    assert not steps or f"Step {steps[-1]} is done." in done.stdout, shown(done)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("profile", PROFILES)
def test_ten_steps(bench: Bench, profile: str) -> None:
    openclaw = set_up(bench, PROFILES[profile], named=True)
    try:
        for step in range(1, STEPS + 1):
            if step == STEPS // 2 + 1:
                publish(bench.journal)
                time.sleep(1.0)  # the gateway looks for a new version a few times a second
            say(bench, openclaw, message(step))
    finally:
        bench.record(f"openclaw-{profile}")
    turns = assert_one_session_of_steps(bench, "result-{}")
    assert [t["version"] for t in turns] == [0] * STEPS + [1] * STEPS


@pytest.mark.timeout(600)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_conversation_without_a_name_is_known_by_its_history(bench: Bench, profile: str) -> None:
    openclaw = set_up(bench, PROFILES[profile], named=False)
    try:
        for step in (1, 2, 3):
            say(bench, openclaw, message(step))
    finally:
        bench.record(f"openclaw-{profile}-unnamed")
    assert_one_session_of_steps(bench, "result-{}", steps=3)


@pytest.mark.timeout(300)
def test_a_prompt_that_does_not_fit_is_said_to_be_too_long(bench: Bench) -> None:
    bench.stub.max_model_len = 4096
    openclaw = set_up(bench, {}, named=True)
    done = bench.run(openclaw, "agent", "--local", "--session-id", "s1", "--message", message(1), "--json")
    bench.record("openclaw-too-long")
    assert "Context overflow: prompt too large for the model. Try /reset" in done.stdout, shown(done)
    statuses = {record["status"] for record in bench.tap.posts()}
    assert statuses <= {400}, shown(done)


@pytest.mark.timeout(300)
def test_the_small_profile_fits_the_embedded_model(bench: Bench) -> None:
    bench.stub.max_model_len = 8192
    openclaw = set_up(bench, SMALL, named=True)
    try:
        for step in (1, 2):
            say(bench, openclaw, message(step))
    finally:
        bench.record("openclaw-small")
    assert_one_session_of_steps(bench, "result-{}", steps=2)
