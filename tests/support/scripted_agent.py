"""A script for the stub engine that lets a real agent hold a session of many turns: one tool call, then an answer.

A test's messages carry a marker such as `[step 3]`. The engine answers the first request of a step with a call of the
agent's own tool, and the request that brings the result with a text. A request without a marker is the agent's own
housekeeping and gets a short text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MARK = re.compile(r"\[step (\d+)\]")
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)


@dataclass(frozen=True)
class Script:
    """`call` gives the tool call (name, arguments) of a step; None: the agent has no tools, a step is one text."""

    call: Callable[[int], tuple[str, dict[str, Any]]] | None

    def __call__(self, prompt: str) -> str:
        turns = _TURN.findall(prompt)
        last = max((i for i, (role, text) in enumerate(turns) if role == "user" and MARK.search(text)), default=None)
        if last is None:
            return "side answer"
        step = int(MARK.findall(turns[last][1])[-1])
        if self.call is not None and not any(role == "tool" for role, _ in turns[last + 1 :]):
            name, arguments = self.call(step)
            body = json.dumps({"name": name, "arguments": arguments})
            return f"<think>I look.</think>I look at step {step}.<tool_call>{body}</tool_call>"
        return f"Step {step} is done."


@dataclass(frozen=True)
class Chain:
    """One task of many tool calls: `calls[i]` after i results, then `answer`. Results may come as user messages."""

    calls: list[tuple[str, dict[str, Any]]]
    answer: str
    result: re.Pattern[str]

    def __call__(self, prompt: str) -> str:
        turns = _TURN.findall(prompt)
        task = next((i for i, (role, text) in enumerate(turns) if role == "user" and MARK.search(text)), None)
        if task is None:
            return "side answer"
        done = sum(role in ("tool", "user") and bool(self.result.search(text)) for role, text in turns[task + 1 :])
        if done >= len(self.calls):
            return self.answer
        name, arguments = self.calls[done]
        body = json.dumps({"name": name, "arguments": arguments})
        return f"<think>I think.</think>I go on.<tool_call>{body}</tool_call>"


RESULT = re.compile(r"result-\d+")


def ten_commands(tool: str, key: str, answer: str = "All is done.", steps: int = 10) -> Chain:
    """Ten calls of an agent's own command tool, each of which prints its number."""
    return Chain([(tool, {key: f"echo result-{i}"}) for i in range(steps)], answer, RESULT)


def mini_swe_agent() -> Chain:
    """Its last command says that it is done."""
    chain = ten_commands("bash", "command")
    chain.calls.append(("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}))
    return chain


def smolagents_code(prompt: str) -> str:
    """smolagents' other agent has no tools: an answer is a program, which calls them as functions."""
    results = [text for role, text in _TURN.findall(prompt) if role == "user" and text.startswith("Observation:")]
    code = f'print(run("echo result-{len(results)}"))' if len(results) < 10 else 'final_answer("All is done.")'
    return f"Thought: I go on.\n<code>\n{code}\n</code>"


def browser_actions(prompt: str) -> str:
    """browser-use's agents have no tools: an answer is an action in JSON."""
    pages = sum(role == "user" and text.startswith("Page: ") for role, text in _TURN.findall(prompt))
    name, argument = ("run", f"echo result-{pages}") if pages < 10 else ("done", "All is done.")
    return json.dumps({"name": name, "argument": argument})


def aider_edits(prompt: str) -> str:
    """aider has no tools: an answer holds the whole file that it changes."""
    last = prompt.rsplit("<|im_start|>user", 1)[-1].split("<|im_end|>")[0]
    steps = range(1, int(MARK.findall(last)[-1]) + 1)
    lines = "".join(f"This is the line of step {step}.\n" for step in steps)
    return f"I write the line of step {steps[-1]} now.\n\nsteps.txt\n```\n{lines}```\n"


SUB_AGENT_STEP = 6


def openclaw_steps() -> Script:
    """OpenClaw's commands, and in one step a sub-agent, whose own task has no marker."""
    spawn = ("sessions_spawn", {"task": "Say hello and nothing else.", "label": "hello"})
    return Script(lambda step: spawn if step == SUB_AGENT_STEP else ("exec", {"command": f"echo result-{step}"}))


def message(step: int) -> str:
    return f"[step {step}] Run the command for step {step} and tell me what it printed."
