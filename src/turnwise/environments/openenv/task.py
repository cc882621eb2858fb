"""A task at an OpenEnv server: where it is, how an episode begins there, which actions it takes, and what counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from turnwise.environments.base import Call
from turnwise.errors import DataError

ACT = "act"
"""The tool by which an action is done, where a server has none of its own."""
MOST_TOOLS = 64
_KNOWN = {"server", "reset", "action", "tools", "reward", "oracle"}


@dataclass(frozen=True, slots=True)
class OpenEnvTask:
    """``schema`` is that of an action; of servers with tools of their own, ``tools`` has them in OpenAI's shape.
    ``last``: whether the outcome is an episode's last reward, and not the sum of them."""

    server: str
    reset: Mapping[str, Any]
    schema: Mapping[str, Any]
    tools: tuple[Mapping[str, Any], ...]
    last: bool
    oracle: tuple[Call, ...]

    def offered(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that a model is offered."""
        if self.tools:
            return self.tools
        said = "Do one action in the environment."
        return ({"type": "function", "function": {"name": ACT, "description": said, "parameters": self.schema}},)

    def action(self, call: Call) -> Mapping[str, Any] | None:
        """What the server is sent for a call; None where it asks for nothing that there is."""
        if not self.tools:
            return call.arguments if call.name == ACT else None
        if call.name not in {tool["function"]["name"] for tool in self.tools}:
            return None
        return {"type": "call_tool", "tool_name": call.name, "arguments": dict(call.arguments)}


def openenv_task(data: Mapping[str, object]) -> OpenEnvTask:
    """The task that ``data`` describes. Raises DataError."""
    if odd := sorted(set(data) - _KNOWN):
        raise DataError(f"a task of OpenEnv has {', '.join(sorted(_KNOWN))}, and no {odd[0]!r}")
    server, reset, schema = data.get("server"), data.get("reset", {}), data.get("action", {})
    tools, reward, oracle = data.get("tools", []), data.get("reward", "sum"), data.get("oracle", [])
    if not isinstance(server, str) or not _is_address(server):
        raise DataError("'server' is the address of an OpenEnv server, as http://127.0.0.1:8000")
    if not isinstance(reset, dict) or not isinstance(schema, dict):
        raise DataError("'reset' and 'action' are objects: what an episode begins with, and the schema of an action")
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS or not all(map(_is_tool, tools)):
        raise DataError(f"'tools' is a list of at most {MOST_TOOLS} functions; `turnwise tasks openenv` writes it")
    if not tools and schema.get("type") != "object":
        raise DataError("'action' is a JSON schema of type object; `turnwise tasks openenv` asks the server for it")
    if not isinstance(oracle, list):
        raise DataError("'oracle' is a list of actions")
    calls = tuple(_oracle(each, bool(tools)) for each in oracle)
    if reward not in ("sum", "last"):
        raise DataError("'reward' is 'sum' or 'last': which of an episode's rewards count")
    return OpenEnvTask(server.rstrip("/"), reset, schema, tuple(tools), reward == "last", calls)


def as_tools(listed: Sequence[object]) -> list[dict[str, Any]]:
    """The tools that a server lists, in OpenAI's shape. Raises DataError."""
    found = []
    for each in listed:
        if not isinstance(each, Mapping):
            raise DataError("the server lists a tool that is no object")
        name, schema = each.get("name"), each.get("input_schema") or each.get("inputSchema") or {"type": "object"}
        said = str(each.get("description") or "")[:1000]
        found.append({"type": "function", "function": {"name": name, "description": said, "parameters": schema}})
    if not all(map(_is_tool, found)):
        raise DataError("the server lists a tool without a name, or without an object of arguments")
    return found


def _is_address(text: str) -> bool:
    try:
        at = urlsplit(text)
        return at.scheme in ("http", "https") and bool(at.hostname) and at.port != 0
    except ValueError:  # of brackets or a port that are none
        return False


def _is_tool(given: object) -> bool:
    match given:
        case {"type": "function", "function": {"name": str() as name, "parameters": dict()}}:
            return bool(name)
        case _:
            return False


def _oracle(given: object, has_tools: bool) -> Call:
    match given:
        case {"name": str() as name, "arguments": dict() as arguments} if has_tools:
            return Call(name, arguments)
        case dict() if not has_tools:
            return Call(ACT, given)
        case _:
            raise DataError("an oracle's action is an object; of a tool, one with name and arguments")
