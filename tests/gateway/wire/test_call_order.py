"""Streams in which one step holds several parts, or the pieces of parallel calls come mixed: every format adds up."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import events_of
from turnwise.gateway.wire.call_order import OneAtATime
from turnwise.gateway.wire.chat.answer import ChatCodec
from turnwise.gateway.wire.messages.answer import MessagesCodec
from turnwise.gateway.wire.request import AnswerHead, Final, ModelRequest, StreamWriter, Usage
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.messages import from_chat
from turnwise.tokens.answer_parser import AnswerGrammar, AnswerParser, AnswerParts, CallPiece
from turnwise.types import FinishReason

HEAD = AnswerHead("turn-" + "0" * 32, ModelRequest("turnwise", [from_chat({"role": "user", "content": "hi"})]), 3)
FINAL = Final(from_chat({"role": "assistant", "content": ""}), FinishReason.STOP, Usage(3, 3))


def written(writer: StreamWriter, steps: list[AnswerParts]) -> list[dict[str, Any]]:
    data = writer.begin() + b"".join(writer.delta(step, None) for step in steps if step) + writer.end(FINAL)
    return events_of(data)


def of_messages(steps: list[AnswerParts]) -> list[list[str]]:
    """The blocks in their order; a delta that is not of its block's kind, or outside of it, fails."""
    fields = {
        "thinking": ("thinking_delta", "thinking"),
        "text": ("text_delta", "text"),
        "tool_use": ("input_json_delta", "partial_json"),
    }
    blocks: list[list[str]] = []
    kind = None
    for e in written(MessagesCodec().writer(HEAD), steps):
        if e["type"] == "content_block_start":
            assert kind is None
            kind = e["content_block"]["type"]
            blocks.append([e["content_block"].get("name", kind), ""])
        elif e["type"] == "content_block_delta" and e["delta"]["type"] != "signature_delta":
            assert (e["index"], e["delta"]["type"]) == (len(blocks) - 1, fields[str(kind)][0])
            blocks[-1][1] += e["delta"][fields[str(kind)][1]]
        elif e["type"] == "content_block_stop":
            kind = None
    return blocks


def of_responses(steps: list[AnswerParts]) -> list[list[str]]:
    events = written(ResponsesCodec().writer(HEAD), steps)
    names = {"reasoning": "thinking", "message": "text"}
    items = []
    for item in events[-1]["response"]["output"]:
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        deltas = [e["delta"] for e in events if e["type"].endswith(".delta") and e["item_id"] == item["id"]]
        assert "".join(deltas) == text
        items.append([names.get(item["type"]) or item["name"], text])
    return items


def of_chat(steps: list[AnswerParts]) -> list[list[str]]:
    """Chat has no blocks: pieces of one part that follow each other, and calls by their index."""
    blocks: list[list[str]] = []
    calls: dict[int, list[str]] = {}
    for e in written(ChatCodec().writer(HEAD), steps):
        delta = e["choices"][0]["delta"]
        for kind, key in (("thinking", "reasoning_content"), ("text", "content")):
            if delta.get(key):
                if not blocks or blocks[-1][0] != kind:
                    blocks.append([kind, ""])
                blocks[-1][1] += delta[key]
        for call in delta.get("tool_calls", []):
            if "name" in call["function"]:
                calls[call["index"]] = [call["function"]["name"], ""]
                blocks.append(calls[call["index"]])
            calls[call["index"]][1] += call["function"]["arguments"]
    return blocks


FORMATS = [of_messages, of_responses, of_chat]


@pytest.mark.parametrize("blocks_of", FORMATS)
@pytest.mark.parametrize("cut", [0, 35, 45, 52])
def test_a_step_that_ends_a_call_and_goes_on_with_text(blocks_of: Any, cut: int) -> None:
    text = '<think>hm</think>Look.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>Done.'
    parser = AnswerParser(AnswerGrammar(reasoning=True), with_tools=True)
    cut += text.index("<tool_call>") if cut else 0
    steps = [parser.feed(text[:cut]), parser.feed(text[cut:]), parser.finish()]
    assert blocks_of(steps) == [["thinking", "hm"], ["text", "Look."], ["f", '{"a": 1}'], ["text", "Done."]]


F = [CallPiece(0, "f"), CallPiece(0, None, '{"a"'), CallPiece(0, None, ": 1}")]
G = [CallPiece(1, "g", ""), CallPiece(1, None, "{"), CallPiece(1, None, "}")]


@pytest.mark.parametrize("blocks_of", FORMATS)
@pytest.mark.parametrize("places", list(itertools.combinations(range(6), 3)))
def test_pieces_of_parallel_calls_may_come_mixed(blocks_of: Any, places: tuple[int, ...]) -> None:
    one, two = iter(F), iter(G)
    pieces = [next(one) if i in places else next(two) for i in range(6)]
    steps = [AnswerParts(content="So:"), *(AnswerParts(calls=[piece]) for piece in pieces)]
    blocks = blocks_of(steps)
    assert blocks[0] == ["text", "So:"]
    assert sorted(blocks[1:]) == [["f", '{"a": 1}'], ["g", "{}"]]


@pytest.mark.parametrize("blocks_of", FORMATS)
def test_a_call_that_never_ends_holds_nothing_back_for_good(blocks_of: Any) -> None:
    steps = [AnswerParts(calls=[CallPiece(0, "f", '{"a": ')]), AnswerParts(calls=G), AnswerParts(content="Done.")]
    assert blocks_of(steps) == [["f", '{"a": '], ["g", "{}"], ["text", "Done."]]


@given(st.data())
def test_each_call_is_whole_and_nothing_is_lost(data: st.DataObject) -> None:
    sources = [
        [
            CallPiece(i, f"f{i}"),
            *(CallPiece(i, None, char) for char in data.draw(st.sampled_from(['{"a": 1}', "{", ""]))),
        ]
        for i in range(3)
    ]
    order = data.draw(st.permutations([i for i, source in enumerate(sources) for _ in source]))
    streams = [iter(source) for source in sources]
    blocks = OneAtATime()
    out = [piece for i in order for piece in blocks.feed([next(streams[i])])] + blocks.finish()
    assert len([k for k, _ in itertools.groupby(out, key=lambda piece: piece.index)]) == 3  # type: ignore[union-attr]
    for i, source in enumerate(sources):
        assert [piece for piece in out if piece.index == i] == source  # type: ignore[union-attr]


def test_parts_keep_the_order_of_their_pieces() -> None:
    parts = AnswerParts(reasoning="hm", content="a", calls=[CallPiece(0, "f")])
    parts.add("content", "b")
    parts.pieces.append(CallPiece(0, None, "{}"))
    more = AnswerParts(content="c", calls=[CallPiece(1, "g")])
    parts.extend(more)
    assert [getattr(p, "text", None) or getattr(p, "name", None) or "{}" for p in parts.pieces] == [
        *("hm", "a", "f", "b", "{}", "c", "g")
    ]
    assert (parts.reasoning, parts.content, len(parts.calls)) == ("hm", "abc", 3)
