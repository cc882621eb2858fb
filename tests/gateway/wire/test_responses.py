"""OpenAI's responses as its SDK sees them, and what the journal holds of them."""

from __future__ import annotations

import itertools
import re
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from tests.gateway.conftest import Agents
from tests.support.servers import wait_until
from tests.support.wire import KINDS_OF_ANSWER, TOOL, check_events, events_of, nested_calls, post_stream, without_ids
from turnwise.gateway.wire.request import AnswerHead, Final, ModelRequest, Usage
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.messages import answer_of, history_to_chat, saying, text_of
from turnwise.tokens.answer_pieces import AnswerParts
from turnwise.types import Exclusion, FinishReason, TurnState

TOOLS: Any = [{"type": "function", **TOOL, "strict": False}]


def ask(qwen: Agents, given: Any, **options: Any) -> Response:
    return qwen.openai.responses.create(model="turnwise", input=given, **options)


def streamed(qwen: Agents, given: Any, **options: Any) -> tuple[list[Any], Response]:
    """The same over the SDK's own accumulator."""
    with qwen.openai.responses.stream(model="turnwise", input=given, **options) as stream:
        events = list(stream)
    return events, events[-1].response


def turn(qwen: Agents, answer: Any) -> Any:
    return qwen.journal.turns.get("turn-" + answer.id.removeprefix("resp_"))


def history(answer: Response) -> list[Any]:
    """The answer's items as a client sends them back."""
    return [item.model_dump(exclude_none=True) for item in answer.output]


def test_an_answer_and_its_record(qwen: Agents) -> None:
    answer = ask(qwen, "say: hello there", instructions="be kind", temperature=0.5, metadata={"k": "v"}, user="u")
    assert (answer.output_text, answer.status, answer.model) == ("hello there", "completed", "turnwise")
    assert (answer.instructions, answer.metadata, answer.temperature) == ("be kind", {"k": "v"}, 0.5)
    prompt_ids, response_ids, _ = qwen.stub.sampled[0]
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (len(prompt_ids), len(response_ids))
    assert answer.usage.total_tokens == len(prompt_ids) + len(response_ids)
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
    raw = post_stream(f"{qwen.url}/v1/responses", qwen.auth, {"model": "turnwise", "tools": TOOLS, "input": text})
    check_events(raw, ResponseStreamEvent)
    assert [e["sequence_number"] for e in raw] == list(range(len(raw)))
    assert [e["type"] for e in raw[:2]] == ["response.created", "response.in_progress"]
    assert raw[-1]["type"] == "response.completed"
    added = [e["item"]["id"] for e in raw if e["type"] == "response.output_item.added"]
    done = [e["item"] for e in raw if e["type"] == "response.output_item.done"]
    assert added == [item["id"] for item in done]
    assert done == raw[-1]["response"]["output"]
    assert without_ids(final) == without_ids(ask(qwen, text, tools=TOOLS))


def test_the_pieces_add_up_to_what_is_done(qwen: Agents) -> None:
    qwen.stub.token_delay_s = 0.01  # tokens that arrive together leave together
    qwen.stub.reply = lambda _: KINDS_OF_ANSWER["all"]
    raw = post_stream(f"{qwen.url}/v1/responses", qwen.auth, {"model": "turnwise", "tools": TOOLS, "input": "pieces"})
    for kind, key in (("reasoning_text", "text"), ("output_text", "text"), ("function_call_arguments", "arguments")):
        pieces = [e["delta"] for e in raw if e["type"] == f"response.{kind}.delta"]
        whole = next(e[key] for e in raw if e["type"] == f"response.{kind}.done")
        assert "".join(pieces) == whole
    assert len([e for e in raw if e["type"] == "response.function_call_arguments.delta"]) > 2


def test_reasoning_and_parallel_tools_and_their_results(qwen: Agents) -> None:
    said = "<think>\ntwo sums\n</think>\n\nAdding.\n" + nested_calls({"a": 1}, {"a": 2})
    first = ask(qwen, "say: " + said, tools=TOOLS)
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
    reasoning, message, one, two = first.output
    assert (reasoning.content[0].text, message.content[0].text) == ("two sums", "Adding.")
    assert (one.name, one.arguments, two.arguments) == ("add", '{"a": 1}', '{"a": 2}')
    results = [{"type": "function_call_output", "call_id": c.call_id, "output": "3"} for c in (one, two)]
    given = [{"role": "user", "content": "say: " + said}, *history(first), *results]
    second = ask(qwen, [*given, {"role": "user", "content": "say: done"}], tools=TOOLS)
    before, after = turn(qwen, first), turn(qwen, second)
    assert (before.finish_reason, before.state) == (FinishReason.TOOL_CALLS, TurnState.JUDGING)
    assert [m["role"] for m in qwen.next_state(before.id)] == ["tool", "tool", "user"], "one next state"
    assert (after.session_id, after.parent_id) == (before.session_id, before.id)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_tool_cycle_is_bridged_exactly(qwen: Agents, by_id: bool) -> None:
    said = "<think>\none sum\n</think>\n\n" + nested_calls({"a": 5})
    qwen.stub.reply = lambda prompt: "It is 5." if "<tool_response>" in prompt else said
    first = ask(qwen, f"add five {by_id}", tools=TOOLS)
    result: Any = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "5"}  # type: ignore[union-attr]
    if by_id:
        second = ask(qwen, [result], tools=TOOLS, previous_response_id=first.id)
        assert second.previous_response_id == first.id
    else:
        given = [{"role": "user", "content": f"add five {by_id}"}, *history(first), result]
        second = ask(qwen, given, tools=TOOLS)
    before, after = turn(qwen, first), turn(qwen, second)
    known = [*before.prompt_ids, *before.response_ids]
    assert after.bridged
    assert after.prompt_ids[: len(known)] == known
    assert (after.session_id, before.state) == (before.session_id, TurnState.JUDGING)


GROUP: Any = {"type": "namespace", "name": "sums", "description": "Sums.", "tools": TOOLS}


def test_a_tool_of_a_namespace_is_called_and_answered_under_its_own_name(qwen: Agents) -> None:
    said = '<tool_call>\n{"name": "sums.add", "arguments": {"a": 7}}\n</tool_call>'
    qwen.stub.reply = lambda prompt: "It is 7." if "<tool_response>" in prompt else said
    first = ask(qwen, "seven", tools=[GROUP])
    [call] = [item for item in first.output if item.type == "function_call"]
    assert (call.namespace, call.name, call.arguments) == ("sums", "add", '{"a": 7}')
    assert first.tools[0].type == "namespace"
    events, final = streamed(qwen, "seven, streamed", tools=[GROUP])
    assert [(item.namespace, item.name) for item in final.output if item.type == "function_call"] == [("sums", "add")]
    assert [e.name for e in events if e.type == "response.function_call_arguments.done"] == ["add"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "7"}
    second = ask(qwen, [{"role": "user", "content": "seven"}, *history(first), result], tools=[GROUP])
    assert second.output_text == "It is 7."
    assert turn(qwen, second).bridged, "the name goes out and comes back in two parts and is one"


def test_a_search_at_its_vendor_is_left_out_and_said_so(qwen: Agents) -> None:
    tools: Any = [*TOOLS, {"type": "web_search", "external_web_access": True}]
    raw = qwen.openai.responses.with_raw_response.create(model="turnwise", input="say: no search", tools=tools)
    assert raw.headers["x-turnwise-ignored"] == "web_search"
    answer = raw.parse()
    assert [tool.type for tool in answer.tools] == ["function"]
    record = turn(qwen, answer)
    assert [tool["function"]["name"] for tool in record.tools] == ["add"]
    row = qwen.journal.lookups.turn(record.id)
    assert row is not None
    assert row.params["ignored_tools"] == [{"type": "web_search", "external_web_access": True}]


def test_a_previous_response_stands_for_its_history(qwen: Agents) -> None:
    first = ask(qwen, "say: I am first", instructions="speak as one")
    second = ask(qwen, "say: second", previous_response_id=first.id, instructions="speak as two")
    third = ask(qwen, "say: third", previous_response_id=second.id, instructions="speak as two")
    record = turn(qwen, third)
    assert [text_of(m) for m in record.messages] == [
        *("speak as two", "say: I am first", "I am first", "say: second", "second", "say: third")
    ]
    assert record.session_id == turn(qwen, first).session_id
    assert record.parent_id == turn(qwen, second).id


def test_instructions_are_not_carried_over(qwen: Agents) -> None:
    first = ask(qwen, "say: one", instructions="only for now")
    second = ask(qwen, "say: two", previous_response_id=first.id)
    assert second.instructions is None
    assert [text_of(m) for m in turn(qwen, second).messages] == ["say: one", "one", "say: two"]
    kept = ask(qwen, [{"role": "system", "content": "for good"}, {"role": "user", "content": "say: one"}])
    after = ask(qwen, "say: two", previous_response_id=kept.id)
    assert turn(qwen, after).messages[0] == saying("system", "for good")


def test_previous_responses_that_are_not_there(qwen: Agents) -> None:
    first = ask(qwen, "say: mine")
    stranger = qwen.client(**{"User-Agent": "somebody else"})
    for client, previous in [(qwen.openai, "resp_0"), (qwen.openai, "ü"), (stranger, first.id)]:
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="turnwise", input="hi", previous_response_id=previous)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


def test_arguments_that_are_no_json_are_told_as_they_are(qwen: Agents) -> None:
    said = 'say: <tool_call>\n{"name": "add", "arguments": {"a": nope}}\n</tool_call>'
    for answer in (ask(qwen, said, tools=TOOLS).model_dump(), ask_streamed(qwen, said)):
        assert answer["output"][0]["arguments"] == '{"a": nope}'


def ask_streamed(qwen: Agents, given: Any) -> Any:
    return post_stream(f"{qwen.url}/v1/responses", qwen.auth, {"model": "turnwise", "tools": TOOLS, "input": given})[
        -1
    ]["response"]


def test_log_probs_are_those_of_the_sampled_tokens(qwen: Agents) -> None:
    include: Any = ["message.output_text.logprobs"]
    text = "say: día 🤖 fin, with  spaces"
    whole = ask(qwen, text, include=include)
    _, final = streamed(qwen, text, include=include)
    expected = turn(qwen, whole).logprobs
    for answer in (whole, final):
        given = answer.output[0].content[0].logprobs  # type: ignore[union-attr]
        assert [token.logprob for token in given] == expected
    raw = post_stream(f"{qwen.url}/v1/responses", qwen.auth, {"model": "turnwise", "input": text, "include": include})
    deltas = [t["logprob"] for e in raw if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
    assert deltas == expected[: len(deltas)]
    assert len(expected) - len(deltas) <= 1, "only the token that ends the answer has no text"


@pytest.mark.parametrize("said", ["<think>\nhm so\n</think>\n\nfour is it", "<think>\n\n</think>\n\nfour is it"])
@pytest.mark.parametrize("calls", ["", "\n" + nested_calls({"a": 1})])
def test_log_probs_are_those_of_the_text_alone(qwen: Agents, said: str, calls: str) -> None:
    qwen.stub.reply = lambda _: said + calls
    include: Any = ["message.output_text.logprobs"]
    text = f"probs of {said}{calls}"
    for answer in (
        ask(qwen, text, include=include, tools=TOOLS),
        streamed(qwen, text, include=include, tools=TOOLS)[1],
    ):
        message = next(item for item in answer.output if item.type == "message")
        given = "".join(token.token for token in message.content[0].logprobs or [])  # type: ignore[union-attr]
        assert given.removesuffix("<|im_end|>") == "four is it"


def test_items_of_a_stream_have_ids_of_their_own_and_its_time_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(1000)
    monkeypatch.setattr("turnwise.gateway.wire.responses.answer.time.time", lambda: next(clock))
    writer = ResponsesCodec().writer(AnswerHead("turn-1", ModelRequest("m", [saying("user", "hi")]), 1))
    data = writer.begin()
    for parts in (AnswerParts(reasoning="a"), AnswerParts(content="b"), AnswerParts(reasoning="c")):
        data += writer.delta(parts, None)
    events = events_of(data + writer.end(Final(answer_of(""), FinishReason.LENGTH, Usage(1, 1))))
    assert len({e["response"]["created_at"] for e in events if "response" in e}) == 1
    items = events[-1]["response"]["output"]
    assert len({item["id"] for item in items}) == 3
    assert [item["status"] for item in items] == ["completed", "completed", "incomplete"]


def test_a_limit_makes_the_answer_incomplete(qwen: Agents) -> None:
    cut = ask(qwen, "say: one two three four five six", max_output_tokens=3)
    assert cut.incomplete_details is not None
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    events, final = streamed(qwen, "say: one two three four five six", max_output_tokens=3)
    assert (events[-1].type, final.status) == ("response.incomplete", "incomplete")
    assert without_ids(final) == without_ids(cut)


def test_errors_in_the_shape_and_classes_of_the_sdk(qwen: Agents) -> None:
    with pytest.raises(openai.AuthenticationError):
        ask(Agents(qwen.url, "wrong", qwen.stub, qwen.journal, qwen.config), "hi")
    with pytest.raises(openai.NotFoundError) as missing:
        ask(qwen, "hi", extra_body={"model": "gpt"})
    assert (missing.value.code, missing.value.type) == ("model_not_found", "not_found_error")
    with pytest.raises(openai.BadRequestError) as long:
        ask(qwen, "word " * 9000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.APIStatusError) as large:
        ask(qwen, "x" * 17_000_000)
    assert large.value.status_code == 413
    qwen.stub.refuse_with = 429
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError):
            ask(qwen, "hi, full engine", stream=stream)


def test_an_engine_that_dies_in_the_middle_of_a_stream(qwen: Agents) -> None:
    qwen.stub.die_after = 3
    raw = post_stream(
        f"{qwen.url}/v1/responses", qwen.auth, {"model": "turnwise", "input": "say: one two three four five six"}
    )
    check_events(raw, ResponseStreamEvent)
    assert (raw[-1]["type"], raw[-1]["response"]["error"]["code"]) == ("response.failed", "server_error")
    wait_until(lambda: qwen.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE))


CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}], "'input_image'"),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}], "'input_file'"),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}], "'input_audio'"),
        ([HI, {"type": "web_search_call", "id": "w"}], "'web_search_call'"),
        ([HI, OUTPUT], "not in the history"),
        ([HI, CALL, CALL, OUTPUT], "same id"),
        ([HI, CALL | {"arguments": {}}, OUTPUT], "all strings"),
        ([HI, CALL, OUTPUT | {"output": 3}], "must be a string"),
        ([HI, CALL], "add their results"),
        ([], "empty"),
    ],
)
def test_refused_input(qwen: Agents, given: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(qwen, given)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools.0"),
        ({"tools": [{"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "x"}]}]}, "tools.0.*"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"extra_body": {"made_up": 1}}, "made_up"),
        ({"extra_body": {"metadata": {"k": 1}}}, "metadata.k"),
        ({"extra_body": {"metadata": "text"}}, "metadata"),
        ({"extra_body": {"text": {"verbosity": "odd"}}}, "text.verbosity"),
        ({"extra_body": {"include": "all"}}, "include"),
        ({"extra_body": {"include": ["everything"]}}, "include"),
        ({"background": True}, "background"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
)
def test_refused_options(qwen: Agents, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(qwen, "hi", **options)
    assert re.fullmatch(param, str(refused.value.param))


@pytest.mark.parametrize(
    "options",
    [{"reasoning": {"effort": "utmost"}}, {"reasoning": "much"}, {"store": "maybe"}, {"prompt_cache_key": "ключ\n"}],
)
def test_wishes_that_change_nothing_are_no_reason_to_fail(qwen: Agents, options: dict[str, Any]) -> None:
    answer = httpx.post(
        f"{qwen.url}/v1/responses", headers=qwen.auth, json={"model": "turnwise", "input": f"say: {options}"} | options
    )
    assert answer.status_code == 200, answer.text


def test_an_empty_answer_is_an_empty_message_that_can_be_sent_back(qwen: Agents) -> None:
    for how in (ask, lambda *given: streamed(*given)[1]):
        asked = {"role": "user", "content": f"say: {how}"}
        qwen.stub.reply = lambda _: ""
        first = how(qwen, [asked])
        assert [(item.type, item.content[0].text) for item in first.output] == [("message", "")]  # type: ignore[union-attr]
        qwen.stub.reply = lambda _: "here again"
        second = turn(qwen, how(qwen, [asked, *history(first), {"role": "user", "content": "say: hm"}]))
        assert (second.parent_id, second.session_id) == (turn(qwen, first).id, turn(qwen, first).session_id)


def test_items_that_are_only_named_stand_for_what_was_answered(qwen: Agents) -> None:
    """As the Vercel AI SDK sends a conversation back that its server has stored."""
    asked = {
        "role": "user",
        "content": "say: <think>\nTwo sums.\n</think>\n\nI add." + nested_calls({"a": 1}, {"a": 2}),
    }
    tools = [{"type": "function"} | TOOL]
    first = ask(qwen, [asked], tools=tools)
    kinds = [item.type for item in first.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "3"}  # type: ignore[union-attr]
        for item in first.output[2:]
    ]
    second = turn(qwen, ask(qwen, [asked, *named, *results], tools=tools))
    before = turn(qwen, first)
    assert (second.parent_id, second.session_id) == (before.id, before.session_id)
    known = [*before.prompt_ids, *before.response_ids]
    assert second.bridged and second.prompt_ids[: len(known)] == known
    by_id_alone = [{"type": None, "id": item["id"]} for item in named]
    whole = [item.model_dump() for item in first.output]
    for given in (by_id_alone, [{"id": item["id"]} for item in named], whole[:1] + named[1:2] + whole[2:]):
        assert turn(qwen, ask(qwen, [asked, *given, *results], tools=tools)).prompt_ids == second.prompt_ids
    for given in (whole[:2] + named[2:3] + whole[3:], named[:2] + whole[2:3] + named[3:]):
        assert turn(qwen, ask(qwen, [asked, *given, *results], tools=tools)).prompt_ids == second.prompt_ids


def test_the_text_of_an_answer_that_came_in_several_items_is_there_once(qwen: Agents) -> None:
    call = nested_calls({"a": 1})
    asked = {"role": "user", "content": f"say: before {call} after it all"}
    tools = [{"type": "function"} | TOOL]
    first = streamed(qwen, [asked], tools=tools)[1]
    assert [item.type for item in first.output] == ["message", "function_call", "message"]
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "3"}  # type: ignore[union-attr]
    second = turn(qwen, ask(qwen, [asked, *named, result], tools=tools))
    assert second.bridged and second.parent_id == turn(qwen, first).id


def test_an_answer_that_was_cut_off_cannot_be_named(qwen: Agents) -> None:
    qwen.stub.token_delay_s = 0.02
    with qwen.openai.responses.create(model="turnwise", input="say: " + "word " * 200, stream=True) as events:
        begun: Any = next(iter(events))  # the same client asks below: another's is refused anyway
    cut = begun.response.id.replace("resp_", "turn-")
    wait_until(lambda: (row := qwen.journal.lookups.turn(cut)) is not None and row.finish_reason == FinishReason.ABORT)
    qwen.stub.token_delay_s = 0
    with pytest.raises(openai.BadRequestError, match="any more"):
        named = {"type": "item_reference", "id": cut.replace("turn-", "msg_")}
        ask(qwen, [named, {"role": "user", "content": "go on"}])


@pytest.mark.parametrize(
    ("id", "words"), [("msg_0123456789abcdef", "any more"), ("msg_x", "no item 'msg_x'"), (None, "no item None")]
)
def test_items_that_nobody_was_sent_cannot_be_named(qwen: Agents, id: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(qwen, [{"type": "item_reference", "id": id}, {"role": "user", "content": "hi"}])


def test_items_that_are_not_stored_or_anothers_cannot_be_named(qwen: Agents) -> None:
    first = ask(qwen, "say: once, and not to be named", store=False)
    again = [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "go on"}]
    with pytest.raises(openai.BadRequestError, match="any more") as refused:
        ask(qwen, again)
    assert refused.value.code == "item_not_found"
    kept = ask(qwen, "say: kept, but one client's")
    again[0]["id"] = kept.output[0].id
    with pytest.raises(openai.BadRequestError, match="any more"):
        ask(qwen, again, user="somebody else", extra_headers={"User-Agent": "another client"})
