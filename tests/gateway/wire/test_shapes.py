"""What of a request is kept in the record, what is refused, and under which name: in every format."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.callers import FORMATS, user
from tests.gateway.conftest import Agents
from tests.gateway.encoders import Habits
from tests.support.wire import TOOL
from turnwise.messages import text_of

SCHEMA = {"type": "object"}
NAMESPACE = {"type": "namespace", "name": "group", "description": "d", "tools": [{"type": "function"} | TOOL]}


def post(qwen: Agents, name: str, said: str, **more: Any) -> httpx.Response:
    path, body, _ = FORMATS[name]
    asked = body([user(f"say: {said}")], Habits()) | more
    return httpx.post(f"{qwen.url}{path}", headers=qwen.auth, json=asked, timeout=30)


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Status and the field that is named: Anthropic's shape has it in the message alone."""
    error = response.json()["error"]
    return response.status_code, error.get("param") or error["message"]


def named(name: str, response: httpx.Response, param: str) -> bool:
    status, said = refusal(response)
    where = param.rpartition(".") if name == "messages" else ("", "", "")
    return status == 400 and (said == param or (bool(where[0]) and where[0] in said and where[2] in said))


@pytest.mark.parametrize(
    ("name", "more", "param"),
    [
        ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
        ("responses", {"text": {"format": {"type": "json_object"}}}, "text.format"),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "output_config.format"),
    ],
)
def test_a_schema_no_engine_can_hold_is_refused_under_its_own_name(
    qwen: Agents, name: str, more: dict[str, Any], param: str
) -> None:
    response = post(qwen, name, "a schema", **more)
    assert named(name, response, param), response.text
    assert ("response_format" in response.text) == (name == "chat")


@pytest.mark.parametrize("given", [{}, {"json_schema": {"name": "n"}}, {"json_schema": None}])
def test_a_schema_that_is_not_there_is_refused(qwen: Agents, given: dict[str, Any]) -> None:
    chat = post(qwen, "chat", "no schema", response_format={"type": "json_schema"} | given)
    assert chat.status_code == 400 and "json_schema" in chat.json()["error"]["param"]
    assert "schema" in chat.json()["error"]["message"]
    responses = post(qwen, "responses", "no schema", text={"format": {"type": "json_schema", "name": "n"}})
    assert named("responses", responses, "text.format")


def test_single_calls_only_is_refused_by_its_own_name(qwen: Agents) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    tools = [FORMATS["messages"][2]]
    response = post(qwen, "messages", "one call", tool_choice=choice, tools=tools)
    assert named("messages", response, "tool_choice.disable_parallel_tool_use"), response.text
    for more in ({"tool_choice": choice}, {"tool_choice": choice | {"type": "none"}, "tools": tools}):
        assert post(qwen, "messages", "no call", **more).status_code == 200  # where there are none, one at a time is


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("responses", {"type": "custom", "name": "apply_patch"}),
        ("responses", {"type": "local_shell"}),
        ("messages", {"type": "bash_20250124", "name": "bash"}),
    ],
)
def test_a_tool_that_is_no_function_is_refused_for_what_it_is(qwen: Agents, name: str, tool: dict[str, Any]) -> None:
    response = post(qwen, name, "another tool", tools=[tool])
    assert named(name, response, "tools.0"), response.text
    message = response.json()["error"]["message"]
    assert tool["type"] in message and "functions" in message and "vendor" not in message


MARKS: dict[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "defer_loading": True,
    "input_examples": [{"command": "ls"}],
    "allowed_callers": ["direct"],
    "eager_input_streaming": True,
    "output_schema": SCHEMA,
}


@pytest.mark.parametrize("name", FORMATS)
def test_marks_on_a_tool_are_kept_in_the_record_and_change_nothing(qwen: Agents, name: str) -> None:
    tool = FORMATS[name][2]
    plain = post(qwen, name, f"marks {name}", tools=[tool])
    marked = plain
    for mark, value in MARKS.items():
        marked = post(qwen, name, f"marks {name}", tools=[tool | {mark: value}])
        assert marked.status_code == 200, marked.text
        row = qwen.journal.lookups.turn(marked.headers["x-turnwise-turn-id"])
        assert row is not None
        assert row.params["tool_marks"] == {"tools.0": {mark: value}}
    turns = [qwen.journal.turns.get(r.headers["x-turnwise-turn-id"]) for r in (plain, marked)]
    assert turns[0] is not None and turns[1] is not None
    assert (turns[0].prompt_ids, turns[0].tools) == (turns[1].prompt_ids, turns[1].tools)


@pytest.mark.parametrize("name", FORMATS)
def test_what_nobody_knows_of_a_tool_is_refused_by_name(qwen: Agents, name: str) -> None:
    tool = FORMATS[name][2]
    assert named(name, post(qwen, name, "bogus", tools=[tool, tool | {"bogus": 1}]), "tools.1.bogus")
    callers = post(qwen, name, "callers", tools=[tool | {"allowed_callers": ["code_execution_20260120"]}])
    assert named(name, callers, "tools.0.allowed_callers")


def test_a_tool_in_a_group_is_held_to_the_same(qwen: Agents) -> None:
    [inner] = NAMESPACE["tools"]
    marked = post(qwen, "responses", "group", tools=[NAMESPACE | {"tools": [inner | {"defer_loading": True}]}])
    row = qwen.journal.lookups.turn(marked.headers["x-turnwise-turn-id"])
    assert row is not None
    assert row.params["tool_marks"] == {"tools.0.tools.0": {"defer_loading": True}}
    bogus = post(qwen, "responses", "group", tools=[NAMESPACE | {"tools": [inner | {"bogus": 1}]}])
    assert named("responses", bogus, "tools.0.tools.0.bogus")
    assert named("responses", post(qwen, "responses", "group", tools=[NAMESPACE | {"bogus": 1}]), "tools.0.bogus")


CALL = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "x"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"role": "assistant", "content": "y"},
    CALL,
    RESULT,
]


@pytest.mark.parametrize("at", range(len(ITEMS)))
def test_what_nobody_knows_of_an_item_is_refused_by_name(qwen: Agents, at: int) -> None:
    given = [item | ({"bogus": 1} if i == at else {}) for i, item in enumerate(ITEMS)]
    assert named("responses", post(qwen, "responses", "items", input=given), f"input.{at}.bogus")
    marks = {"id": "i", "status": "completed"}
    fine = post(qwen, "responses", "items", input=[item | (marks if i == at else {}) for i, item in enumerate(ITEMS)])
    assert fine.status_code == 200, fine.text


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_an_answer_of_nothing_but_reasoning_may_be_sent_back(qwen: Agents, field: str) -> None:
    """As an answer is that a limit cut while the model thought."""
    cut = {"role": "assistant", "content": None, field: "let me see"}
    history = [user(f"only {field}"), cut, user("say: go on")]
    response = httpx.post(
        f"{qwen.url}/v1/chat/completions", headers=qwen.auth, json={"model": "turnwise", "messages": history}
    )
    assert response.status_code == 200, response.text


SENT: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"moderation": None, "prompt_cache_options": {"mode": "implicit"}, "unheard_of": None}),
    ("chat", {"top_p": 0}),
    ("responses", {"top_p": 0, "unheard_of": None}),
    ("messages", {"top_p": 0, "container": None, "output_config": {"task_budget": {"type": "tokens", "total": 9}}}),
    ("chat", {"tools": [{"type": "function", "function": TOOL | {"cache_control": {"type": "ephemeral"}}}]}),
    ("responses", {"tools": [{"type": "function", "async": False} | TOOL]}),
    ("responses", {"input": [ITEMS[0], CALL | {"async_": None, "caller": None, "unheard_of": None}, RESULT]}),
    ("responses", {"input": [ITEMS[0] | {"internal_chat_message_metadata_passthrough": {"a": 1}}, *ITEMS[2:]]}),
]
"""What clients and the SDKs of both makers send without meaning anything by it."""


@pytest.mark.parametrize(("name", "more"), SENT)
def test_what_says_nothing_is_no_reason_to_fail(qwen: Agents, name: str, more: dict[str, Any]) -> None:
    response = post(qwen, name, "so be it", **more)
    assert response.status_code == 200, response.text
    turn = qwen.journal.turns.get(response.headers["x-turnwise-turn-id"])
    assert turn is not None and turn.temperature == (0 if more.get("top_p") == 0 else 1)


def test_what_would_mean_something_is_refused(qwen: Agents) -> None:
    assert named("chat", post(qwen, "chat", "hm", unheard_of=False), "unheard_of")
    waiting = post(qwen, "responses", "hm", tools=[{"type": "function", "async": True} | TOOL])
    assert named("responses", waiting, "tools.0.async")


def test_the_tool_loop_of_the_sdks_parser_goes_on(qwen: Agents) -> None:
    strict = {"additionalProperties": False, "required": ["a"]}
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}} | strict
    function = {"name": "add", "strict": True, "parameters": parameters}
    asked: list[Any] = [user('say: <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>')]
    tools: Any = [{"type": "function", "function": function}]
    first = qwen.openai.chat.completions.parse(model="turnwise", messages=asked, tools=tools)
    [call] = first.choices[0].message.tool_calls or []
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "2"}
    asked += [first.choices[0].message, result]
    second = qwen.openai.chat.completions.parse(model="turnwise", messages=asked, tools=tools)
    assert qwen.journal.turns.get(second.id.removeprefix("chatcmpl-")) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_parts_of_a_message_stand_apart(qwen: Agents, name: str) -> None:
    """A client's own words behind a person's, as agents put them, do not run into each other."""
    kind = "input_text" if name == "responses" else "text"
    texts = ["say: fix it", "<system-reminder>", "now \n", "please", " do"]
    parts = [{"type": kind, "text": text} for text in texts]
    key = "input" if name == "responses" else "messages"
    response = post(qwen, name, "", **{key: [{"role": "user", "content": parts}]})
    turn = qwen.journal.turns.get(response.headers["x-turnwise-turn-id"])
    assert turn is not None
    assert text_of(turn.messages[-1]) == "say: fix it\n<system-reminder>\nnow \nplease do"
