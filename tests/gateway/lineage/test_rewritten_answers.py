"""Clients that send an answer back in a form of their own, without the id of a call that would name its turn.

Each habit was seen with a library: smolagents writes the program that it ran behind the answer that holds it, programs
on the AI SDK keep what was said and drop the calls before it, and whoever asks for JSON reads it and writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.conftest import Running
from tests.gateway.callers import user
from tests.gateway.lineage.test_issued_calls import CALL, post, result
from tests.gateway.lineage.test_sessions_api import next_state, session_of
from tests.support.wire import ChatMessage
from turnwise.messages import canonical, from_chat

BEHIND = "\nCalling tools:\n[{'id': 'call_1', 'function': {'name': 'python_interpreter'}}]"
LONG = "I print the number {}."
SHORT = "Step {}."
DATA = '{{"run": "ls", "at": [{}, 2.0]}}'
NAMED: list[dict[str, str]] = [{}, {"X-Session-Id": "mine"}]


def assistant(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def say(text: str, step: int) -> ChatMessage:
    return user(f"say: {text.format(step)}")


def put_behind(answer: ChatMessage) -> ChatMessage:
    return assistant(answer["content"] + BEHIND)


def written_anew(answer: ChatMessage) -> ChatMessage:
    return assistant(json.dumps(json.loads(answer["content"]), indent=1, sort_keys=True))


Rewrite = Callable[[ChatMessage], ChatMessage]


def assert_one_session(gateway: Running, turns: list[str], found: list[str]) -> None:
    assert found == ["new", *["continued"] * (len(turns) - 1)]
    assert len({session_of(gateway, turn) for turn in turns}) == 1
    assert [gateway.turn(turn).parent_id for turn in turns] == [None, *turns[:-1]]
    assert gateway.journal.status.figures()["unrecognised"] == 0


@pytest.mark.parametrize("headers", NAMED)
@pytest.mark.parametrize(("rewrite", "text"), [(put_behind, LONG), (written_anew, DATA)])
def test_a_rewritten_answer_is_followed_by_its_next_state(
    gateway: Running, rewrite: Rewrite, text: str, headers: dict[str, str]
) -> None:
    history = [say(text, 0)]
    turns, found = [], []
    for step in range(1, 4):
        told, answer = post(gateway, history, **headers)
        turns.append(told["x-turnwise-turn-id"])
        found.append(told["x-turnwise-lineage"])
        assert gateway.turn(turns[-1]).prompt_ids == gateway.stub.sampled[-1][0]
        history += [rewrite(answer), say(text, step)]
    assert_one_session(gateway, turns, found)
    assert [next_state(gateway, turn) for turn in turns[:-1]] == [[say(text, step)] for step in (1, 2)]
    goes_on = [gateway.turn(turn).bridged for turn in turns[1:]]
    assert goes_on == [rewrite is written_anew] * 2, "another layout goes on from what was sampled, other words do not"


@pytest.mark.parametrize("headers", NAMED)
def test_calls_that_are_dropped_when_all_was_said(gateway: Running, headers: dict[str, str]) -> None:
    """Each message is worked on in two requests; the next message comes without the first of them."""
    history: list[ChatMessage] = []
    turns, found = [], []
    for step in range(3):
        history.append(user(f"say: I look. {CALL.format(step)}"))
        told, called = post(gateway, history, **headers)
        [call] = called["tool_calls"]
        then, answer = post(gateway, [*history, called, result(call), say(SHORT, step)], **headers)
        history += [say(SHORT, step), assistant(answer["content"])]
        turns += [told["x-turnwise-turn-id"], then["x-turnwise-turn-id"]]
        found += [told["x-turnwise-lineage"], then["x-turnwise-lineage"]]
    assert_one_session(gateway, turns, found)
    for step, turn in enumerate(turns[1:-1:2], 1):
        assert next_state(gateway, turn) == [user(f"say: I look. {CALL.format(step)}")]


def test_the_answer_tells_two_conversations_with_one_request_apart(gateway: Running) -> None:
    opening = [user("hello")]
    answers = [LONG.format(1), LONG.format(2)]
    turns = []
    for answer in answers:
        gateway.stub.reply = lambda _, answer=answer: answer
        turns.append(post(gateway, opening)[0]["x-turnwise-turn-id"])
    for turn, answer in zip(turns, answers, strict=True):
        told, _ = post(gateway, [*opening, assistant(answer + BEHIND), user("go on")])
        assert told["x-turnwise-session-id"] == session_of(gateway, turn)


@pytest.mark.parametrize(
    ("ours", "sent"), [(LONG.format(1), f"Well. {LONG.format(1)}"), ("Yes.", f"Yes.{BEHIND}"), (DATA.format(1), "{}")]
)
def test_an_answer_that_is_not_ours_is_followed_by_nothing(gateway: Running, ours: str, sent: str) -> None:
    gateway.stub.reply = lambda _: ours
    told, _ = post(gateway, [user("hello")])
    after, _ = post(gateway, [user("hello"), assistant(sent), user("go on")])
    assert after["x-turnwise-lineage"] == "unrecognised"
    assert next_state(gateway, told["x-turnwise-turn-id"]) is None


def test_what_was_said_before_must_be_the_same(gateway: Running) -> None:
    told, called = post(gateway, [user(f"say: {CALL.format(1)}")])
    [call] = called["tool_calls"]
    post(gateway, [user(f"say: {CALL.format(1)}"), called, result(call), say(SHORT, 1)])
    others = [user("another question"), say(SHORT, 1), assistant(SHORT.format(1)), user("and now?")]
    after, _ = post(gateway, others)
    assert after["x-turnwise-lineage"] == "unrecognised"
    assert after["x-turnwise-session-id"] != told["x-turnwise-session-id"]


def test_json_is_known_again_in_any_layout_and_nothing_else_is() -> None:
    same = ['{"a": 1, "b": [1.0]}', '{\n  "b": [1],\n  "a": 1\n}', '<think>hm</think>{"a":1,"b":[1]}']
    assert len({canonical(from_chat(assistant(text))) for text in same}) == 1
    others = ['{"a": 1, "b": ["1"]}', '{"a": 1}', '{"a": 1, "b": [1]', '[{"a": 1, "b": [1]}]', "{a: 1}", "[" * 5000]
    assert len({canonical(from_chat(assistant(text))) for text in [*same, *others]}) == 1 + len(others)
    assert canonical(from_chat(user('{"a":1}'))) != canonical(from_chat(user('{"a": 1}'))), (
        "what a person wrote is left as it is"
    )


def test_of_two_conversations_with_one_answer_each_gets_its_own_next_state(gateway: Running) -> None:
    """Parallel rollouts of one task, whose client drops the calls that told them apart."""
    first = []
    for n in (1, 2):
        _, called = post(gateway, [user(f"say: {CALL.format(n)}")])
        [call] = called["tool_calls"]
        told, _ = post(gateway, [user(f"say: {CALL.format(1)}"), called, result(call), say(SHORT, 1)])
        first.append(told["x-turnwise-turn-id"])
    asked = [user(f"say: {CALL.format(1)}"), say(SHORT, 1), assistant(SHORT.format(1))]
    for n in (1, 2):
        post(gateway, [*asked, user(f"and {n}?")])
    assert all(next_state(gateway, turn) is not None for turn in first)


def test_whole_numbers_too_large_for_a_float_keep_their_layout() -> None:
    text = "[" + ",".join(["1e308"] * 1000) + "]"
    assert len(canonical(from_chat(assistant(text)))) < 2 * len(text)
