"""How a client of each format writes a conversation: plain messages to a request body, as the SDKs' users do.

`Habits` are what clients do differently without meaning anything by it: content as a list, marks, ids of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.support.wire import ChatMessage


@dataclass(frozen=True)
class Habits:
    lists: bool = False  # content as a list of parts
    marks: bool = False  # cache_control and the like
    ids: str = ""  # put before every tool call's id
    spread: bool = False  # one message for every part of an answer, where the format allows it


def _parts(text: str, kind: str, habits: Habits) -> Any:
    """Text as a list of two parts, cut at white space where there is any, for parts of their own stand apart."""
    if not habits.lists:
        return text
    cuts = [i for i, c in enumerate(text) if c.isspace() and i]
    half = cuts[len(cuts) // 2] if cuts else len(text)
    parts: list[dict[str, Any]] = [{"type": kind, "text": text[:half]}, {"type": kind, "text": text[half:]}]
    if habits.marks:
        parts[-1]["cache_control"] = {"type": "ephemeral"}
    return parts


def chat_body(messages: list[ChatMessage], habits: Habits) -> dict[str, Any]:
    given = []
    for message in messages:
        out: dict[str, Any] = dict(message) | {"content": _parts(message["content"], "text", habits)}
        if message["role"] == "system" and habits.spread:
            out["role"] = "developer"
        if message.get("tool_calls"):
            out["tool_calls"] = [call | {"id": habits.ids + call["id"]} for call in message["tool_calls"]]
            out["content"] = out["content"] if message["content"] else None
        if "tool_call_id" in message:
            out["tool_call_id"] = habits.ids + message["tool_call_id"]
        if habits.marks:
            out["cache_control"] = {"type": "ephemeral"}
            if message["role"] == "assistant":
                out |= {"refusal": None, "annotations": [], "audio": None, "function_call": None}
        given.append(out)
    return {"model": "turnwise", "messages": given}


def responses_body(messages: list[ChatMessage], habits: Habits) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "turnwise"}
    items: list[dict[str, Any]] = []
    if messages[0]["role"] == "system":
        body["instructions"] = messages[0]["content"]
        messages = messages[1:]
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            output = _parts(content, "input_text", habits)
            items.append(
                {"type": "function_call_output", "call_id": habits.ids + message["tool_call_id"], "output": output}
            )
        elif role == "assistant":
            if message.get("reasoning_content"):
                thought = {"type": "reasoning_text", "text": message["reasoning_content"]}
                items.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": [thought]})
            if content or not message.get("tool_calls"):
                item = {"type": "message", "role": "assistant", "content": _parts(content, "output_text", habits)}
                items.append(item | ({"id": "msg_1", "status": "completed"} if habits.marks else {}))
            for call in message.get("tool_calls") or []:
                items.append({"type": "function_call", "call_id": habits.ids + call["id"], **call["function"]})
        else:
            item = {"role": "developer" if habits.spread and role == "system" else role}
            items.append(item | {"content": _parts(content, "input_text", habits)})
    return body | {"input": items}


def messages_body(messages: list[ChatMessage], habits: Habits) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "turnwise", "max_tokens": 100}
    if messages[0]["role"] == "system":
        body["system"] = _parts(messages[0]["content"], "text", habits)
        messages = messages[1:]
    given: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "assistant":
            given.append({"role": role, "content": _answer_blocks(message, habits)})
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": habits.ids + message["tool_call_id"]}
            block["content"] = _parts(content, "text", habits)
            if given and given[-1].get("results"):
                given[-1]["content"].append(block)
            else:
                given.append({"role": "user", "content": [block], "results": True})
        elif role == "user" and given and given[-1].pop("results", False) and not habits.spread:
            given[-1]["content"].append({"type": "text", "text": content})  # beside the results, in one message
        else:
            given.append({"role": role, "content": _parts(content, "text", habits)})
    for message in given:
        message.pop("results", None)
    return body | {"messages": given}


def _answer_blocks(message: ChatMessage, habits: Habits) -> Any:
    calls, reasoning = message.get("tool_calls") or [], message.get("reasoning_content")
    if not calls and not reasoning:
        return _parts(message["content"], "text", habits)
    blocks: list[dict[str, Any]] = []
    if reasoning:
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": "s"})
    if message["content"]:
        blocks.append({"type": "text", "text": message["content"]})
    for call in calls:
        function = call["function"]
        use = {"type": "tool_use", "id": habits.ids + call["id"], "name": function["name"]}
        blocks.append(use | {"input": json.loads(function["arguments"])})
    if habits.marks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return blocks
