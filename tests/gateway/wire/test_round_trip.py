"""A conversation goes through each wire format and back without loss: what was said, what was answered, what was meant.

A thousand generated conversations, without HTTP: a client's encoder (`encoders`), our codec, the SDK's accumulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.gateway.encoders import Habits, chat_body, messages_body, responses_body
from tests.support.wire import ChatMessage, events_of, without_ids
from turnwise.gateway.turn.sampling import with_call_ids
from turnwise.gateway.wire.chat.answer import ChatCodec
from turnwise.gateway.wire.messages.answer import MessagesCodec
from turnwise.gateway.wire.request import AnswerHead, Codec, Final, ModelRequest, Usage
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.messages import calls_of, canonical, digest_of, from_chat, history_to_chat, saying
from turnwise.tokens.answer_parser import AnswerGrammar, AnswerParser
from turnwise.types import FinishReason

TURN = "turn-0123456789abcdef0123456789abcdef"
CODECS: dict[str, tuple[Codec, Callable[[list[ChatMessage], Habits], dict[str, Any]]]] = {
    "chat": (ChatCodec(), chat_body),
    "responses": (ResponsesCodec(), responses_body),
    "messages": (MessagesCodec(), messages_body),
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["día 🤖", "a\u2028b\x85c\u2029", " \n", "<think>", "{}"]
)
SAID = TEXT.filter(bool)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["add", "look.up", "a:b-c_d"]), st.dictionaries(TEXT, VALUES, max_size=3)), max_size=3
)
HABITS = st.builds(Habits, st.booleans(), st.booleans(), st.sampled_from(["", "toolu_"]), st.booleans())


@st.composite
def answers(draw: st.DrawFn, ids: str) -> ChatMessage:
    message: ChatMessage = {"role": "assistant", "content": draw(TEXT)}
    if reasoning := draw(st.none() | SAID):
        message["reasoning_content"] = reasoning
    calls = draw(CALLS)
    if calls:
        message["tool_calls"] = [
            {
                "id": f"{ids}{k}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=draw(st.booleans()))},
            }
            for k, (name, arguments) in enumerate(calls)
        ]
    elif not message["content"]:
        message["content"] = "."  # an empty answer is one that no client sends back
    return message


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    if system := draw(st.none() | SAID):
        messages.append({"role": "system", "content": system})
    messages.append({"role": "user", "content": draw(TEXT)})
    for n in range(draw(st.integers(0, 3))):
        answer = draw(answers(f"call_{n}_"))
        messages.append(answer)
        calls = answer.get("tool_calls", [])
        messages += [{"role": "tool", "content": draw(TEXT), "tool_call_id": call["id"]} for call in calls]
        if not calls or draw(st.booleans()):
            messages.append({"role": "user", "content": draw(TEXT)})
    return messages


def parsed(name: str, messages: list[ChatMessage], habits: Habits) -> list[ChatMessage]:
    codec, encode = CODECS[name]
    return history_to_chat(codec.parse(json.dumps(encode(messages, habits)).encode()).messages)


def plain(messages: list[ChatMessage]) -> list[ChatMessage]:
    """With arguments as values, so that their spelling does not count, and without ids."""
    out = []
    for message in messages:
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])]
        out.append({k: v for k, v in message.items() if k != "tool_call_id"} | {"tool_calls": calls})
    return out


def says_what_the_client_meant(name: str, messages: list[ChatMessage], habits: Habits) -> None:
    read = parsed(name, messages, habits)
    assert plain(read) == plain(messages)
    assert [canonical(from_chat(m)) for m in read] == [canonical(from_chat(m)) for m in messages]
    ids = [m["tool_call_id"] for m in read if m["role"] == "tool"]
    assert ids == [habits.ids + m["tool_call_id"] for m in messages if m["role"] == "tool"]


SENT = {"messages": conversations(), "habits": HABITS}


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=200, deadline=None)
@given(**SENT)
def test_a_request_says_what_the_client_meant(name: str, messages: list[ChatMessage], habits: Habits) -> None:
    says_what_the_client_meant(name, messages, habits)


@pytest.mark.slow
@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=1000, deadline=None)
@given(**SENT)
def test_so_do_a_thousand_requests(name: str, messages: list[ChatMessage], habits: Habits) -> None:
    says_what_the_client_meant(name, messages, habits)


# -- answers ----------------------------------------------------------------------------------------------------------


def chat_stream(bodies: list[dict[str, Any]]) -> ChatCompletion:
    state = ChatCompletionStreamState()
    for body in bodies:
        state.handle_chunk(ChatCompletionChunk.model_validate(body))
    return ChatCompletion.model_validate(state.current_completion_snapshot.model_dump(exclude_none=True))


EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
BLOCK_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def responses_stream(bodies: list[dict[str, Any]]) -> Response:
    from openai._types import omit

    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for body in bodies:
        last = state.handle_event(EVENT.validate_python(body))[-1]
    return Response.model_validate(last.response.model_dump(exclude_none=True))


def messages_stream(bodies: list[dict[str, Any]]) -> AnthropicMessage:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for body in bodies:
        snapshot = accumulate_event(
            event=BLOCK_EVENT.validate_python(body), current_snapshot=snapshot, json_bufs=buffers
        )
    return AnthropicMessage.model_validate(snapshot.model_dump(exclude_none=True))


READERS: dict[str, tuple[Any, Callable[[list[dict[str, Any]]], Any]]] = {
    "chat": (ChatCompletion, chat_stream),
    "responses": (Response, responses_stream),
    "messages": (AnthropicMessage, messages_stream),
}


def sent_back(name: str, answer: Any) -> dict[str, Any]:
    """The next request of a client that has this answer, and replies "go on" (or to every call)."""
    data = answer.model_dump(mode="json", exclude_none=True)
    hi = {"role": "user", "content": "hi"}
    if name == "chat":
        message = data["choices"][0]["message"]
        for call in message.get("tool_calls", []):
            call.pop("index", None)
        return {"model": "turnwise", "messages": [hi, message, {"role": "user", "content": "go on"}]}
    if name == "responses":
        return {"model": "turnwise", "input": [hi, *data["output"], {"role": "user", "content": "go on"}]}
    back = {"role": "assistant", "content": data["content"]}
    return {"model": "turnwise", "max_tokens": 9, "messages": [hi, back, {"role": "user", "content": "go on"}]}


def comparable(name: str, answer: Any) -> Any:
    data = without_ids(answer)
    if name == "chat":
        message = data["choices"][0]["message"]
        message["content"] = message.get("content") or ""
        for call in message.get("tool_calls", []):
            call.pop("index", None)
        data["object"] = "chat.completion"
    return data


def is_the_same_whole_and_streamed_and_when_it_comes_back(
    name: str, answer: ChatMessage, cuts: list[int], cut_short: bool
) -> None:
    """Sampled as Qwen3 writes it, in pieces; whole and streamed; and as the history of the next request."""
    codec, _ = CODECS[name]
    text = f"<think>\n{answer['reasoning_content']}\n</think>\n\n" if "reasoning_content" in answer else ""
    text += answer["content"]
    for call in answer.get("tool_calls", []):
        function = call["function"]
        text += f'\n<tool_call>\n{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}\n</tool_call>'
    request = ModelRequest("turnwise", [saying("user", "hi")])
    head = AnswerHead(TURN, request, 5)
    parser = AnswerParser(AnswerGrammar(reasoning=True, calls="json"), with_tools=True)
    writer = codec.writer(head)
    stream, at, k = writer.begin(), 0, 0
    while at < len(text):
        piece = text[at : at + cuts[k % len(cuts)]]
        at, k = at + len(piece), k + 1
        if parts := parser.feed(piece):
            stream += writer.delta(parts, None)
    if parts := parser.finish():
        stream += writer.delta(parts, None)
    message = with_call_ids(TURN, parser.message)
    reason = FinishReason.TOOL_CALLS if calls_of(message) else FinishReason.STOP
    final = Final(message, FinishReason.LENGTH if cut_short else reason, Usage(5, 7))
    stream += writer.end(final)

    model, accumulate = READERS[name]
    whole = model.model_validate(codec.whole(head, final, None))
    bodies = events_of(stream)
    streamed = accumulate(bodies)
    compared, expected = comparable(name, streamed), comparable(name, whole)
    if name == "chat":
        expected.pop("usage")  # only with stream_options
    assert compared == expected
    if not message.parts:
        return
    for seen in (whole, streamed):
        history = codec.parse(json.dumps(sent_back(name, seen)).encode()).messages
        assert [m.role for m in history] == ["user", "assistant", "user"]
        assert canonical(history[1]) == canonical(message)
        assert digest_of(history[1]) == digest_of(message)


GIVEN = {
    "answer": answers("x"),
    "cuts": st.lists(st.integers(1, 30), min_size=1, max_size=20),
    "cut_short": st.booleans(),
}


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=200, deadline=None)
@given(**GIVEN)
def test_an_answer_is_the_same_whole_and_streamed_and_when_it_comes_back(
    name: str, answer: ChatMessage, cuts: list[int], cut_short: bool
) -> None:
    is_the_same_whole_and_streamed_and_when_it_comes_back(name, answer, cuts, cut_short)


@pytest.mark.slow
@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=1000, deadline=None)
@given(**GIVEN)
def test_so_are_a_thousand_answers(name: str, answer: ChatMessage, cuts: list[int], cut_short: bool) -> None:
    is_the_same_whole_and_streamed_and_when_it_comes_back(name, answer, cuts, cut_short)
