"""Agents that are started from a shell, each connected by `turnwise connect` and given work for ten tool calls."""

from __future__ import annotations

import re

import pytest

from tests.clients.checks import STEPS, assert_one_chain, assert_one_session_of_steps, texts
from tests.clients.conftest import Bench, need, shown
from tests.support.scripted_agent import Chain, Script, aider_edits, message, mini_swe_agent, ten_commands

pytestmark = pytest.mark.clients

EDITS = 4
TASK = "[step 1] Run ten commands, one after the other, and tell me when you are done."


@pytest.mark.timeout(500)
def test_mini_swe_agent(bench: Bench) -> None:
    mini = need("mini-swe-agent")
    bench.environment["MSWEA_GLOBAL_CONFIG_DIR"] = str(bench.person / ".config/mini-swe-agent")
    bench.connect("mini-swe-agent")
    bench.stub.reply = mini_swe_agent()
    out = str(bench.person / "work/trajectory.json")
    once = {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1"}  # else a refusal is tried again for minutes
    done = bench.run(mini, "--task", TASK, "--yolo", "--exit-immediately", "--output", out, **once)
    bench.record("mini-swe-agent")
    assert done.returncode == 0, shown(done)
    assert_one_chain(bench)
    assert bench.side_turns() == []


@pytest.mark.timeout(500)
def test_opencode(bench: Bench) -> None:
    opencode = need("opencode")
    bench.connect("opencode")
    bench.stub.reply = Script(lambda step: ("bash", {"command": f"echo result-{step}", "description": "echo"}))
    for step in range(1, STEPS + 1):
        more = ["--continue"] if step > 1 else []
        done = bench.run(opencode, "run", *more, message(step))
        assert f"Step {step} is done." in done.stdout, shown(done)
    bench.record("opencode")
    assert_one_session_of_steps(bench, "result-{}")


@pytest.mark.timeout(500)
def test_qwen_code(bench: Bench) -> None:
    qwen = need("qwen-code")
    bench.connect("qwen-code")
    bench.stub.reply = ten_commands("run_shell_command", "command")
    done = bench.run(qwen, "--prompt", TASK, "--yolo")
    bench.record("qwen-code")
    assert "All is done." in done.stdout, shown(done)
    assert_one_chain(bench)


@pytest.mark.timeout(500)
def test_codex(bench: Bench) -> None:
    codex = need("codex")
    bench.connect("codex")
    bench.stub.reply = ten_commands("exec_command", "cmd")
    done = bench.run(codex, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK)
    bench.record("codex")
    assert "All is done." in done.stdout, shown(done)
    assert_one_chain(bench)


@pytest.mark.timeout(500)
def test_codex_starts_an_agent_and_is_taken_up_again(bench: Bench) -> None:
    codex = need("codex")
    bench.connect("codex")
    calls = [("multi_agent_v1.spawn_agent", {"message": "Say hello."}), ("exec_command", {"cmd": "sleep 2; echo hi"})]
    bench.stub.reply = Chain(calls, "All is done.", re.compile("agent_id|hi"))
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    done = bench.run(codex, "exec", *flags, "[step 1] Let another say hello.")
    assert "All is done." in done.stdout, shown(done)
    done = bench.run(codex, "exec", "resume", "--last", *flags, "[step 2] And what now?")
    assert done.returncode == 0, shown(done)
    agents, main = sorted(bench.main_sessions(), key=len)
    assert [len(agents), len(main)] == [1, 4], bench.story()
    came_back = [texts(turn["next_state"]) for turn in main[:3]]
    assert "agent_id" in came_back[0][0][1], "the client knew the tool of its namespace"
    assert any("hi" in text for role, text in came_back[1] if role == "tool")
    assert came_back[2] == [("user", "[step 2] And what now?")]


@pytest.mark.timeout(500)
def test_claude_code(bench: Bench) -> None:
    claude = need("claude-code")
    bench.connect("claude-code")
    bench.stub.reply = ten_commands("Bash", "command")
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    done = bench.run(claude, "--print", TASK, "--allowedTools", "Bash", **quiet)
    bench.record("claude-code")
    assert "All is done." in done.stdout, shown(done)
    assert_one_chain(bench)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("client", ["codex", "claude-code"])
def test_reasoning_that_stands_apart(reasoning_bench: Bench, client: str) -> None:
    bench = reasoning_bench
    program = need(client)
    bench.connect(client)
    if client == "codex":
        bench.stub.reply = ten_commands("exec_command", "cmd")
        done = bench.run(program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK)
    else:
        bench.stub.reply = ten_commands("Bash", "command")
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        done = bench.run(program, "--print", TASK, "--allowedTools", "Bash", **quiet)
    bench.record(f"{client}-reasoning")
    assert "All is done." in done.stdout, shown(done)
    assert_one_chain(bench)


@pytest.mark.timeout(500)
def test_claude_code_searches_a_tool_and_starts_an_agent(bench: Bench) -> None:
    claude = need("claude-code")
    bench.connect("claude-code")
    agent = {"description": "hello", "prompt": "Say hello.", "subagent_type": "general-purpose"}
    calls = [("ToolSearch", {"query": "select:WebFetch", "max_results": 3}), ("Agent", agent)]
    bench.stub.reply = Chain(calls, "All is done.", re.compile("found: WebFetch|launched"))
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    done = bench.run(claude, "--print", "[step 1] Let another say hello.", "--allowedTools", "Agent", **quiet)
    assert "All is done." in done.stdout, shown(done)
    assert all(seen["status"] == 200 for seen in bench.tap.posts())
    agents, main = sorted(bench.main_sessions(), key=len)
    assert len(agents) == 1 and len(main) >= 3, bench.story()
    assert texts(main[0]["next_state"]) == [("tool", "found: WebFetch\n")]
    assert "launched" in texts(main[1]["next_state"])[0][1]


@pytest.mark.timeout(500)
def test_aider(bench: Bench) -> None:
    aider = need("aider")
    bench.connect("aider")
    bench.stub.reply = aider_edits
    typed = "".join(f"{message(step)}\n" for step in range(1, EDITS + 1))
    flags = ["--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--analytics-disable"]
    done = bench.run(aider, *flags, "--no-fancy-input", "--no-pretty", "steps.txt", typed=typed)
    bench.record("aider")
    assert done.returncode == 0, shown(done)
    written = (bench.person / "work/steps.txt").read_text()
    assert written == "".join(f"This is the line of step {step}.\n" for step in range(1, EDITS + 1)), shown(done)
    assert len(bench.main_sessions()) == 1, bench.story()
    turns = bench.main_sessions()[0]
    assert len(turns) == EDITS, bench.story()
    for step, turn in enumerate(turns[:-1], 1):
        [(role, text)] = texts(turn["next_state"])
        assert role == "user" and text.startswith(message(step + 1)), bench.story()
