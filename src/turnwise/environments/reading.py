"""Reads what a model's answer asks for, and describes tools to it. What cannot be read is empty: it is untrusted."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from turnwise.environments.base import Action, Call


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


def called_in(body: str, text: str) -> Action:
    """The call that a JSON object describes as `{"name": …, "arguments": {…}}`; an action without one where it does
    not. ``text`` are the words it stands in."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return Action((), text)
    name, arguments = (given.get("name"), given.get("arguments", {})) if isinstance(given, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return Action((), text)
    return Action((Call(name, arguments),), text)
