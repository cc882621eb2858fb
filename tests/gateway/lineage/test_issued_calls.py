"""Clients that rewrite an answer and send back the id that we gave its call: the id names the turn.

Each habit was seen with an agent framework: the text beside the call is dropped, the call becomes a text, or each call
of an answer becomes a message of its own. What they do to the prompt stays as it is: it is rendered anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.encoders import Habits
from tests.gateway.lineage.test_sessions_api import next_state, session_of
from tests.support.wire import ChatMessage
from turnwise.gateway.lineage.history import hash_history, place_exactly
from turnwise.gateway.lineage.issued_calls import as_one_answer, beginnings, called, issued
from turnwise.gateway.wire.request import call_id
from turnwise.journal.turns.lookups import MOST_FOUND
from turnwise.messages import from_chat, saying
from turnwise.types import TurnState

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{{"name": "run", "arguments": {{"n": {}}}}}</tool_call>'


def post(gateway: Running, messages: list[ChatMessage], **headers: str) -> tuple[httpx.Headers, ChatMessage]:
    body = {"model": "turnwise", "messages": messages, "tools": TOOLS}
    url = f"{gateway.url}/v1/chat/completions"
    response = httpx.post(url, headers=gateway.auth | headers, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.headers, response.json()["choices"][0]["message"]


def text_dropped(answer: ChatMessage) -> list[ChatMessage]:
    results = [result(call) for call in answer["tool_calls"]]
    return [{"role": "assistant", "content": None, "tool_calls": answer["tool_calls"]}, *results]


def made_a_text(answer: ChatMessage) -> list[ChatMessage]:
    calls = [{"id": c["id"], "type": "function", "function": c["function"]} for c in answer["tool_calls"]]
    text = f"{answer['content']}\nCalling tools:\n{calls}"
    return [{"role": "assistant", "content": text}, user("Observation:\nok")]


def one_by_one(answer: ChatMessage) -> list[ChatMessage]:
    pairs = [({"role": "assistant", "content": "", "tool_calls": [c]}, result(c)) for c in answer["tool_calls"]]
    return [message for pair in pairs for message in pair]


def text_apart(answer: ChatMessage) -> list[ChatMessage]:
    return [{"role": "assistant", "content": answer["content"]}, *text_dropped(answer)]


def arguments_filled_in(answer: ChatMessage) -> list[ChatMessage]:
    calls = json.loads(json.dumps(answer["tool_calls"]))
    for call in calls:
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]) | {"recursive": False})
    return [answer | {"tool_calls": calls}, *map(result, calls)]


def result(call: ChatMessage) -> ChatMessage:
    return {"role": "tool", "tool_call_id": call["id"], "content": "ok"}


Rewrite = Callable[[ChatMessage], list[ChatMessage]]
HABITS: list[Rewrite] = [text_dropped, made_a_text, one_by_one, text_apart, arguments_filled_in]


@pytest.mark.parametrize("rewrite", HABITS, ids=lambda rewrite: rewrite.__name__)
def test_a_rewritten_tool_step_is_the_next_state_of_the_turn_it_answers(gateway: Running, rewrite: Rewrite) -> None:
    """Three steps with two calls each, with and without a session's id."""
    named: list[dict[str, str]] = [{}, {"X-Session-Id": "mine"}]
    for headers in named:
        history = [user(f"say: I look. {CALL.format(1)}{CALL.format(2)}")]
        turns, found = [], []
        for _ in range(3):
            told, answer = post(gateway, history, **headers)
            turns.append(told["x-turnwise-turn-id"])
            found.append(told["x-turnwise-lineage"])
            assert gateway.turn(turns[-1]).prompt_ids == gateway.stub.sampled[-1][0]
            assert gateway.turn(turns[-1]).response_ids == gateway.stub.sampled[-1][1]
            history += rewrite(answer)
            history.append(user(f"say: I look again. {CALL.format(3)}{CALL.format(4)}"))
        assert found == ["new", "continued", "continued"]
        assert len({session_of(gateway, turn) for turn in turns}) == 1
        assert [gateway.turn(turn).parent_id for turn in turns] == [None, *turns[:-1]]
        for turn in turns[:-1]:
            state = next_state(gateway, turn)
            assert [m["role"] for m in state].count("tool") == (0 if rewrite is made_a_text else 2)
            assert state[-1]["content"].startswith("say: I look again.")
        assert not any(gateway.turn(turn).bridged for turn in turns), "what the client rewrote is rendered anew"
    assert gateway.journal.status.figures()["unrecognised"] == 0


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_id_back(gateway: Running, name: str) -> None:
    caller = Caller(gateway, name, stream=False)
    call = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    opening = [user(f"say: I add. {call}")]
    first = caller.ask(opening, tools=True)
    function = {"name": "add", "arguments": '{"a": 1}'}
    sent = {"id": call_id(first.id, 0), "type": "function", "function": function}
    back: list[ChatMessage] = [{"role": "assistant", "content": "", "tool_calls": [sent]}, result(sent)]
    second = caller.turn(caller.send(caller.body([*opening, *back], Habits()), tools=True))
    assert (second.session_id, second.parent_id, second.bridged) == (first.session_id, first.id, False)
    assert [m["content"] for m in next_state(gateway, first.id)] == ["ok"]


def test_the_id_tells_two_conversations_with_the_same_words_apart(gateway: Running) -> None:
    opening = [user(f"say: {CALL.format(1)}")]
    runs = [post(gateway, opening) for _ in range(2)]
    for told, answer in runs:  # the older one first: without the id the newest that waits would be meant
        after, _ = post(gateway, [*opening, answer, result(answer["tool_calls"][0])])
        assert after["x-turnwise-session-id"] == told["x-turnwise-session-id"]
        assert next_state(gateway, told["x-turnwise-turn-id"])[0]["content"] == "ok"


def test_the_id_is_found_among_more_turns_alike_than_are_looked_at(gateway: Running) -> None:
    opening = [user(f"say: {CALL.format(1)}")]
    told, answer = post(gateway, opening)
    body = {"model": "turnwise", "messages": opening, "tools": TOOLS}
    for _ in range(2 * MOST_FOUND):
        httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=60)
    after, _ = post(gateway, [*opening, answer, result(answer["tool_calls"][0])])
    assert after["x-turnwise-lineage"] == "continued"
    assert next_state(gateway, told["x-turnwise-turn-id"])[0]["content"] == "ok"


def test_a_history_with_little_left_but_the_id_is_linked(gateway: Running) -> None:
    told, answer = post(gateway, [user("look"), user(f"say: I look. {CALL.format(1)}")])
    after, _ = post(gateway, [user("[summary] something was looked for"), *text_dropped(answer)])
    assert after["x-turnwise-lineage"] == "branch"
    session = gateway.journal.sessions.show(after["x-turnwise-session-id"])
    assert session is not None and session["parent_id"] == told["x-turnwise-session-id"]
    assert [m["content"] for m in next_state(gateway, told["x-turnwise-turn-id"])] == ["ok"]


def test_another_result_for_the_same_call_is_a_branch(gateway: Running) -> None:
    opening = [user(f"say: I look. {CALL.format(1)}")]
    told, answer = post(gateway, opening)
    post(gateway, [*opening, *text_dropped(answer)])
    again, _ = post(gateway, [*opening, *text_dropped(answer)[:1], result(answer["tool_calls"][0]) | {"content": "no"}])
    assert again["x-turnwise-lineage"] == "branch"
    assert [m["content"] for m in next_state(gateway, told["x-turnwise-turn-id"])] == ["ok"]


def altered(answer: ChatMessage, **changes: Any) -> list[ChatMessage]:
    call = json.loads(json.dumps(answer["tool_calls"][0]))
    call["id"] = changes.pop("id", call["id"])
    call["function"] |= changes
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result(call)]


@pytest.mark.parametrize(
    "how", ["another client", "never issued", "beyond its calls", "another tool", "changed arguments", "in a result"]
)
def test_an_id_names_no_turn_that_did_not_issue_it(gateway: Running, how: str) -> None:
    opening = [user(f"say: I look. {CALL.format(1)}")]
    told, answer = post(gateway, opening)
    turn = told["x-turnwise-turn-id"]
    back = {
        "another client": altered(answer),
        "never issued": altered(answer, id=f"call_{'0' * 20}_0"),
        "beyond its calls": altered(answer, id=call_id(turn, 1)),
        "another tool": altered(answer, name="walk"),
        "changed arguments": altered(answer, arguments='{"n": 2}'),
        "in a result": [{"role": "assistant", "content": "I read"}, user(f"run: {call_id(turn, 0)}")],
    }[how]
    headers = {"User-Agent": "another"} if how == "another client" else {}
    after, _ = post(gateway, [*opening, *back], **headers)
    assert after["x-turnwise-lineage"] == "unrecognised"
    assert after["x-turnwise-session-id"] != told["x-turnwise-session-id"]
    assert next_state(gateway, turn) is None


def test_histories_that_are_not_recognised_are_counted_and_shown(gateway: Running) -> None:
    foreign = [user("hi"), {"role": "assistant", "content": "of another model"}, user("more")]
    kinds = [post(gateway, messages)[0]["x-turnwise-lineage"] for messages in ([user("hi")], foreign, foreign)]
    assert kinds == ["new", "unrecognised", "unrecognised"], "the same words of two conversations, perhaps"
    side, _ = post(gateway, foreign, **{"X-Turn-Type": "side"})
    assert side["x-turnwise-lineage"] == "side"
    retried, _ = post(gateway, foreign, **{"x-stainless-retry-count": "1"})
    assert retried["x-turnwise-lineage"] == "retry"
    status = httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin).json()
    assert status["unrecognised"] == 2
    figures = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin).text
    assert "turnwise_unrecognised_histories 2.0" in figures


# -- the pure part ----------------------------------------------------------------------------------------------------

TURN = "turn-0123456789abcdef0123456789abcdef"


def a_call(id: str, name: str = "run", arguments: str = "{}") -> ChatMessage:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_an_issued_id_leads_to_its_turn_and_back() -> None:
    answer = from_chat(
        {"role": "assistant", "content": "", "tool_calls": [a_call(call_id(TURN, 0)), a_call("toolu_1")]}
    )
    calls = issued(answer)
    assert list(calls) == [call_id(TURN, 0)]
    assert TURN.startswith(beginnings(calls)) and beginnings(calls) == ("turn-0123456789abcdef0123",)
    assert called(TURN, answer, calls, "") and not called("turn-f", answer, calls, "")
    assert issued(from_chat({"role": "assistant", "content": f"xcall_{'0' * 20}_0 call_1 call_{'0' * 19}g_0"})) == {}


def test_what_one_answer_became_is_one_answer_again() -> None:
    first, second = (
        from_chat({"role": "assistant", "content": "", "tool_calls": [a_call(call_id(TURN, n))]}) for n in range(2)
    )
    other = from_chat({"role": "assistant", "content": "", "tool_calls": [a_call(call_id("turn-" + "f" * 32, 0))]})
    results = [from_chat({"role": "tool", "tool_call_id": str(n), "content": str(n)}) for n in range(3)]
    history = [saying("user", "hi"), other, results[0], first, results[1], second, results[2]]
    assert as_one_answer(history, 5, TURN) == [saying("user", "hi"), other, results[0], second, *results[1:]]


def test_of_turns_with_the_same_words_the_named_one_is_meant() -> None:
    from tests.gateway.lineage.test_history import recorded

    answer = from_chat({"role": "assistant", "content": "", "tool_calls": [a_call(call_id(TURN, 0))]})
    history = [saying("user", "hi"), answer, from_chat({"role": "tool", "content": "ok"})]
    chain = hash_history(history).chain
    turns = [recorded(name, of, TurnState.WAITING, chain[1]) for name, of in (("turn-f", "new"), (TURN, "old"))]
    found = place_exactly(history, chain, list(turns), None, beginnings(issued(answer)))
    assert found is not None and found.answers == TURN
