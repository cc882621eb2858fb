"""The tools of a responses request: what the model is offered, what is told back, and what is left out.

A `namespace` is a group of functions that the client runs: the model is offered them as `GROUP.NAME`, and a call of one
goes back with its `namespace` apart, as the client expects. A tool that only its vendor can run is left out where a
client sends it unasked (`agents.known`), and said so; any other is refused by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnwise.agents.known import UNASKED_TOOLS
from turnwise.gateway.wire.request import TOOL_NAME, check_tool_names, checked_tool, invalid, no_function


class FunctionTool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamespaceTool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["namespace"]
    name: str = Field(pattern=TOOL_NAME)
    description: str = ""
    tools: list[FunctionTool]


@dataclass(slots=True)
class Tools:
    """``offered`` is in OpenAI's chat shape; ``echoed`` as told back in the response; ``ignored`` as it was given.

    ``groups`` gives the namespace and the plain name of an offered name that was made from both.
    """

    offered: list[dict[str, Any]] = field(default_factory=list)
    echoed: list[dict[str, Any]] = field(default_factory=list)
    ignored: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)


def joined(namespace: str | None, name: str) -> str:
    """The name under which the model knows a tool."""
    return f"{namespace}.{name}" if namespace else name


def read_tools(given: list[dict[str, Any]]) -> Tools:
    """Raises ApiError (400) that names the tool."""
    tools = Tools()
    for i, raw in enumerate(given):
        kind = raw.get("type")
        if isinstance(kind, str) and kind in UNASKED_TOOLS:
            tools.ignored.append(raw)
        elif kind == "namespace":
            group = _checked(i, raw, NamespaceTool)
            tools.echoed.append(group)
            for tool in group["tools"]:
                name = joined(group["name"], tool["name"])
                tools.groups[name] = (group["name"], tool["name"])
                tools.offered.append(_offered(tool, name))
        elif kind == "function":
            tool = _checked(i, raw, FunctionTool)
            tools.echoed.append(tool)
            tools.offered.append(_offered(tool, tool["name"]))
        else:
            raise no_function(i, kind)
    check_tool_names(tools.offered)
    return tools


def _checked(i: int, raw: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """A tool as it is told back."""
    tool = checked_tool(i, raw, model).model_dump()
    try:
        json.dumps(tool, allow_nan=False)
    except ValueError as e:
        raise invalid(f"tools.{i}.parameters", "holds a number that JSON cannot write") from e
    return tool


def _offered(tool: dict[str, Any], name: str) -> dict[str, Any]:
    known = {key: tool[key] for key in ("description", "parameters", "strict") if tool[key] is not None}
    return {"type": "function", "function": {"name": name} | known}
