"""Hostile requests by number: the same number is always the same request, so what one of them breaks can be repeated.

Most are HTTP that a server must answer; `raw` ones are bytes that need not be HTTP at all.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.mutations import BODIES, NASTY, SCHEMA, change, mutated, nested, spoil
from tests.support.tap import read_recording

TRAFFIC = Path(__file__).parents[1] / "gateway" / "traffic"
HOP = {"content-length", "authorization", "x-api-key", "host", "connection", "transfer-encoding", "accept-encoding"}


@dataclass(frozen=True, slots=True)
class Shot:
    """`data` as it goes over the wire. `leave_at`: the client goes away when it has sent so many bytes of it."""

    kind: str
    data: bytes
    raw: bool = False
    half_closed: bool = False  # the client says that it will send no more
    leave_at: int | None = None
    leave_after: int | None = None  # bytes of the answer
    twice: bool = False  # on two connections at once


def http(token: str, path: str, body: bytes, headers: dict[str, str | bytes], method: str = "POST") -> bytes:
    """A request as a client writes it, whatever the header values are."""
    lines: list[bytes] = [f"{method} ".encode() + path.encode("utf-8", "surrogatepass") + b" HTTP/1.1"]
    given: dict[str, str | bytes] = {"Host": "127.0.0.1", "Authorization": f"Bearer {token}"} | headers
    given |= {"Content-Length": str(len(body))}
    for name, value in given.items():
        lines.append(name.encode("latin-1", "replace") + b": " + _bytes(value))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


JSON_HEADERS: dict[str, str | bytes] = {"Content-Type": "application/json"}


def _text(body: Any, rng: random.Random) -> bytes:
    return json.dumps(body, ensure_ascii=rng.random() < 0.6).encode("utf-8", "surrogatepass")


@cache
def recorded() -> list[tuple[str, dict[str, str], Any]]:
    """What real agents sent: paths, headers and bodies."""
    found = []
    for path in sorted(TRAFFIC.glob("*.json")):
        for request in read_recording(path):
            if request["method"] == "POST" and isinstance(request["body"], dict):
                headers = {k: v for k, v in request["headers"].items() if k not in HOP}
                found.append((request["path"], headers, request["body"]))
    return found


# -- kinds of shots ---------------------------------------------------------------------------------------------------


def nearly_right(token: str, rng: random.Random) -> Shot:
    path, body, headers = mutated(rng.randrange(10**9))
    given: dict[str, str | bytes] = {name: value.encode("latin-1") for name, value in headers.items()}
    return Shot("nearly right", http(token, path, body, given))


def from_an_agent(token: str, rng: random.Random) -> Shot:
    path, headers, body = rng.choice(recorded())
    body = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        change(body, rng)
    return Shot("an agent's, changed", http(token, path, _text(body, rng), headers | JSON_HEADERS))


VALUES = (
    *(b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b"-0", b"00", b"1.", b".5", b"0x10", b"+1"),
    *(b"9" * 5000, b"1e-400", b"0." + b"3" * 3000, b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\\x41"'),
    *(b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\x00"', b'"a\nb"', b"'single'", b"[1,]", b"{,}", b"/**/1"),
    *(b"tru", b"nul", b'"open', b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 20_000, b""),
    *(b'{"a":1,"a":2}', b"\xef\xbb\xbf1", b'"\\u202e\\u2066"', "\u2028".encode(), b'"' + b"x" * 70_000 + b'"'),
)


def odd_json(token: str, rng: random.Random) -> Shot:
    """A value that JSON, or what reads it, may not have, put in the place of a right one; or the text itself spoilt."""
    path, valid = rng.choice(BODIES)
    fields = dict(valid)
    name = rng.choice(list(fields))
    fields[name] = "@@"
    data = json.dumps(fields).encode().replace(b'"@@"', rng.choice(VALUES), 1)
    what = rng.randrange(8)
    if what == 0:
        data = rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\xfe\xff", b" \x0b")) + data
    elif what == 1:
        data += rng.choice((b"{}", b"\x00", b",", b"]", b" " * 5000, b"//"))
    elif what == 2:
        first = json.dumps(rng.choice(list(valid))).encode()
        data = data[:-1] + b", " + first + b": " + rng.choice(VALUES) + b"}"  # the same name twice
    elif what == 3:
        data = spoil(json.dumps(valid).encode(), rng)
    return Shot("odd JSON", http(token, path, data, JSON_HEADERS))


PUMPS: tuple[Callable[[int], str], ...] = (
    lambda n: "Too long, make it shorter" + " please" * n + "!x",
    lambda n: "\n" * n,
    lambda n: " " * n + "x",
    lambda n: "<think>" * n,
    lambda n: "<think>\n" * n + "</think>",
    lambda n: "<tool_call>" * n,
    lambda n: '<tool_call>{"name": "a", "arguments": {' * n,
    lambda n: "a," * n,
    lambda n: "no no " * n + "!",
    lambda n: "(" * n + ")",
    lambda n: "```\n" * n,
    lambda n: "please just " * n,
    lambda n: "don't " * n + "shorter",
    lambda n: "<system-reminder>" * n,
    lambda n: "\u200b" * n + "a",
    lambda n: "\u0301" * n,
    lambda n: "1.2.3." * n,
    lambda n: 'Traceback (most recent call last):\n  File "a", line 1\n' * n,
    lambda n: "error: " * n,
    lambda n: "#" * n + " x",
    lambda n: "<|im_start|>user\n" * n,
    lambda n: "assistant: user: " * n,
    lambda n: "\\" * n + '"',
    lambda n: "-" * n + "\n" + "=" * n,
)
"""Texts that make patterns go back and forth, by their length."""


def pump(token: str, rng: random.Random, longest: int = 20_000) -> Shot:
    """A hostile text where patterns read: a user's message, a tool's result, an answer that is sent back, a name."""
    make = rng.choice(PUMPS)
    length = rng.choice((40, 300, 2000, longest))
    text = make(max(1, length // max(1, len(make(1)))))[: longest + 50]
    path, valid = rng.choice(BODIES)
    body = copy.deepcopy(valid)
    places = [(holder, key) for holder, key in _strings(body) if len(key) < 40]
    holder, key = rng.choice(places)
    holder[key] = text
    if rng.random() < 0.5:  # and at the end, where the judge will look, too
        last = {"role": "user", "content": text}
        body["input" if "input" in body else "messages"].append(last)
    return Shot("a pump", http(token, path, _text(body, rng), JSON_HEADERS))


def _strings(value: Any) -> list[tuple[dict[str, Any], str]]:
    found: list[tuple[dict[str, Any], str]] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in ("content", "text", "output", "thinking", "arguments", "instructions"):
                found.append((value, key))
            found += _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            found += _strings(inner)
    return found


def huge(token: str, rng: random.Random) -> Shot:
    """Very many of something, within the limit of a body."""
    path, valid = rng.choice(BODIES)
    body = copy.deepcopy(valid)
    history = "input" if "input" in body else "messages"
    what = rng.randrange(9)
    if what == 0:
        body[history] = [{"role": "user", "content": "x"}] * rng.choice((1000, 30_000))
    elif what == 1:
        body[history] = [rng.choice(({}, [], None, 0, "x"))] * 100_000
    elif what == 2:
        tool = body["tools"][0]
        body["tools"] = [copy.deepcopy(tool) for _ in range(10_000)]
    elif what == 3:
        body["tools"] = [_named(body["tools"][0], f"tool_{i}") for i in range(2000)]
    elif what == 4:
        body["tools"] = [_named(body["tools"][0], "a" * 60 + chr(0x430 + i % 30) + "." * (i % 9)) for i in range(500)]
    elif what == 5:
        body["stop" if "chat" in path else "stop_sequences"] = [f"s{i}" for i in range(100_000)]
    elif what == 6:
        body["metadata"] = {f"key{i}": "v" * 500 for i in range(2000)}
    elif what == 7:
        body[history] = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 50_000}]
    else:
        body["tools"][0] = _schema(body["tools"][0], nested(150, False) | {f"p{i}": SCHEMA for i in range(5000)})
    return Shot("huge", http(token, path, json.dumps(body).encode(), JSON_HEADERS))


def _named(tool: dict[str, Any], name: str) -> dict[str, Any]:
    return tool | ({"function": tool["function"] | {"name": name}} if "function" in tool else {"name": name})


def _schema(tool: dict[str, Any], schema: Any) -> dict[str, Any]:
    if "function" in tool:
        return tool | {"function": tool["function"] | {"parameters": schema}}
    return tool | {"input_schema" if "input_schema" in tool else "parameters": schema}


IDS = (
    *("../../etc/passwd", "..", ".", "a/b", "a\\b", "%2e%2e%2f", "a%00b", "a b", " ", "x" * 201, "x" * 8000, "null"),
    *("-1", "0", "ключ", "🤖", "\u202eabc", "con", "a;b", "a\tb", "a'b", 'a"b', "a--", "' OR 1=1 --", "$(id)", "`id`"),
    *("{{7*7}}", "<script>", "resp_" + "0" * 24, "turn-" + "f" * 32, "chatcmpl-x", "s:" * 90, "\x7f", "\x01"),
)
ROUTES = (
    *("GET /v1/models", "GET /v1/models/{id}", "GET /s/{id}/v1/models", "GET /s/{id}/v1/models/{id}", "GET /healthz"),
    *("POST /v1/sessions/{id}/close", "POST /v1/turns/{id}/feedback", "GET /v1/responses/{id}", "HEAD /readyz"),
    *("DELETE /v1/responses/{id}", "POST /s/{id}/v1/chat/completions", "POST /s/{id}/v1/messages", "PUT /v1/models"),
    *("POST /s/{id}/v1/responses", "POST /s/{id}/v1/messages/count_tokens", "OPTIONS /v1/messages", "TRACE /"),
    *("GET /{id}", "POST /{id}", "GET /openapi.json", "GET /docs", "PATCH /v1/{id}", "GET /v1/../v1/status"),
    *("POST /s/../v1/chat/completions", "POST /s//v1/messages", "POST //v1/messages", "POST /v1/messages/"),
    *("POST /v1/chat/completions/../messages", "POST /V1/Messages", "POST /v1%2fmessages", "GET /s/%2e%2e/v1/models"),
)
QUERIES = ("", "", "?", "?x=1", "?" + "a" * 4000, "?session=../..", "?%ff=%00", "?a=1&a=2", "#f", "?beta=true")


def odd_route(token: str, rng: random.Random) -> Shot:
    """Every route, with ids that are paths, commands, or nothing, and query strings of all kinds."""
    method, _, path = rng.choice(ROUTES).partition(" ")
    for _ in range(path.count("{id}")):
        given = rng.choice(IDS)
        path = path.replace("{id}", _quoted(given) if rng.random() < 0.8 else given.replace(" ", "+"), 1)
    path = "".join(c for c in path + rng.choice(QUERIES) if c not in "\r\n\t\x01\x7f ")
    body = b""
    if method in ("POST", "PUT", "PATCH"):
        of = next((b for p, b in BODIES if path.endswith(p)), rng.choice(NASTY))
        body = _text(of, rng)
        if "feedback" in path:
            body = _text({"score": rng.choice((1, 2, True, "1", None, 1.0, 1e308)), "text": rng.choice(NASTY)}, rng)
    return Shot("an odd route", http(token, path, body, JSON_HEADERS, method))


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "".join(f"%{b:02x}" for b in c.encode()) for c in text)


HEADER_NAMES = (
    *("X-Session-Id", "session_id", "thread-id", "x-claude-code-session-id", "x-claude-code-agent-id", "X-Turn-Type"),
    *("X-Session-Done", "Idempotency-Key", "X-Stainless-Retry-Count", "User-Agent", "Accept", "Accept-Encoding"),
    *("Content-Type", "Content-Encoding", "Expect", "Cookie", "Forwarded", "X-Forwarded-For", "Origin", "Referer"),
    *("anthropic-version", "anthropic-beta", "OpenAI-Organization", "Range", "Connection", "Upgrade", "TE", "Via"),
)
HEADER_VALUES: tuple[bytes, ...] = (
    *(b"", b" ", b"x" * 300, b"x" * 7000, b"\xff\xfe", "ключ".encode(), b"a\tb", b"../../x", b"%0d%0aX-Evil: 1"),
    *(
        b"gzip, deflate, br;q=9",
        b"9" * 4400,
        b"-1",
        b"1e9",
        b"true",
        b"null",
        b"http://evil.example",
        b"*",
        b"bytes=0-",
    ),
    *(b"websocket", b"100-continue", b"close", b"keep-alive, close", b"\xc2\xb2", b'"', b"a;b=c;d", b"text/html"),
)


def odd_headers(token: str, rng: random.Random) -> Shot:
    path, valid = rng.choice(BODIES)
    headers = dict(JSON_HEADERS)
    for _ in range(rng.choice((1, 2, 4, 60))):
        name = rng.choice(HEADER_NAMES) if rng.random() < 0.9 else f"X-{rng.randrange(10**6)}"
        headers[name] = rng.choice(HEADER_VALUES)
    if rng.random() < 0.1:
        headers |= {"Authorization": rng.choice((b"Bearer", b"", b"Bearer \xff", b"Basic x", b"Bearer " + b"y" * 5000))}
    return Shot("odd headers", http(token, path, _text(valid, rng), headers))


def broken_http(token: str, rng: random.Random) -> Shot:
    """Bytes that are no HTTP, or HTTP that two readers would read in two ways."""
    path, valid = rng.choice(BODIES)
    body = _text(valid, rng)
    good = http(token, path, body, JSON_HEADERS)
    head, _, _ = good.partition(b"\r\n\r\n")
    length = str(len(body)).encode()
    bad: list[bytes] = [
        b"GET\r\n\r\n",
        b"\r\n" * 50 + good,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
        rng.randbytes(rng.randrange(1, 400)) + b"\r\n\r\n",
        b"POST / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"G\x00ET / HTTP/1.1\r\nHost: a\r\n\r\n",
        good.replace(b"Content-Length", b"Content-Length: 5\r\nContent-Length", 1),
        good.replace(b"Content-Length: " + length, b"Content-Length: +" + length, 1),
        good.replace(b"Content-Length: " + length, b"Content-Length: -1", 1),
        good.replace(b"Content-Length: " + length, b"Content-Length: " + b"9" * 30, 1),
        good.replace(b"Content-Length: " + length, b"Content-Length: 0x10", 1),
        good.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length", 1),
        good.replace(b"Content-Length", b"Content-Length ", 1),
        good.replace(b"\r\nHost", b"\r\n Host", 1),
        good.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: evil.example", 1),
        good.replace(b"Host: 127.0.0.1", b"X-A: b\x00c", 1),
        good.replace(b"Host: 127.0.0.1", b"X-A: b\rc", 1),
        good.replace(b"\r\n", b"\n"),
        head + b"\r\nX-Big: " + b"y" * rng.choice((70_000, 300_000)) + b"\r\n\r\n" + body,
        head + b"".join(b"\r\nX-%d: y" % i for i in range(3000)) + b"\r\n\r\n" + body,
        head.replace(b" /", b" /" + b"u" * 100_000, 1) + b"\r\n\r\n" + body,
        _chunked(head, body, rng),
        good * 20,  # pipelined
        good + b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + good[: len(good) // 2],
        head.replace(path.encode(), b"http://evil.example" + path.encode(), 1) + b"\r\n\r\n" + body,
    ]
    return Shot("broken HTTP", rng.choice(bad), raw=True, half_closed=rng.random() < 0.3)


def _chunked(head: bytes, body: bytes, rng: random.Random) -> bytes:
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    sizes = (b"%x" % len(body), b"-1", b"fffffffffffffffff", b"0x5", b"", b"5;" + b"e" * 20_000, b" 5", b"g")
    rest = b"\r\n" + body + b"\r\n" + rng.choice((b"0\r\n\r\n", b"0\r\nX-T: y\r\n\r\n", b"", b"0\r\n"))
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + rng.choice(sizes) + rest


def gone_early(token: str, rng: random.Random) -> Shot:
    """A right request whose client goes away: while it sends, or in the middle of the answer."""
    path, valid = rng.choice(BODIES)
    body = valid | ({} if path.endswith("count_tokens") else {"stream": rng.random() < 0.7})
    data = http(token, path, _text(body, rng), JSON_HEADERS)
    if rng.random() < 0.5:
        return Shot("gone early", data, leave_at=rng.randrange(len(data)))
    if rng.random() < 0.3:
        return Shot("gone early", data * rng.choice((1, 20)), raw=True, half_closed=True)  # pipelined, too
    return Shot("gone early", data, leave_after=rng.randrange(1, 3000))


def asked_twice(token: str, rng: random.Random) -> Shot:
    """A right request, sent on two connections at once, as a client does that gave up waiting too soon."""
    path, valid = rng.choice(BODIES)
    headers = JSON_HEADERS | {"Idempotency-Key": f"k{rng.randrange(200)}", "X-Stainless-Retry-Count": "1"}
    body = valid | ({} if path.endswith("count_tokens") else {"stream": rng.random() < 0.5})
    return Shot("asked twice", http(token, path, _text(body, rng), headers), twice=True)


KINDS: tuple[tuple[Callable[[str, random.Random], Shot], float], ...] = (
    (nearly_right, 33),
    (from_an_agent, 12),
    (odd_json, 12),
    (pump, 5),
    (huge, 0.15),
    (odd_route, 15),
    (odd_headers, 9),
    (broken_http, 7),
    (gone_early, 4),
    (asked_twice, 2),
)


def shot(number: int, token: str) -> Shot:
    """The hostile request of this number."""
    rng = random.Random(f"shot {number}")
    make = rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
    return make(token, rng)
