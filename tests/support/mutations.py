"""Requests that are nearly right: valid bodies of each format, changed in one or a few places."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
USE = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}

BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "model": "turnwise",
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
                {"role": "user", "content": "and now?", "name": "ann"},
            ],
            "tools": [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}}],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.7,
            "top_p": 0.9,
            "max_completion_tokens": 20,
            "stop": ["END"],
            "seed": 3,
            "logprobs": True,
            "user": "u",
            "metadata": {"k": "v"},
            "prompt_cache_key": "key",
            "n": 1,
            "response_format": {"type": "text"},
        },
    ),
    (
        "/v1/responses",
        {
            "model": "turnwise",
            "instructions": "be kind",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
                ITEM_CALL,
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
                {"role": "user", "content": "and now?"},
            ],
            "tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
            "include": ["message.output_text.logprobs"],
            "reasoning": {"effort": "low"},
            "metadata": {"k": "v"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "max_output_tokens": 20,
            "temperature": 0.7,
            "stream": False,
            "store": True,
            "previous_response_id": None,
            "prompt_cache_key": "key",
        },
    ),
    (
        "/v1/messages",
        {
            "model": "turnwise",
            "max_tokens": 20,
            "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "text", "text": "so"},
                        USE,
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "1"}]},
                        {"type": "text", "text": "and now?"},
                    ],
                },
            ],
            "tools": [{"name": "add", "description": "adds", "input_schema": SCHEMA}],
            "tool_choice": {"type": "auto"},
            "stop_sequences": ["END"],
            "stream": True,
            "temperature": 0.7,
            "top_k": 5,
            "metadata": {"user_id": "user_1_session_2"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "low"},
        },
    ),
]
BODIES.append(
    ("/v1/messages/count_tokens", {k: v for k, v in BODIES[2][1].items() if k not in ("stream", "max_tokens")})
)


def nested(depth: int, in_lists: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 3.5, 10**30, -(10**30), 2**63, 2**64, 1e308, float("nan"), float("inf"), 5e-324),
    *(
        "",
        " ",
        "x",
        "\ud800",
        "\udfff text",
        "\x00",
        "\x85\u2028",
        "a\nb",
        "🤖" * 50,
        "x" * 3000,
        "<|im_end|>",
        "<think>",
    ),
    *("null", "0", "{", '{"a": ', '{"a": 1e999}', '{"a": NaN}', '{"a": "\\ud800"}', '{"a": ' + "1" * 4400 + "}"),
    *(
        "[" * 5000,
        "resp_0",
        "turn-0",
        "system",
        "assistant",
        "tool",
        "text",
        "image",
        "function",
        "ключ",
        "../..",
        "%00",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        {"": ""},
        {"type": "text"},
        {"type": "image"},
        {"a": None},
        ["x"],
        [None],
        [1, "x"],
        {"\ud800": 1},
    ),
    *(nested(30, True), nested(150, False), nested(195, True), nested(220, False), int("9" * 4000)),
]
FIELDS = [
    "type",
    "role",
    "content",
    "id",
    "name",
    "arguments",
    "input",
    "text",
    "tools",
    "made_up",
    "stream",
    "seed",
    "",
]
HEADERS: list[dict[str, str]] = [
    {"x-session-id": "same"},
    {"x-session-id": "a b"},
    {"session-id": "other \xe9"},
    {"x-turn-type": "side"},
    {"x-turn-type": "odd"},
    {"x-session-done": "true"},
    {"idempotency-key": "k" * 500},
    {"x-stainless-retry-count": "9" * 5000},
    {"x-stainless-retry-count": "\xb2"},
    {"x-stainless-retry-count": "1"},
    {"content-type": "text/plain"},
    {"user-agent": "\xff"},
]


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(value, dict):
        for key in value:
            found += _places(value[key], (*at, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            found += _places(item, (*at, i))
    return found


def change(body: dict[str, Any], rng: random.Random) -> None:
    """One change in place, at any depth."""
    places = _places(body)
    if not places:
        body[rng.choice(FIELDS)] = rng.choice(NASTY)
        return
    *way, key = rng.choice(places)
    holder: Any = body
    for step in way:
        holder = holder[step]
    what = rng.randrange(8)
    if what == 0:
        del holder[key]
    elif what in (1, 2):
        holder[key] = copy.deepcopy(rng.choice(NASTY))
    elif what == 3:
        value = holder[key]
        retyped = [[value], {"a": value}, str(value), 7, bool(value), None]
        holder[key] = rng.choice(retyped)
    elif what == 4:
        if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[rng.choice(FIELDS)] = copy.deepcopy(holder[key])
    elif what == 5:
        if isinstance(holder, dict):
            holder[rng.choice(FIELDS)] = copy.deepcopy(rng.choice(NASTY))
        else:
            rng.shuffle(holder)
    elif what == 6:
        *other, name = rng.choice(places)
        source: Any = body
        for step in other:
            source = source[step]
        holder[key] = copy.deepcopy(source[name])
    elif isinstance(holder, list):
        holder.extend(copy.deepcopy(holder) * rng.choice([1, 20]))
    else:
        holder[key] = copy.deepcopy(holder)


def spoil(data: bytes, rng: random.Random) -> bytes:
    """A change of the text itself."""
    at = rng.randrange(len(data) + 1)
    what = rng.randrange(6)
    if what == 5:
        return data[:at] + rng.choice([b"[", b'{"a":']) * rng.choice([190, 900, 30_000]) + data[at:]
    if what == 0:
        return data[:at]
    if what == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if what == 2:
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))) + data[at:]
    if what == 3:
        return data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-32", "latin-1"]), "replace")
    return data[:at] + data[max(0, at - rng.randrange(1, 40)) :]


def mutated(seed: int) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of the request with this number: always the same."""
    rng = random.Random(seed)
    path, valid = rng.choice(BODIES)
    body = copy.deepcopy(valid)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        change(body, rng)
    if rng.random() < 0.5 and not path.endswith("count_tokens"):
        body["stream"] = rng.random() < 0.5
    data = json.dumps(body, ensure_ascii=rng.random() < 0.6).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        data = spoil(data, rng)
    if rng.random() < 0.05:
        path = "/s/" + rng.choice(["one", "a%0A", "a%20b", "%D0%BA", "x" * 300, "a:b", "%ff"]) + path
    return path, data, {"content-type": "application/json"} | (rng.choice(HEADERS) if rng.random() < 0.15 else {})
