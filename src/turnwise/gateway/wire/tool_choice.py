"""How a client wants tools to be called: that one is, which one, and only one at a time.

An upstream is told. An engine that samples with a grammar is held to one call; one that samples freely cannot be, so
there it is refused.
"""

from __future__ import annotations

from typing import Any

from turnwise.gateway.wire.request import ModelRequest, invalid, unforced, unsupported

Choice = str | dict[str, Any]


def openai_choice(given: Choice | None, name: Any, offered: list[dict[str, Any]]) -> Choice | None:
    """OpenAI's `tool_choice`, of which `name` is the function's if it names one. None: the model is free to choose."""
    if given in (None, "auto", "none"):
        return None
    if given == "required":
        return must_call(offered)
    if not isinstance(given, dict) or given.get("type") != "function" or not isinstance(name, str):
        raise unsupported("tool_choice", "'auto', 'none', 'required' and the name of a function are")
    return must_call(offered, name)


def must_call(offered: list[dict[str, Any]], name: str | None = None) -> Choice:
    """The choice of any tool, or of the named one, in OpenAI's shape. Raises ApiError (400) without such a tool."""
    names = [tool["function"]["name"] for tool in offered]
    if not names:
        raise invalid("tool_choice", "there are no tools to call; send some, or choose 'auto'")
    if name is None:
        return "required"
    if name not in names:
        raise invalid("tool_choice", f"no tool has the name {name!r}")
    return {"type": "function", "function": {"name": name}}


def check_choice(request: ModelRequest, can_force: bool) -> None:
    """For an engine that samples; `can_force` it to one call. Raises ApiError (400) that names what it cannot do."""
    if request.tool_choice is not None:
        if can_force:
            return  # the grammar ends behind one call, so there is one at a time
        raise unforced()
    if not request.parallel_tool_calls and request.tools is not None:
        in_openai = "parallel_tool_calls" in request.record
        field = "parallel_tool_calls" if in_openai else "tool_choice.disable_parallel_tool_use"
        raise unsupported(field, "the model decides how many tools it calls at once; leave it out")
