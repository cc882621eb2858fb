"""Reads what a model's answer asks for, and describes tools to it. What cannot be read is empty: it is untrusted."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from turnwise.environments.base import Call


def function_tool(name: str, description: str, /, **parameters: str) -> Mapping[str, Any]:
    """A tool in OpenAI's shape; each parameter is required and of the JSON type that it names."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    asked = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": asked}}


def called(name: str, arguments: str) -> Call:
    """A tool call as it came; without arguments where they are no JSON object."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    return Call(name, given if isinstance(given, dict) else {})


def fenced(text: str, kinds: Collection[str]) -> str:
    """The content of the only fenced block of one of these kinds; empty where there is none, or several."""
    parts = text.split("```")
    blocks = [part.partition("\n") for part in parts[1::2]] if len(parts) % 2 else []
    found = [body.strip() for kind, _, body in blocks if kind.strip() in kinds]
    return found[0] if len(found) == 1 else ""
