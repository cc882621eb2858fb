"""A message through its JSON and back, and the hashes by which journals know it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tap import read_recording
from turnwise.gateway.lineage.history import hash_history
from turnwise.gateway.wire.chat.answer import ChatCodec
from turnwise.gateway.wire.messages.answer import MessagesCodec
from turnwise.gateway.wire.request import Codec
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.messages import (
    as_content,
    calls_of,
    digest_of,
    from_chat,
    history_from_chat,
    history_to_chat,
    parts_of,
    text_of,
    thinking_in,
    to_chat,
    with_calls,
    with_text,
)
from turnwise.types import Image, Message, Text, Thinking, ToolCall, ToolResult

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "gateway/golden_histories.json").read_text("utf-8"))
"""Recorded messages and histories with the hashes that they had when a message was a dictionary."""

TRAFFIC = Path(__file__).parent / "gateway/traffic"
CODECS: dict[str, Codec] = {"chat": ChatCodec(), "responses": ResponsesCodec(), "messages": MessagesCodec()}


def codec_of(path: str) -> Codec:
    names = {"chat/completions": "chat", "responses": "responses", "messages": "messages"}
    return next(CODECS[name] for end, name in names.items() if path.partition("?")[0].endswith(end))


TEXT = st.text(max_size=20) | st.sampled_from(["Error:", "<think>", " \n", "{}"])
TEXTS = st.builds(Text, TEXT.filter(bool))
IMAGES = st.builds(Image, TEXT, st.sampled_from([{}, {"detail": "low"}]))
CALLS = st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=3).map(tuple)


@st.composite
def contents(draw: st.DrawFn) -> tuple[Text | Image, ...]:
    if draw(st.booleans()):
        return tuple(draw(st.lists(TEXTS | IMAGES, min_size=1, max_size=3)))
    return tuple(draw(st.lists(TEXTS, max_size=1)))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    name = draw(st.none() | TEXT)
    if role == "tool":
        return Message(role, (ToolResult(draw(TEXT), draw(contents())),), name)
    if role == "assistant":
        thought = draw(st.lists(st.builds(Thinking, TEXT.filter(bool)), max_size=1))
        return Message(role, (*thought, *draw(contents()), *draw(CALLS)), name)
    return Message(role, draw(contents()), name)


@given(messages())
def test_a_message_is_the_same_after_its_json(message: Message) -> None:
    again = from_chat(json.loads(json.dumps(to_chat(message))))
    assert again == message
    assert digest_of(again) == digest_of(message)


@pytest.mark.parametrize("known", GOLDEN["recorded"], ids=lambda known: known["hash"][:8])
def test_a_recorded_message_has_the_hash_and_the_json_it_had(known: dict[str, Any]) -> None:
    message = from_chat(known["message"])
    assert digest_of(message) == known["hash"]
    assert to_chat(message) == {key: value for key, value in known["message"].items() if key != "stop_string"}


def test_parts_of_text_are_one_unless_an_image_stands_between() -> None:
    words, picture = (Text("a"), Text("b")), Image("data:,")
    assert as_content("user", words) == (Text("a\nb"),)
    assert as_content("assistant", words) == (Text("ab"),)
    assert as_content("user", (*words, picture)) == (*words, picture)


def test_words_and_calls_are_changed_in_their_places() -> None:
    call = ToolCall("run", "{}", "c1")
    message = Message("assistant", (Thinking("so"), Text("one"), call))
    assert with_text(message, "two").parts == (Thinking("so"), Text("two"), call)
    assert with_text(message, "").parts == (Thinking("so"), call)
    assert with_calls(message, []).parts == (Thinking("so"), Text("one"))


def test_what_a_file_of_cases_may_hold_is_read() -> None:
    """Content as a list, arguments as an object, calls without ids: no gateway writes them, people do."""
    call = {"function": {"name": "run", "arguments": {"a": 1}}}
    message = from_chat(
        {"role": "assistant", "content": ["one", {"text": "two"}, {"type": "audio"}], "tool_calls": [call]}
    )
    assert (text_of(message), thinking_in(message)) == ("onetwo", "")
    assert calls_of(message) == [ToolCall("run", '{"a": 1}')]
    assert parts_of(from_chat({"role": "user"})) == ()


@pytest.mark.parametrize("name", GOLDEN["traffic"])
def test_what_real_clients_sent_has_the_hashes_it_had(name: str) -> None:
    """Journals know histories by them: a session that was begun before goes on."""
    bodies = [r for r in read_recording(TRAFFIC / f"{name}.json") if r["method"] == "POST"]
    histories = [codec_of(r["path"]).parse(json.dumps(r["body"]).encode()).messages for r in bodies]
    hashed = [(len(messages), hash_history(messages)) for messages in histories]
    assert [[n, found.chain[-1], found.thread] for n, found in hashed] == GOLDEN["traffic"][name]


@pytest.mark.parametrize("known", GOLDEN["bodies"], ids=lambda known: known["format"])
def test_every_kind_of_part_is_read_as_it_was_and_stored_as_it_was(known: dict[str, Any]) -> None:
    messages = CODECS[known["format"]].parse(json.dumps(known["body"]).encode()).messages
    assert history_to_chat(messages) == known["messages"]
    assert history_from_chat(known["messages"]) == messages, "a journal gives back what the wire gave"
    assert (hash_history(messages).chain, hash_history(messages).thread) == (known["chain"], known["thread"])
