"""Libraries that people build agents on, each in a small program of its own that calls tools through the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.checks import STEPS, assert_one_chain, assert_one_session_of_steps
from tests.clients.conftest import Bench, shown
from tests.support.scripted_agent import Script, browser_actions, message, smolagents_code, ten_commands

pytestmark = pytest.mark.clients

LIBRARIES = Path(__file__).parent / "libraries"
CALL = Script(lambda step: ("run", {"command": f"echo result-{step}"}))

TEN_STEPS = [
    ("sdks", "pydantic_ai_session.py", "/v1", []),
    ("sdks", "langchain_session.py", "/v1", []),
    ("npm-sdks", "ai_sdk_session.mjs", "/v1", ["whole"]),
    ("npm-sdks", "ai_sdk_session.mjs", "/v1", ["stream"]),
    ("npm-sdks", "ai_sdk_session.mjs", "/v1", ["said"]),
    ("npm-sdks", "anthropic_tool_runner_session.mjs", "", ["whole"]),
    ("npm-sdks", "anthropic_tool_runner_session.mjs", "", ["stream"]),
]
"""The installed package, its program, where the API begins, and how it asks."""


@pytest.mark.parametrize(("package", "script", "path", "mode"), TEN_STEPS)
def test_ten_steps(bench: Bench, package: str, script: str, path: str, mode: list[str]) -> None:
    bench.stub.reply = CALL
    steps = json.dumps([message(step) for step in range(1, STEPS + 1)])
    done = bench.run_script(package, LIBRARIES / script, bench.url + path, bench.token, steps, *mode)
    bench.record("-".join([script.split("_session")[0].replace("_", "-"), *mode]))
    assert done.returncode == 0, shown(done)
    assert f"Step {STEPS} is done." in done.stdout, shown(done)
    assert_one_session_of_steps(bench, "result-{}")


TASK = "[step 1] Run ten commands, one after the other, and tell me when you are done."


def run_task(bench: Bench, package: str, *kind: str) -> None:
    script = LIBRARIES / f"{package.replace('-', '_')}_session.py"
    done = bench.run_script(package, script, f"{bench.url}/v1", bench.token, TASK, *kind)
    bench.record("-".join([package, *kind]))
    assert "All is done." in done.stdout, shown(done)


@pytest.mark.parametrize(("engine", "kind"), [("bench", "auto"), ("holding_bench", "tools")])
def test_smolagents_calls_tools(engine: str, kind: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(engine)
    chain = ten_commands("run", "command")
    chain.calls.append(("final_answer", {"answer": "All is done."}))
    bench.stub.reply = chain
    run_task(bench, "smolagents", kind)
    assert_one_chain(bench, calls=STEPS)


def test_smolagents_writes_code(bench: Bench) -> None:
    bench.stub.reply = smolagents_code
    run_task(bench, "smolagents", "code")
    assert_one_chain(bench)


def test_crewai(bench: Bench) -> None:
    bench.environment |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    bench.stub.reply = ten_commands("run", "command")
    run_task(bench, "crewai")
    assert_one_chain(bench)


@pytest.mark.parametrize(("engine", "kind"), [("bench", "told"), ("holding_bench", "held")])
def test_browser_use_asks_for_answers_of_a_form(engine: str, kind: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(engine)
    bench.stub.reply = browser_actions
    run_task(bench, "browser-use", kind)
    assert_one_chain(bench)
    assert [bool(form) for form in bench.stub.structured] == [kind == "held"] * (STEPS + 1)
