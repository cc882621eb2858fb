"""Choices of an answer that go to the client as an upstream gave them, put together from the pieces of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Choice = dict[str, Any]


def joined(pieces: Sequence[Choice]) -> tuple[Choice, list[Choice]]:
    """What was given of the first choice (its log-probs, or nothing), and the whole choices behind it."""
    found: dict[int, Choice] = {}
    for piece in pieces:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        new: Choice = {"index": piece["index"], "message": message, "finish_reason": "stop", "logprobs": None}
        choice = found.setdefault(piece["index"], new)
        choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]
        _add(choice["message"], piece["delta"])
        for kind, tokens in (piece.get("logprobs") or {}).items():
            if choice["logprobs"] is None:
                choice["logprobs"] = dict.fromkeys(("content", "refusal"))
            if isinstance(tokens, list):
                whole: list[Any] = choice["logprobs"].get(kind) or []
                whole += tokens
                choice["logprobs"][kind] = whole
    first = found.pop(0, None)
    return {"logprobs": first["logprobs"]} if first else {}, [found[index] for index in sorted(found)]


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        if delta.get(name):
            message[name] = (message.get(name) or "") + delta[name]
    for piece in delta.get("tool_calls") or []:
        calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
        if piece["index"] >= len(calls):
            calls.append({"id": piece.get("id") or "", "type": "function", "function": {"name": "", "arguments": ""}})
        told, function = piece.get("function") or {}, calls[min(piece["index"], len(calls) - 1)]["function"]
        function["name"] = function["name"] or told.get("name") or ""
        function["arguments"] += told.get("arguments") or ""
