"""What two servers say of the same answer, compared event by event, without what must differ between them.

Ids become numbers in the order in which they come, so that what they tie together is compared; times are dropped, and
so is what the format's own SDK does not know. Runs of deltas are one event: where an answer is cut is the server's own
business. A difference is a line `path: theirs | ours`, with a field's absence written as a dash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

Event = dict[str, Any]
ABSENT = object()
TIMES = ("created", "created_at", "completed_at")
DROPPED = ("sequence_number", "system_fingerprint")
IDS = ("id", "item_id", "call_id")
JOINED = ("delta", "text", "thinking", "partial_json", "arguments", "content")
CLOSE = 1e-3
"""Nats: the same log-prob, computed in another batch."""


def known_to(union: Any, body: Event) -> Event:
    """A body without the fields that the SDK's type for it does not have."""
    return _known(_adapter(union).validate_python(body), body)


@cache
def _adapter(union: Any) -> TypeAdapter[Any]:
    return TypeAdapter(union)


def _known(parsed: Any, raw: Any) -> Any:
    if isinstance(parsed, BaseModel) and isinstance(raw, dict):
        fields = {field.alias or name: name for name, field in type(parsed).model_fields.items()}
        return {key: _known(getattr(parsed, fields[key]), raw[key]) for key in raw if key in fields}
    if isinstance(parsed, list) and isinstance(raw, list):
        return [_known(one, other) for one, other in zip(parsed, raw, strict=True)]
    return raw


def plain(events: list[Event]) -> list[Event]:
    """Events without times, models' names and numbers of sequence, and with ids that count."""
    numbers: dict[str, str] = {}

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: walk(value[k], k) for k in sorted(value) if k not in DROPPED}
        if isinstance(value, list):
            return [walk(v) for v in value]
        if key in IDS and isinstance(value, str):
            return numbers.setdefault(value, f"#{len(numbers)}")
        return f"a {key}" if (key in TIMES and value is not None) or key == "model" else value

    return [walk(one) for one in events]


def chat_steps(chunks: list[Event]) -> list[Event]:
    """Chat chunks taken apart, so that it does not matter what shares a chunk: role, text, calls, finish, usage.

    Each step has the fields of the chunks it was seen in; log-probs, which may come beside any of them, are the last.
    """
    steps: list[Event] = []
    logprobs: list[Any] = []
    for chunk in chunks:
        frame = {"chunk": sorted(chunk.keys() - {"usage"}), "id": chunk["id"], "object": chunk["object"]}
        frame["usage"] = "absent" if "usage" not in chunk else "null" if chunk["usage"] is None else "given"
        for choice in chunk["choices"]:
            delta = choice["delta"]
            within = frame | {"index": choice["index"], "choice": sorted(choice)}
            logprobs += (choice.get("logprobs") or {}).get("content") or []
            if "role" in delta:
                steps.append(within | {"type": "role", "delta": delta})
            elif delta.get("content"):
                steps.append(within | {"type": "content", "content": delta["content"]})
            for call in delta.get("tool_calls") or []:
                given = call["function"].get("arguments")
                if "id" in call:
                    steps.append(within | {"type": "call", "call": call | {"function": call["function"] | _no_text}})
                if given:
                    steps.append(within | {"type": f"arguments {call['index']}", "arguments": given})
            if choice["finish_reason"]:
                steps.append(within | {"type": "finish", "finish_reason": choice["finish_reason"]})
        if not chunk["choices"]:
            steps.append(frame | {"type": "usage", "usage": chunk["usage"]})
    return [*steps, {"type": "logprobs", "logprobs": logprobs}]


_no_text = {"arguments": ""}


def merged(events: list[Event]) -> list[Event]:
    """Neighbouring events of one type that only add to each other, as one."""
    out: list[Event] = []
    for one in events:
        last = out[-1] if out else {}
        if last.get("type") == one["type"] and _joinable(last) and _joinable(one):
            out[-1] = _join(last, one)
        else:
            out.append(one)
    return out


def _joinable(event: Event) -> bool:
    kind = event["type"]
    return (kind.endswith(("delta", "content")) and kind != "message_delta") or kind.startswith("arguments")


def _join(one: Any, other: Any, key: str = "") -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(k for k in other if k not in one)]
        return {k: _join(one[k], other[k], k) if k in one and k in other else (one | other)[k] for k in keys}
    if key == "logprobs" and isinstance(one, list):
        return one + other
    if key in JOINED and isinstance(one, str):
        return one + other
    return one if one == other else [one, other]


def differences(theirs: list[Event], ours: list[Event]) -> set[str]:
    """The lines that tell two lists of events apart; events are paired by type and order."""
    kinds = [[event["type"] for event in side] for side in (theirs, ours)]
    found: set[str] = set()
    for op, i, i_end, j, j_end in SequenceMatcher(None, *kinds, autojunk=False).get_opcodes():
        if op != "equal" and i_end - i != j_end - j:
            found.add(f"events: {_shown(kinds[0][i:i_end])} | {_shown(kinds[1][j:j_end])}")
            continue
        for one, other in zip(theirs[i:i_end], ours[j:j_end], strict=True):
            found.update(_differences(one, other, ""))
    return found


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _differences(one.get(key, ABSENT), other.get(key, ABSENT), f"{path}.{key}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for a, b in zip(one, other, strict=True):
            yield from _differences(a, b, path)
    elif not (one == other or _close(one, other)):
        yield f"{path}: {_shown(one)} | {_shown(other)}"


def _close(one: Any, other: Any) -> bool:
    return isinstance(one, float) and isinstance(other, float) and abs(one - other) < CLOSE


def _shown(value: Any) -> str:
    return "–" if value is ABSENT else json.dumps(value, ensure_ascii=False)
