"""Runs in the Python that has `verifiers`: loads a taskset, does its tools' calls, and scores by its rubric.

It imports nothing of turnwise, and is told what to do in JSON, a line each. What a taskset prints goes to the log, so
that no line of an answer is anybody else's.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import math
import os
import sys
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
from pydantic import TypeAdapter
from verifiers.v1.configs.agent import AgentConfig  # pyright: ignore[reportMissingImports]
from verifiers.v1.state import state_cls  # pyright: ignore[reportMissingImports]
from verifiers.v1.utils.loaders import (  # pyright: ignore[reportMissingImports]
    environment_class,
    load_taskset,
    taskset_config_type,
)

MOST_OF_A_RESULT = 64_000
"""Characters of what a tool says."""


class CannotPlay(Exception):
    """A taskset cannot be played here; the text says why."""


class PlayedTask:
    """The one task that is played."""

    task: Any = None
    state: Any = None
    tools: dict[str, tuple[Any, str]]
    """The server that has a tool, and what it is called there, by its name for the model."""

    async def listed(self, asked: dict[str, Any]) -> dict[str, Any]:
        tasks, left_out = [], {}
        for index, task in enumerate(itertools.islice(_taskset(asked), int(asked["most"]))):
            try:
                _check(asked, task)
                tools = await self._tools_of(task)
            except CannotPlay as e:
                left_out[str(index)] = str(e)
                continue
            told = {"index": index, "hash": task.hash, "system": task.data.system_prompt, "tools": tools}
            answer = getattr(task.data, asked["answer"], None) if asked.get("answer") else None
            tasks.append({**told, "prompt": task.data.prompt_text, "answer": None if answer is None else str(answer)})
        return {"tasks": tasks, "left_out": left_out}

    async def begin(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = next(itertools.islice(_taskset(asked), int(asked["index"]), None), None)
        if found is None or found.hash != asked["hash"]:
            raise CannotPlay("the taskset has another task at this place by now; make the file of tasks anew")
        _check(asked, found)
        self.task = found
        return {"tools": await self._tools_of(found)}

    async def call(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["name"] not in self.tools:
            return {"result": f"There is no tool {str(asked['name'])[:80]!r}.", "is_error": True}
        server, name = self.tools[asked["name"]]
        try:
            said = await server.call_tool(name, asked["arguments"])
        except Exception as e:  # the arguments are the policy's, and a tool is anybody's code
            return {"result": f"{type(e).__name__}: {e}"[:MOST_OF_A_RESULT], "is_error": True}
        return {"result": _text(said)[:MOST_OF_A_RESULT], "is_error": bool(getattr(said, "is_error", False))}

    async def score(self, asked: dict[str, Any]) -> dict[str, Any]:
        trace = _trace(self.task, self.state, asked["messages"])
        await self.task.score(trace, None)
        rewards = {name: None if each is None else each.score for name, each in trace.rewards.items()}
        total = float(trace.reward)
        if not math.isfinite(total) or None in rewards.values():
            raise CannotPlay(f"its rubric gave no number: {rewards}")
        return {"reward": total, "rewards": rewards, "metrics": dict(trace.metrics)}

    async def _tools_of(self, task: Any) -> list[dict[str, Any]]:
        """The tools of a task in OpenAI's shape; its calls are done here, without a server."""
        from mcp.server.mcpserver import MCPServer  # pyright: ignore[reportMissingImports]

        self.state, self.tools, tools = state_cls(type(task))(), {}, []
        for toolset in type(task).toolsets(task.config):
            _keep_state(toolset, self.state)
            await toolset.setup()
            await toolset.setup_task(task.data)
            server = MCPServer(toolset.server_name or "tools")
            toolset.register(server)
            for tool in await server.list_tools():
                name = f"{toolset.server_name}_{tool.name}" if toolset.server_name else tool.name
                self.tools[name] = (server, tool.name)
                schema = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None)
                said = {"name": name, "description": (tool.description or "")[:1000], "parameters": schema}
                tools.append({"type": "function", "function": said})
        return tools


def _keep_state(toolset: Any, state: Any) -> None:
    """Let all calls of an episode see one state, which is the rubric's as well."""
    own = state if isinstance(state, toolset._state_cls) else toolset._state_cls()

    async def pulled() -> Any:
        return own

    async def pushed(before: bytes) -> None:
        return None

    toolset._pull_state, toolset._push_state = pulled, pushed


def _taskset(asked: dict[str, Any]) -> Any:
    config = taskset_config_type(asked["taskset"])
    return load_taskset(config.model_validate({"id": asked["taskset"], **asked["config"]}))


def _check(asked: dict[str, Any], task: Any) -> None:
    """Raises CannotPlay for what needs more than a conversation and tools."""
    own = environment_class(asked["taskset"])
    if own is not vf.SingleAgentEnv:
        raise CannotPlay(f"its episodes have a course of their own ({own.__name__})")
    overridden = [name for name in ("setup", "finalize") if getattr(type(task), name) is not getattr(vf.Task, name)]
    if type(task).NEEDS_CONTAINER or overridden or task.data.image:
        raise CannotPlay("its tasks prepare a container, which there is none of")
    if task.plugged_judges():
        raise CannotPlay("a model judges it")
    for hook in (*task.hooks("reward"), *task.hooks("metric")):
        parameter = inspect.signature(hook).parameters.get("runtime")
        if parameter is not None and parameter.default is inspect.Parameter.empty:
            raise CannotPlay(f"its {hook.__name__} looks into a container, which there is none of")
    if not task.hooks("reward"):
        raise CannotPlay("it has no reward")
    prompt = task.data.prompt
    if not prompt or (not isinstance(prompt, str) and any(each.role != "user" for each in prompt)):
        raise CannotPlay("its conversation does not begin with the user's words")


def _trace(task: Any, state: Any, messages: list[dict[str, Any]]) -> Any:
    nodes = []
    for number, message in enumerate(TypeAdapter(list[vf.Message]).validate_python(messages)):
        parent = number - 1 if number else None
        nodes.append(vf.MessageNode(parent=parent, message=message, sampled=message.role == "assistant"))
    of = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    trace = vf.Trace(task=of, agent=vf.AgentInfo(config=AgentConfig()), state=state)
    trace.nodes.extend(nodes)
    trace.is_completed = trace.ok = True
    return trace


def _text(said: Any) -> str:
    """What a tool's result says, whatever the client's version calls it."""
    parts = getattr(said, "content", said)
    if isinstance(parts, tuple):
        parts = parts[0]
    texts = [getattr(part, "text", None) for part in parts] if isinstance(parts, list) else [str(parts)]
    return "\n".join(text for text in texts if text is not None)


async def _run(answers: Any) -> None:
    episode = PlayedTask()
    does = {"list": episode.listed, "begin": episode.begin, "call": episode.call, "score": episode.score}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            said = await does[asked["ask"]](asked)
        except CannotPlay as e:
            said = {"refused": str(e)[:500]}
        except Exception as e:  # a taskset is anybody's code; whoever asked is told
            said = {"refused": f"{type(e).__name__}: {e}"[:500]}
        answers.write(json.dumps({"number": asked["number"], **said}) + "\n")
        answers.flush()


if __name__ == "__main__":
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:0] = sys.argv[1:]
    asyncio.run(_run(kept))
