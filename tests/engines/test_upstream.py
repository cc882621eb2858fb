"""The upstream client against a real server that misbehaves in every way that upstreams do."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import aclosing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_http import Part, Played, answer, plays, sse
from turnwise.config import load_config
from turnwise.engines.base import SamplingSettings
from turnwise.engines.upstream.anthropic_api import UNKNOWN_HERE, AnthropicWire
from turnwise.engines.upstream.client import (
    LINGER_S,
    LONGEST_LINE,
    LONGEST_REFUSAL,
    ChatParams,
    UpstreamEngine,
    UpstreamEvent,
    UpstreamUsage,
    make_upstream,
)
from turnwise.engines.upstream.openai_api import OpenAIWire
from turnwise.errors import ConfigError, EngineError, EngineUnreachable
from turnwise.messages import saying

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
KEY = "sk-a-key-that-nobody-may-see"
HI = [saying("user", "hi")]


def content(text: Any, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


async def ask(played: Played, wire: Any = OpenAIWire, stall_s: float = 5.0, **params: Any) -> list[UpstreamEvent]:
    upstream = UpstreamEngine(played.url + "/v1", wire, KEY, stall_s=stall_s)
    try:
        return [event async for event in upstream.chat(HI, None, ChatParams(**params), model="m")]
    finally:
        await upstream.close()


async def fault(*parts: Part, stall_s: float = 5.0, wire: Any = OpenAIWire) -> EngineError:
    async with plays(parts) as played:
        with pytest.raises(EngineError) as caught:
            await ask(played, wire, stall_s)
    return caught.value


async def test_an_answer_comes_in_pieces_with_its_usage() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    stream = sse(content("Hel"), content("lo"), content("", "stop"), {"choices": [], "usage": usage})
    async with plays(stream) as played:
        events = await ask(played, sampling=SamplingSettings(temperature=0.5), max_tokens=7)
    assert "".join(event.text for event in events) == "Hello"
    assert [event.finish_reason for event in events if event.finish_reason] == ["stop"]
    assert events[-1].usage == UpstreamUsage(9, 2, 4)
    (request,) = played.received
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.body["temperature"], request.body["max_tokens"]) == (0.5, 7)
    assert "top_p" not in request.body


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529])
async def test_a_refusal_keeps_its_status_and_what_it_says(status: int) -> None:
    e = await fault(*answer(status, {"error": {"message": "not today", "type": "x"}}))
    assert e.status == status
    assert "not today" in str(e)
    assert str(status) in str(e)


@pytest.mark.parametrize(
    "body", [{"detail": "no"}, {"message": "no"}, {"error": "no"}, b"no", {"error": {"code": "no"}}]
)
async def test_every_shape_of_error_body_is_read(body: Any) -> None:
    assert "no" in str(await fault(*answer(400, body)))


async def test_retry_after_is_kept_in_seconds_and_as_a_date() -> None:
    body = {"error": {"message": "slow down"}}
    assert (await fault(*answer(429, body, retry_after="17"))).retry_after == 17
    later = formatdate(time.time() + 100, usegmt=True)
    assert 90 < ((await fault(*answer(503, body, retry_after=later))).retry_after or 0) <= 100
    assert (await fault(*answer(429, body, retry_after="soon"))).retry_after is None
    assert (await fault(*answer(429, body))).retry_after is None


async def test_a_web_page_is_named_and_not_shown() -> None:
    page = b"<html><h1>Bad gateway</h1></html>"
    failed = await fault(*answer(502, page, "text/html; charset=utf-8"))
    assert failed.status == 502
    assert "web page" in str(failed)
    assert "<h1>" not in str(failed)
    wrong_address = await fault(*answer(200, page, "text/html"))
    assert wrong_address.status == 502
    assert "engine.url" in str(wrong_address)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    e = await fault(*answer(307, b"", location="http://127.0.0.1:1/elsewhere"))
    assert e.status == 502
    assert "redirects" in str(e)


async def test_an_answer_that_is_no_stream_is_refused() -> None:
    e = await fault(*answer(200, {"error": {"message": "quota used up"}}))
    assert e.status == 502
    assert "quota used up" in str(e)


@pytest.mark.parametrize("events", [[], [content("Hel")], [content("Hel"), {"choices": []}]])
@pytest.mark.parametrize("done", [False, True])
async def test_half_a_stream_is_an_error(events: list[Any], done: bool) -> None:
    e = await fault(*sse(*events, done=done))
    assert e.status == 502
    assert "middle" in str(e)


async def test_a_connection_cut_inside_a_chunk_is_an_error() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    e = await fault(head, b'40\r\ndata: {"choices": [{"delta": {"con')
    assert isinstance(e, EngineUnreachable)
    assert e.status == 502


async def test_a_cut_after_the_answer_is_complete_does_not_matter() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    data = sse(content("all", "stop"), done=False)[1]
    assert isinstance(data, bytes)
    async with plays([head, b"%x\r\n%b\r\n" % (len(data), data), b"40\r\nhalf"]) as played:
        assert [event.text for event in await ask(played)] == ["all"]


USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


@pytest.mark.parametrize("usage", [[], [0.1, sse(USAGE)[1]]])
async def test_silence_after_the_answer_is_complete_ends_it(usage: list[Part]) -> None:
    async with plays([*sse(content("all", "stop"), done=False), *usage, 30.0]) as played:
        events = await ask(played, stall_s=2.0)
    assert "".join(event.text for event in events) == "all"
    assert events[-1].usage == (UpstreamUsage(9, 1) if usage else None)


async def test_signs_of_life_do_not_keep_a_complete_answer_open() -> None:
    async with plays([*sse(content("all", "stop"), done=False), *[0.1, b": still here\n\n"] * 300]) as played:
        assert [event.text for event in await ask(played, stall_s=1.0)] == ["all"]


async def test_silence_is_a_timeout_before_and_after_the_first_event() -> None:
    before = await fault(sse()[0], 30.0, stall_s=0.2)
    assert before.status == 504
    amid = await fault(*sse(content("Hel"), done=False), 30.0, stall_s=0.2)
    assert amid.status == 504
    no_head = await fault(30.0, stall_s=0.2)
    assert no_head.status == 504


async def test_comments_are_signs_of_life() -> None:
    parts: list[Part] = [sse()[0]]
    for _ in range(6):
        parts += [b": still here\n\n", 0.4]
    async with plays([*parts, *sse(content("ok", "stop"))[1:]]) as played:
        assert [event.text for event in await ask(played, stall_s=2.0)] == ["ok"]


@pytest.mark.parametrize("line", [b"data: {not json\n\n", b"data: []\n\n", b"data: 7\n\n", b'data: {"choices": 7}\n\n'])
async def test_an_event_that_is_not_understood_is_an_error(line: bytes) -> None:
    e = await fault(sse()[0], line)
    assert e.status == 502
    assert "not understood" in str(e)


def calls(*pieces: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": list(pieces)}}]}


@pytest.mark.parametrize("index", [1, 1_000_000_000, -1, None, "0", 0.0, True])
async def test_a_tool_call_out_of_its_place_is_an_error(index: Any) -> None:
    e = await fault(*sse(calls({"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}})))
    assert e.status == 502
    assert "index" in str(e)


async def test_tool_calls_may_go_on_in_any_order_once_they_began() -> None:
    pieces = [{"index": i, "function": {"arguments": "x"}} for i in (0, 1, 0, 2, 1)]
    async with plays(sse(calls(*pieces[:2]), *map(calls, pieces[2:]), content("", "tool_calls"))) as played:
        events = await ask(played)
    assert [piece.index for event in events for piece in event.tool_calls] == [0, 1, 0, 2, 1]


@pytest.mark.parametrize(
    ("event", "wire"),
    [
        (content(7), OpenAIWire),
        ({"choices": [{"delta": {"reasoning": ["a"]}}]}, OpenAIWire),
        (calls({"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}), OpenAIWire),
        (calls({"index": 0, "function": {"name": {"a": 1}}}), OpenAIWire),
        ({"choices": [], "usage": {"prompt_tokens": "many"}}, OpenAIWire),
        ({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}, AnthropicWire),
        ({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}}, AnthropicWire),
    ],
)
async def test_a_value_of_another_type_is_not_understood(event: Any, wire: Any) -> None:
    e = await fault(*sse(event), wire=wire)
    assert e.status == 502
    assert "not understood" in str(e)


async def test_a_line_without_end_is_given_up() -> None:
    e = await fault(sse()[0], b"data: ", *[b"x" * 65536] * 80)
    assert e.status == 502
    assert "4 MiB" in str(e)


async def test_a_long_line_in_many_pieces_is_one_event() -> None:
    data = sse(content("x" * 3_000_000, "stop"))
    assert isinstance(data[1], bytes)
    async with plays([data[0], *(data[1][i : i + 30_000] for i in range(0, len(data[1]), 30_000))]) as played:
        (event,) = await ask(played)
    assert len(event.text) == 3_000_000


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_refusal_without_end_is_given_up(status: int) -> None:
    e = await fault(*answer(status, b"x" * (2 << 20)))
    assert e.status == 502
    assert "1 MiB" in str(e)


async def test_whether_it_is_there_is_known_without_its_page() -> None:
    async with plays([b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nbegun", 30.0]) as played:
        upstream = UpstreamEngine(played.url, OpenAIWire)
        assert await upstream.healthy()
        await upstream.close()


async def test_an_error_event_in_the_stream_keeps_its_status() -> None:
    e = await fault(*sse(content("Hel"), {"error": {"message": "overloaded", "code": 503}}))
    assert e.status == 503
    assert "overloaded" in str(e)
    e = await fault(
        *sse({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}), wire=AnthropicWire
    )
    assert e.status == 429


async def test_nothing_at_the_address_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        upstream = UpstreamEngine(f"http://127.0.0.1:{taken.getsockname()[1]}", OpenAIWire)
        with pytest.raises(EngineUnreachable):
            [event async for event in upstream.chat(HI, None, ChatParams(), model="m")]
        await upstream.close()


async def test_hanging_up_early_reaches_the_upstream() -> None:
    async with plays([*sse(content("Hel"), done=False), 10.0]) as played:
        upstream = UpstreamEngine(played.url, OpenAIWire)
        async with aclosing(upstream.chat(HI, None, ChatParams(), model="m")) as events:
            async for event in events:
                assert event.text == "Hel"
                break
        await upstream.close()
        for _ in range(100):
            if played.hung_up:
                break
            await asyncio.sleep(0.02)
    assert played.hung_up == 1


async def test_the_key_is_in_no_message_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for parts in (
        answer(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
        answer(200, {"error": {"message": f"bad {KEY}"}}),
        sse({"error": {"message": f"bad {KEY}"}}),
    ):
        e = await fault(*parts)
        assert KEY not in str(e)
        assert "[the key]" in str(e)
    assert KEY not in caplog.text


async def test_the_configured_upstream_takes_its_key_and_model_from_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    async with plays(sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})) as played:
        config = load_config(
            overrides={
                "engine.kind": "upstream",
                "engine.url": played.url + "/v1/",
                "engine.api": "anthropic",
                "engine.model": "its-name",
                "engine.api_key_env": "MY_KEY",
                "train.enabled": False,
            }
        )
        upstream = make_upstream(config)
        assert [e.finish_reason async for e in upstream.chat(HI, None, ChatParams(), model="turnwise")] == ["stop"]
        assert await upstream.healthy()
        await upstream.close()
    request = played.received[0]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert request.body["model"] == "its-name"
    monkeypatch.setenv("MY_KEY", "a\nb")
    with pytest.raises(ConfigError, match="MY_KEY"):
        make_upstream(config)


def test_the_page_names_the_caps_and_what_is_refused() -> None:
    upstream = " ".join(PAGE.read_text(encoding="utf-8").partition("## Upstream")[2].split())
    assert f"event of more than {LONGEST_LINE >> 20} MiB" in upstream
    assert f"of more than {LONGEST_REFUSAL >> 20} MiB" in upstream
    assert f"waited for {LINGER_S:.0f} seconds" in upstream
    assert "Log-probs are refused" in upstream
    for name in UNKNOWN_HERE:
        assert f"`{name}`" in upstream
