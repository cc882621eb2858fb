"""Anthropic's messages as its SDK sees them, and what the journal holds of them."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message, RawMessageStreamEvent

from tests.gateway.conftest import Agents
from tests.support.servers import wait_until
from tests.support.wire import KINDS_OF_ANSWER, TOOL, check_events, nested_calls, post_stream, without_ids
from turnwise.gateway.wire.messages.answer import usage_body
from turnwise.gateway.wire.request import Usage
from turnwise.messages import history_to_chat, text_of
from turnwise.types import Exclusion, FinishReason, TurnState

TOOLS: Any = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]


def ask(qwen: Agents, *content: Any, **options: Any) -> Any:
    """One request whose messages alternate between user and assistant."""
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": c} for i, c in enumerate(content)]
    return qwen.anthropic.messages.create(model="turnwise", messages=messages, **{"max_tokens": 500} | options)


def streamed(qwen: Agents, content: Any, **options: Any) -> tuple[list[Any], Message]:
    """The same over the SDK's own accumulator."""
    messages: Any = [{"role": "user", "content": content}]
    with qwen.anthropic.messages.stream(model="turnwise", messages=messages, **{"max_tokens": 500} | options) as stream:
        return list(stream), stream.get_final_message()


def turn(qwen: Agents, answer: Any) -> Any:
    return qwen.journal.turns.get("turn-" + answer.id.removeprefix("msg_"))


def test_an_answer_and_its_record(qwen: Agents) -> None:
    answer = ask(
        qwen,
        "say: hello there",
        system="be kind",
        extra_body={"temperature": 0.5, "top_k": 7, "metadata": {"user_id": "u"}},
    )
    assert [block.model_dump(exclude_none=True) for block in answer.content] == [
        {"type": "text", "text": "hello there"}
    ]
    assert (answer.stop_reason, answer.stop_sequence, answer.role, answer.model) == (
        "end_turn",
        None,
        "assistant",
        "turnwise",
    )
    prompt_ids, response_ids, _ = qwen.stub.sampled[0]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (len(prompt_ids), len(response_ids))
    record = turn(qwen, answer)
    assert (record.prompt_ids, record.response_ids) == (prompt_ids, response_ids)
    assert history_to_chat(record.messages) == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "say: hello there"},
    ]
    assert (record.state, record.temperature) == (TurnState.WAITING, 0.5)


@pytest.mark.parametrize("name", KINDS_OF_ANSWER)
def test_a_stream_is_the_same_answer_in_events_of_the_sdk(qwen: Agents, name: str) -> None:
    qwen.stub.reply = lambda _: KINDS_OF_ANSWER[name]
    text = f"stream {name}"
    _, final = streamed(qwen, text, tools=TOOLS)
    raw = post_stream(
        f"{qwen.url}/v1/messages",
        qwen.auth,
        {"model": "turnwise", "max_tokens": 500, "tools": TOOLS, "messages": [{"role": "user", "content": text}]},
    )
    check_events(raw, RawMessageStreamEvent)
    assert [raw[0]["type"], raw[-2]["type"], raw[-1]["type"]] == ["message_start", "message_delta", "message_stop"]
    kinds = [e["type"].removeprefix("content_block_") for e in raw[1:-2]]
    for before, after in zip(["stop", *kinds], [*kinds, "start"], strict=True):
        assert (after == "start") == (before == "stop"), "each block is started, filled and stopped before the next one"
    assert without_ids(final) == without_ids(ask(qwen, text, tools=TOOLS))


def test_reasoning_and_parallel_tools_and_their_results(qwen: Agents) -> None:
    qwen.stub.token_delay_s = 0.01  # tokens that arrive together leave together
    said = "<think>\ntwo sums\n</think>\n\nAdding.\n" + nested_calls({"a": 1}, {"a": 2})
    events, first = streamed(qwen, "say: " + said, tools=TOOLS)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, one, two = first.content
    assert (thinking.thinking, text.text, one.input, two.input) == ("two sums", "Adding.", {"a": 1}, {"a": 2})
    assert (first.stop_reason, one.name, one.id != two.id) == ("tool_use", "add", True)
    assert len([e for e in events if e.type == "input_json"]) > 4, "arguments leave in pieces"
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": str(n)} for n, c in enumerate([one, two])]
    history = [block.model_dump(exclude_none=True) for block in first.content]
    second = ask(qwen, "say: " + said, history, [*results, {"type": "text", "text": "say: done"}], tools=TOOLS)
    before, after = turn(qwen, first), turn(qwen, second)
    assert (before.finish_reason, before.state) == (FinishReason.TOOL_CALLS, TurnState.JUDGING)
    assert [m["role"] for m in qwen.next_state(before.id)] == ["tool", "tool", "user"], (
        "several results are one next state"
    )
    assert (after.session_id, after.parent_id) == (before.session_id, before.id)


def test_a_tool_cycle_is_bridged_exactly(qwen: Agents) -> None:
    said = "<think>\none sum\n</think>\n\n" + nested_calls({"a": 5})
    qwen.stub.reply = lambda prompt: "It is 5." if "<tool_response>" in prompt else said
    first = ask(qwen, "add five", tools=TOOLS)
    call = first.content[-1]
    history = [block.model_dump(exclude_none=True) for block in first.content]
    result = [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "5"}]}]
    second = ask(qwen, "add five", history, result, tools=TOOLS)
    before, after = turn(qwen, first), turn(qwen, second)
    known = [*before.prompt_ids, *before.response_ids]
    assert after.bridged
    assert after.prompt_ids[: len(known)] == known
    assert after.prompt_ids == qwen.stub.sampled[-1][0]


def test_tools_that_a_client_found_are_named_in_the_result(qwen: Agents) -> None:
    """Claude Code searches its tools itself, and has them in the request from then on."""
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    found = [{"type": "tool_reference", "tool_name": name} for name in ("WebFetch", "add")]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": found}
    answer = ask(qwen, "search", [use], [result], tools=TOOLS)
    assert text_of(turn(qwen, answer).messages[-1]) == "found: WebFetch\nfound: add\n"


def test_a_sub_agent_is_a_session_beside_its_parents(qwen: Agents) -> None:
    headers = {"X-Claude-Code-Session-Id": "0199-parent"}
    assert turn(qwen, ask(qwen, "say: go", extra_headers=headers)).session_id == "0199-parent"
    headers["X-Claude-Code-Agent-Id"] = "a1"
    assert turn(qwen, ask(qwen, "say: hello", extra_headers=headers)).session_id == "0199-parent:a1"
    codex = {"session-id": "0199-parent", "thread-id": "0199-child"}
    assert turn(qwen, ask(qwen, "say: hi", extra_headers=codex)).session_id == "0199-child"


def test_arguments_that_are_no_json(qwen: Agents) -> None:
    broken = '<tool_call>\n{"name": "add", "arguments": {"a": nope}}\n</tool_call>'
    whole = ask(qwen, "say: " + broken, tools=TOOLS)
    assert (whole.stop_reason, whole.content[0].input) == ("tool_use", {"INVALID_JSON": '{"a": nope}'})
    _, final = streamed(qwen, "say: " + broken, tools=TOOLS)
    assert (final.stop_reason, final.content[0].type) == ("tool_use", "tool_use")
    for odd in ('{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": ' + "1" * 5000 + "}", '{"a": ' + "[" * 300):
        said = f'<tool_call>\n{{"name": "add", "arguments": {odd}}}\n</tool_call>'
        assert ask(qwen, "say: " + said, tools=TOOLS, max_tokens=7000).content[0].type == "tool_use"
        assert streamed(qwen, "say: " + said, tools=TOOLS, max_tokens=7000)[1].content[0].type == "tool_use"


def test_stop_sequences_and_limits(qwen: Agents) -> None:
    answer = ask(qwen, "say: one END two", stop_sequences=["END"])
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == ("one ", "stop_sequence", "END")
    _, final = streamed(qwen, "say: one END two", stop_sequences=["END"])
    assert (final.content[0].text, final.stop_reason, final.stop_sequence) == ("one ", "stop_sequence", "END")
    cut = ask(qwen, "say: one two three four five six", max_tokens=3)
    assert (cut.stop_reason, cut.usage.output_tokens, len(turn(qwen, cut).response_ids)) == ("max_tokens", 3, 3)


def test_tokens_from_a_cache_are_counted_apart() -> None:
    """Clients of this format add the two up to know how full the context is."""
    usage = usage_body(Usage(prompt_tokens=349, completion_tokens=32, cached_tokens=256))
    assert usage == {"input_tokens": 93, "cache_read_input_tokens": 256, "output_tokens": 32}
    assert usage_body(Usage(349, 32)) == {"input_tokens": 349, "output_tokens": 32}, "an engine that does not say"


def test_counted_tokens_are_those_of_the_prompt(qwen: Agents) -> None:
    given: dict[str, Any] = {
        "model": "turnwise",
        "system": [{"type": "text", "text": "count me", "cache_control": {"type": "ephemeral"}}],
        "tools": TOOLS,
        "messages": [{"role": "user", "content": "how long is this?"}],
    }
    counted = qwen.anthropic.messages.count_tokens(**given)
    answer = qwen.anthropic.messages.create(**given, max_tokens=20)
    assert counted.input_tokens == answer.usage.input_tokens
    assert text_of(turn(qwen, answer).messages[0]) == "count me"


def test_errors_in_the_shape_and_classes_of_the_sdk(qwen: Agents) -> None:
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        ask(Agents(qwen.url, "wrong", qwen.stub, qwen.journal, qwen.config), "hi")
    assert wrong.value.body == {
        "type": "error",
        "error": {"type": "authentication_error", "message": wrong.value.body["error"]["message"]},  # type: ignore[index]
        "request_id": None,
    }
    with pytest.raises(anthropic.NotFoundError, match="no model") as missing:
        ask(qwen, "hi", extra_body={"model": "claude"})
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        ask(qwen, "hi", extra_body={"max_tokens": None})
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        ask(qwen, "word " * 9000)
    with pytest.raises(anthropic.APIStatusError) as large:
        ask(qwen, "x" * 17_000_000)
    assert (large.value.status_code, large.value.body["error"]["type"]) == (413, "request_too_large")  # type: ignore[index]
    qwen.stub.refuse_with = 429
    with pytest.raises(anthropic.RateLimitError):
        ask(qwen, "hi, full engine")
    lost = httpx.get(f"{qwen.url}/v1/messages/lost", headers=qwen.auth)
    assert (lost.status_code, lost.json()["error"]["type"]) == (404, "not_found_error")


def test_an_engine_that_dies_in_the_middle_of_a_stream(qwen: Agents) -> None:
    qwen.stub.die_after = 3
    with pytest.raises(anthropic.APIStatusError, match="engine") as died:
        streamed(qwen, "say: one two three four five six seven")
    assert died.value.body["type"] == "error"  # type: ignore[index]
    wait_until(lambda: qwen.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE))


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
FILE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "1"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([[IMAGE]], "'image'"),
        ([[FILE | {"source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]], "'document'"),
        (["hi", [USE], [RESULT | {"content": [IMAGE]}]], "'image'"),
        ([[RESULT]], "not in the history"),
        (["hi", [USE], [RESULT | {"tool_use_id": "t2"}]], "not in the history"),
        (["hi", [USE, USE], [RESULT]], "same id"),
        (["hi", [USE | {"input": "text"}], [RESULT]], "must be an object"),
        (["hi", [USE]], "add their results"),
        (["hi", [{"type": "server_tool_use", "id": "x", "name": "y", "input": {}}], "more"], "'server_tool_use'"),
    ],
)
def test_refused_content(qwen: Agents, content: list[Any], words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        ask(qwen, *content)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "functions"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "two tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"extra_body": {"made_up": 1}}, "made_up"),
        ({"extra_body": {"mcp_servers": [{}]}}, "mcp_servers"),
        ({"extra_body": {"temperature": 3}}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
    ],
)
def test_refused_options(qwen: Agents, options: dict[str, Any], words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        ask(qwen, "hi", **options)
