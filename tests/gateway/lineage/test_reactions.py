"""Whose reaction a message is: cases in which it would be given to a turn of another answer, or of another client."""

from __future__ import annotations

from typing import Any

import httpx

from tests.conftest import Running
from tests.gateway.lineage.test_sessions_api import next_state, session_of, user
from tests.gateway.lineage.test_wild import chat, link

A1 = "say: The first answer, long enough to be told apart from others."
A2 = "say: The second answer, also long enough to be told apart from others."


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def words(gateway: Running, turn_id: str) -> list[str]:
    return [m["content"] for m in next_state(gateway, turn_id)]


def test_the_reaction_to_a_side_turn_is_not_given_to_the_main_turn_before_it(gateway: Running) -> None:
    history = [user(A1)]
    first, answer = chat(gateway, history)
    history += [answer, user(f"{A2} Generate a title for this conversation")]
    side, answer = chat(gateway, history)
    chat(gateway, [*history, answer, user("No, that is wrong!")])
    assert gateway.journal.turns.get(side).kind == "side"
    assert words(gateway, side) == ["No, that is wrong!"]
    assert next_state(gateway, first) is None


def test_what_the_client_calls_main_is_main_whatever_its_words(gateway: Running) -> None:
    history: list[dict[str, Any]] = []
    turns = []
    for text in (A1, f"[OpenClaw heartbeat poll] {A2}", "No, that is wrong!"):
        history.append(user(text))
        turn_id, answer = chat(gateway, history, **{"X-Turn-Type": "main"})
        history.append(answer)
        turns.append(turn_id)
    assert len({session_of(gateway, turn_id) for turn_id in turns}) == 1
    assert words(gateway, turns[1]) == ["No, that is wrong!"]


def test_a_side_turn_by_header_does_not_split_the_session_that_goes_on_from_it(gateway: Running) -> None:
    first, answer = chat(gateway, [user(A1)])
    history = [user(A1), answer, user(A2)]
    aside, answer = chat(gateway, history, **{"X-Turn-Type": "side"})
    last, _ = chat(gateway, [*history, answer, user("go on")])
    assert session_of(gateway, last) == session_of(gateway, aside)
    assert first != aside


def keyed(gateway: Running, key: str, agent: str, *messages: dict[str, Any]) -> str:
    body = {"model": "turnwise", "prompt_cache_key": key, "messages": list(messages)}
    headers = gateway.auth | {"User-Agent": agent}
    response = httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers, json=body, timeout=20)
    assert response.status_code == 200, response.text
    return response.headers["x-turnwise-turn-id"]


def test_counted_keys_of_separate_requests_with_the_same_example_are_not_joined(gateway: Running) -> None:
    example = [user("I love it"), assistant("positive")]
    turns = [keyed(gateway, f"doc:{n}", "bot/1", *example, user("say: positive")) for n in range(1, 4)]
    assert [next_state(gateway, turn_id) for turn_id in turns] == [None] * 3
    assert [link(gateway, turn_id) for turn_id in turns] == [None] * 3


def test_counted_keys_of_two_clients_are_not_joined(gateway: Running) -> None:
    first = keyed(gateway, "job:1", "alice/1", user("say: Yes."))
    second = keyed(gateway, "job:2", "bob/2", user("Is it?"), assistant("Yes."), user("say: Good."))
    assert next_state(gateway, first) is None
    assert link(gateway, second) is None


def test_behind_the_answer_of_another_model_nothing_is_a_reaction_to_ours(gateway: Running) -> None:
    first, answer = chat(gateway, [user(A1)])
    chat(gateway, [user(A1), answer, user("That is wrong; is it 5?"), assistant("Yes."), user("Great, thank you!")])
    assert next_state(gateway, first) is None
