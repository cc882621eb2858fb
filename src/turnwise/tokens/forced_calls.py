"""An answer that must be a tool call, as a structural tag: the model family's words around JSON by the tool's schema.

A structural tag is what xgrammar, the grammar engine of vLLM, takes for text with fixed and free parts.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import EngineError


def forced_call(choice: str | dict[str, Any], tools: list[dict[str, Any]], space: str) -> dict[str, Any]:
    """The tag for OpenAI's `tool_choice` (`required`, or a function's name) among `tools`. `space` is what the family
    writes between a call's tags and its JSON.
    """
    name = None if isinstance(choice, str) else choice["function"]["name"]
    tags = [_tag(tool["function"], space) for tool in tools if name in (None, tool["function"]["name"])]
    if not tags:
        raise EngineError(f"no tool has the name {name!r}", 400)
    return {"type": "structural_tag", "format": tags[0] if len(tags) == 1 else {"type": "or", "elements": tags}}


def _tag(function: dict[str, Any], space: str) -> dict[str, Any]:
    # the schema stands alone, so that what it refers to within itself (`#/$defs/…`) is found
    schema = function.get("parameters") or {"type": "object"}
    return {
        "type": "tag",
        "begin": f'<tool_call>{space}{{"name": "{function["name"]}", "arguments": ',
        "content": {"type": "json_schema", "json_schema": schema},
        "end": f"}}{space}</tool_call>",
    }
