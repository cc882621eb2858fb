"""What real clients do to their histories, one trap a test; docs/sessions.md says how each is recognised."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.lineage.test_sessions_api import next_state, say, session_of, user
from tests.support.servers import wait_until
from turnwise.types import Exclusion, TurnState

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
CALL = 'say: {}<tool_call>{{"name": "run", "arguments": {{"command": "make test {}"}}}}</tool_call>'


def internal(n: int) -> dict[str, Any]:
    return user(f"[internal] runtime note {n}: nothing to answer here")


def chat(gateway: Running, messages: list[Any], tools: Any = None, **headers: str) -> tuple[str, dict[str, Any]]:
    body = {"model": "turnwise", "messages": messages} | ({"tools": tools} if tools else {})
    url = f"{gateway.url}/v1/chat/completions"
    response = httpx.post(url, headers=gateway.auth | headers, json=body, timeout=20)
    assert response.status_code == 200, response.text
    return response.headers["x-turnwise-turn-id"], response.json()["choices"][0]["message"]


def link(gateway: Running, turn_id: str) -> str | None:
    return gateway.journal.sessions.show(session_of(gateway, turn_id))["parent_id"]


def test_a_trailing_internal_message_that_moves_each_turn(gateway: Running) -> None:
    history: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, user("say: The first answer of all.")]
    turns = []
    for n in range(4):
        turn_id, answer = chat(gateway, [*history, internal(n)])
        turns.append(turn_id)
        history += [answer, user(f"say: And this is the answer number {n + 2}.")]
    assert len({session_of(gateway, t) for t in turns}) == 1
    for n, turn_id in enumerate(turns[:-1]):
        assert [m["content"] for m in next_state(gateway, turn_id)] == [f"say: And this is the answer number {n + 2}."]
        assert gateway.journal.turns.get(turn_id).state is TurnState.JUDGING


def test_a_moving_message_behind_tool_results(gateway: Running) -> None:
    history: list[dict[str, Any]] = [user(CALL.format("", 1))]
    first, answer = chat(gateway, [*history, internal(1)], TOOLS)
    # the stub answers the last user message, which is the internal one: ask again so that it calls the tool
    assert answer["content"]
    history += [answer, {"role": "user", "content": CALL.format("I run it. ", 2)}]
    second, answer = chat(gateway, history, TOOLS)
    call = answer["tool_calls"][0]
    history += [answer, {"role": "tool", "tool_call_id": call["id"], "content": "ok"}]
    third, _ = chat(gateway, [*history, internal(2)], TOOLS)
    assert session_of(gateway, first) == session_of(gateway, second) == session_of(gateway, third)
    assert next_state(gateway, second)[0]["content"] == "ok"


def test_tool_call_ids_rewritten_on_replay(gateway: Running) -> None:
    history: list[dict[str, Any]] = [user(CALL.format("", 1))]
    first, answer = chat(gateway, history, TOOLS)
    call = answer["tool_calls"][0] | {"id": answer["tool_calls"][0]["id"].replace("_", "")}
    call["function"] = {"name": "run", "arguments": '{"command":"make test 1"}'}  # laid out anew, too
    replay = {"role": "assistant", "content": None, "tool_calls": [call]}
    second, _ = chat(gateway, [*history, replay, {"role": "tool", "tool_call_id": call["id"], "content": "ok"}], TOOLS)
    assert session_of(gateway, first) == session_of(gateway, second)
    old, new = gateway.journal.turns.get(first), gateway.journal.turns.get(second)
    assert new.bridged and new.prompt_ids[: len(old.prompt_ids) + len(old.response_ids)] == [
        *old.prompt_ids,
        *old.response_ids,
    ], "what was sampled stays, however the client writes it"


def test_reasoning_in_the_text_stripped_on_replay(gateway: Running) -> None:
    history = [user("say: <think>let me see, two and two</think>It is four.")]
    first, answer = chat(gateway, history)
    assert "<think>" in answer["content"]
    second, _ = chat(gateway, [*history, {"role": "assistant", "content": "It is four."}, user("thanks")])
    assert session_of(gateway, first) == session_of(gateway, second)
    assert [m["content"] for m in next_state(gateway, first)] == ["thanks"]


def test_cache_marks_that_move_and_content_that_changes_its_shape(gateway: Running) -> None:
    def ask(messages: list[Any]) -> tuple[str, str]:
        body = {"model": "turnwise", "max_tokens": 100, "system": "be brief", "messages": messages}
        headers = {"x-api-key": gateway.token, "anthropic-version": "2023-06-01"}
        response = httpx.post(f"{gateway.url}/v1/messages", headers=headers, json=body, timeout=20)
        assert response.status_code == 200, response.text
        return response.headers["x-turnwise-turn-id"], response.json()["content"][0]["text"]

    mark = {"cache_control": {"type": "ephemeral"}}
    first, text = ask([{"role": "user", "content": [{"type": "text", "text": "hello"} | mark]}])
    second, _ = ask(
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "text", "text": text} | mark]},
            {"role": "user", "content": [{"type": "text", "text": "go on"} | mark]},
        ]
    )
    assert session_of(gateway, first) == session_of(gateway, second)
    assert gateway.journal.turns.get(second).bridged


def test_resends_with_other_words_after_a_lost_connection_stay_one_session(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gateway.config.server.__dict__, "engine_return_s", 0.2)
    first, answer = chat(gateway, [user("say: This is what I found.")])
    history = [user("say: This is what I found."), answer]
    gateway.stub.die_after = 0
    for n in range(8):
        body = {"model": "turnwise", "messages": [*history, user(f"go on (attempt {n})")]}
        url = f"{gateway.url}/v1/chat/completions"
        assert httpx.post(url, headers=gateway.auth, json=body, timeout=20).status_code == 502
    wait_until(lambda: gateway.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE) == 8)
    gateway.stub.die_after = None
    last, _ = chat(gateway, [*history, user("go on (attempt 8)")])
    assert session_of(gateway, last) == session_of(gateway, first)
    assert [m["content"] for m in next_state(gateway, first)] == ["go on (attempt 0)"], "the first reaction counts"
    assert gateway.journal.status.figures()["sessions"]["total"] == 1


def test_tool_results_sent_back_as_user_text(gateway: Running) -> None:
    history = [user("say: Calling tools: run('make test')")]
    first, answer = chat(gateway, history)
    second, _ = chat(gateway, [*history, answer, user("Observation:\n3 failed, 2 passed")])
    assert session_of(gateway, first) == session_of(gateway, second)
    assert [m["content"] for m in next_state(gateway, first)] == ["Observation:\n3 failed, 2 passed"]


def test_a_compacted_history_is_a_branch_linked_to_the_old_session(gateway: Running) -> None:
    history: list[dict[str, Any]] = [user("say: The first answer, long enough to be told apart from others.")]
    _, answer = chat(gateway, history)
    history += [answer, user("say: The second answer, also long enough to be told apart from others.")]
    old, answer = chat(gateway, history)
    compacted = [user("[summary of the conversation so far] two answers were given"), answer, user("and now?")]
    new, _ = chat(gateway, compacted)
    assert link(gateway, new) == session_of(gateway, old) != session_of(gateway, new)
    assert [m["content"] for m in next_state(gateway, old)] == ["and now?"]
    assert not gateway.journal.turns.get(new).bridged


def test_a_compacted_history_of_a_named_session_stays_in_it(gateway: Running) -> None:
    history = [user("say: Yes.")]
    old, answer = chat(gateway, history, **{"X-Session-Id": "mine"})
    new, _ = chat(gateway, [user("[summary] x"), answer, user("and now?")], **{"X-Session-Id": "mine"})
    assert session_of(gateway, old) == session_of(gateway, new) == "mine"
    assert [m["content"] for m in next_state(gateway, old)] == ["and now?"]


def test_an_edited_message_is_a_branch_and_a_short_answer_tells_no_session(gateway: Running) -> None:
    first, answer = chat(gateway, [user("say: Yes.")])
    history = [user("say: Yes."), answer]
    second, _ = chat(gateway, [*history, user("why?")])
    edited, _ = chat(gateway, [*history, user("why not?")])
    assert session_of(gateway, second) == session_of(gateway, first)
    assert link(gateway, edited) == session_of(gateway, first) != session_of(gateway, edited)
    other, _ = chat(gateway, [user("something else"), answer, user("ok")])
    assert link(gateway, other) is None


def test_a_regenerated_answer_takes_the_place_of_the_old_one(gateway: Running) -> None:
    _, answer = chat(gateway, [user("say: Yes.")])
    follow = [user("say: Yes."), answer, user("say: Why.")]
    old, _ = chat(gateway, follow)
    new, _ = chat(gateway, follow)
    assert session_of(gateway, old) == session_of(gateway, new)
    assert gateway.journal.turns.get(old).exclusion is Exclusion.SUPERSEDED


@pytest.mark.parametrize("name", ["X-Session-Id", "session-id", "session_id", "thread-id", "X-Claude-Code-Session-Id"])
def test_session_ids_that_agents_send(gateway: Running, name: str) -> None:
    turn_id, _ = chat(gateway, [user("hi")], **{name: "0199-abc"})
    assert session_of(gateway, turn_id) == "0199-abc"


def test_a_session_id_in_the_body(gateway: Running) -> None:
    def ask(messages: list[Any], **more: Any) -> httpx.Response:
        body = {"model": "turnwise", "messages": messages} | more
        return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=20)

    one = ask([user("hi")], prompt_cache_key="conversation-1").headers["x-turnwise-session-id"]
    assert one == "conversation-1"
    # a cache key may be shared by conversations: another beginning under the same key is another session
    two = ask([user("something else")], prompt_cache_key="conversation-1").headers["x-turnwise-session-id"]
    assert two != one
    user_id = '{"device_id":"d","account_uuid":"","session_id":"0199-claude"}'
    body = {"model": "turnwise", "max_tokens": 9, "messages": [user("hi")], "metadata": {"user_id": user_id}}
    response = httpx.post(f"{gateway.url}/v1/messages", headers=gateway.auth, json=body, timeout=20)
    assert response.headers["x-turnwise-session-id"] == "0199-claude"


def test_a_key_that_changes_when_the_client_compacts(gateway: Running) -> None:
    def ask(messages: list[Any], key: str) -> tuple[str, dict[str, Any]]:
        body = {"model": "turnwise", "messages": messages, "prompt_cache_key": key}
        url = f"{gateway.url}/v1/chat/completions"
        response = httpx.post(url, headers=gateway.auth, json=body, timeout=20)
        return response.headers["x-turnwise-turn-id"], response.json()["choices"][0]["message"]

    old, answer = ask([user("say: The whole answer, which is long enough to be told apart.")], "s1:0")
    new, _ = ask([user("[summary] an answer was given"), answer, user("and now?")], "s1:1")
    assert (session_of(gateway, old), session_of(gateway, new)) == ("s1:0", "s1:1")
    assert link(gateway, new) == "s1:0"
    assert [m["content"] for m in next_state(gateway, old)] == ["and now?"]


def test_two_conversations_under_one_cache_key_each_have_their_next_states(gateway: Running) -> None:
    def ask(messages: list[Any]) -> tuple[str, dict[str, Any]]:
        body = {"model": "turnwise", "messages": messages, "prompt_cache_key": "app"}
        response = httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=20)
        return response.headers["x-turnwise-turn-id"], response.json()["choices"][0]["message"]

    histories: list[list[dict[str, Any]]] = [[user("say: One.")], [user("say: Two.")]]
    turns: list[list[str]] = [[], []]
    for n in range(3):
        for history, ids in zip(histories, turns, strict=True):
            turn_id, answer = ask(history)
            ids.append(turn_id)
            history += [answer, user(f"more {n}")]
    sessions = [{session_of(gateway, turn_id) for turn_id in ids} for ids in turns]
    assert [len(found) for found in sessions] == [1, 1] and sessions[0] != sessions[1]
    for ids in turns:
        assert [next_state(gateway, t)[0]["content"] for t in ids[:-1]] == ["more 0", "more 1"]


def test_a_key_whose_first_request_failed_is_still_one_session(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(messages: list[Any]) -> httpx.Response:
        body = {"model": "turnwise", "messages": messages, "prompt_cache_key": "s1:0"}
        return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=20)

    gateway.stub.refuse_with = 429
    assert ask([user("say: Yes.")]).status_code == 429
    gateway.stub.refuse_with = None
    ask([user("Generate a title for this conversation")])
    first = ask([user("say: Yes.")])
    answer = first.json()["choices"][0]["message"]
    second = ask([user("say: Yes."), answer, user("why?")])
    assert first.headers["x-turnwise-session-id"] == second.headers["x-turnwise-session-id"] == "s1:0"
    assert [m["content"] for m in next_state(gateway, first.headers["x-turnwise-turn-id"])] == ["why?"]


def test_equal_requests_under_two_keys_are_two_turns(gateway: Running) -> None:
    def ask(key: str, **headers: str) -> str:
        body = {"model": "turnwise", "messages": [user("say: Yes.")], "prompt_cache_key": key}
        url = f"{gateway.url}/v1/chat/completions"
        return httpx.post(url, headers=gateway.auth | headers, json=body, timeout=20).headers["x-turnwise-turn-id"]

    one = ask("a")
    assert ask("b", **{"x-stainless-retry-count": "1"}) != one
    assert ask("a", **{"x-stainless-retry-count": "1"}) == one


def test_a_retry_of_a_request_that_failed_beside_one_like_it_is_not_its_answer(gateway: Running) -> None:
    body = {"model": "turnwise", "messages": [user("say: Yes.")]}
    url = f"{gateway.url}/v1/chat/completions"
    one = httpx.post(url, headers=gateway.auth, json=body, timeout=20)
    gateway.stub.refuse_with = 429
    assert httpx.post(url, headers=gateway.auth, json=body, timeout=20).status_code == 429
    gateway.stub.refuse_with = None
    again = httpx.post(url, headers=gateway.auth | {"x-stainless-retry-count": "1"}, json=body, timeout=20)
    assert again.headers["x-turnwise-turn-id"] != one.headers["x-turnwise-turn-id"]


def test_an_answer_regenerated_much_later_takes_the_old_ones_place(gateway: Running) -> None:
    _, answer = chat(gateway, [user("say: Yes.")])
    follow = [user("say: Yes."), answer, user("say: Why.")]
    old, _ = chat(gateway, follow)
    with gateway.journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET begun_mono = begun_mono - 4000")
    new, _ = chat(gateway, follow)
    assert session_of(gateway, old) == session_of(gateway, new)
    assert gateway.journal.turns.get(old).exclusion is Exclusion.SUPERSEDED


def test_two_clients_that_claim_one_session_id(gateway: Running) -> None:
    mine, answer = chat(gateway, [user("say: Mine.")], **{"X-Session-Id": "shared", "User-Agent": "one"})
    theirs, _ = chat(gateway, [user("say: Theirs.")], **{"X-Session-Id": "shared", "User-Agent": "two"})
    assert session_of(gateway, mine) == "shared"
    assert session_of(gateway, theirs).startswith("shared~")
    # a client that was updated in the middle goes on with its own history
    follow = [user("say: Mine."), answer, user("go on")]
    updated, _ = chat(gateway, follow, **{"X-Session-Id": "shared", "User-Agent": "one/2"})
    assert session_of(gateway, updated) == "shared"
    assert [m["content"] for m in next_state(gateway, mine)] == ["go on"]


def test_parallel_sub_sessions_stay_apart(gateway: Running) -> None:
    system = {"role": "system", "content": "You are a helper for one task."}
    tasks = [[system, user(f"say: Task {n} is under way, I will report when it is done.")] for n in range(3)]
    first = [chat(gateway, task) for task in tasks]
    second = [chat(gateway, [*t, a, user("report")])[0] for t, (_, a) in zip(tasks, first, strict=True)]
    sessions = [session_of(gateway, turn_id) for turn_id, _ in first]
    assert len(set(sessions)) == 3
    assert [session_of(gateway, turn_id) for turn_id in second] == sessions


@pytest.mark.parametrize(
    "text",
    [
        "Generate a concise title for this conversation: hi",
        "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.",
        "Pre-compaction memory flush. Store durable memories now.",
    ],
)
def test_housekeeping_is_a_side_turn_and_no_reaction(gateway: Running, text: str) -> None:
    main, answer = chat(gateway, [user("say: Working on it right now, please wait.")])
    side, _ = chat(gateway, [user("say: Working on it right now, please wait."), answer, user(text)])
    assert gateway.journal.turns.get(side).exclusion is Exclusion.SIDE_TURN
    assert next_state(gateway, main) is None
    after, _ = chat(gateway, [user("say: Working on it right now, please wait."), answer, user("thanks")])
    assert session_of(gateway, after) == session_of(gateway, main)


def test_a_named_session_of_side_turns_does_not_hide_its_main_turns(gateway: Running) -> None:
    main, answer, _ = say(gateway, [user("say: Done.")], **{"X-Session-Id": "s"})
    say(gateway, [user("Generate a title for this conversation")], **{"X-Session-Id": "s"})
    after, _, _ = say(gateway, [user("say: Done."), answer, user("thanks")], **{"X-Session-Id": "s"})
    assert session_of(gateway, after) == "s"
    assert [m["content"] for m in next_state(gateway, main)] == ["thanks"]
