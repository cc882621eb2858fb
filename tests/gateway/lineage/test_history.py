"""Lineage as pure functions: hashes, placement and side rules."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.gateway.lineage.history import (
    compare_histories,
    hash_answer,
    hash_history,
    is_telling,
    place_exactly,
    side_rule,
    turn_kind,
    without_side_tail,
)
from turnwise.journal import PossibleParent
from turnwise.messages import LEFT_OUT, answer_of, canonical, digest_of, from_chat, saying, text_of, with_text
from turnwise.types import Image, Message, Text, ToolCall, TurnKind, TurnState

messages = st.lists(
    st.builds(
        saying,
        st.sampled_from(["user", "assistant", "tool"]),
        st.text(max_size=20),
    ),
    min_size=1,
    max_size=8,
)


def chains(history: list) -> list[str]:
    return hash_history(history).chain


def recorded(turn: str, session: str, state: TurnState, context: str, at: float | None = None) -> PossibleParent:
    return PossibleParent(turn, session, state, context, at)


@given(messages, messages)
def test_a_continued_conversation_repeats_the_earlier_hashes(before: list, after: list) -> None:
    assert chains(before + after)[: len(before)] == chains(before)
    known = hash_history(before)
    whole = hash_history([*before, after[0]])
    context, thread, _ = hash_answer(known.chain[-1], known.thread, after[0])
    assert context == whole.chain[-1]
    assert after[0].role != "assistant" or thread == whole.thread


@given(messages, st.data())
def test_a_changed_message_changes_every_later_hash(history: list, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(history) - 1))
    changed = [*history[:i], with_text(history[i], text_of(history[i]) + "x"), *history[i + 1 :]]
    old, new = chains(history), chains(changed)
    assert old[:i] == new[:i]
    assert all(a != b for a, b in zip(old[i:], new[i:], strict=True))


def test_only_what_a_model_sees_counts() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": 2}'}}
    rewritten = {"id": "call1", "type": "function", "function": {"name": "f", "arguments": '{"b":2,"a":1}'}}
    same = [
        (
            from_chat({"role": "user", "content": "hi"}),
            from_chat({"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]}),
        ),
        (
            from_chat({"role": "assistant", "content": None, "tool_calls": [call]}),
            from_chat({"role": "assistant", "content": "", "tool_calls": [rewritten]}),
        ),
        (
            from_chat({"role": "assistant", "content": "done\n"}),
            from_chat({"role": "assistant", "content": "done", "refusal": None}),
        ),
    ]
    for one, other in same:
        assert canonical(one) == canonical(other)
    assert canonical(from_chat({"role": "user", "content": "a"})) != canonical(
        from_chat({"role": "assistant", "content": "a"})
    )


def test_of_two_sessions_with_one_history_the_one_that_waits_is_meant() -> None:
    history = [from_chat({"role": "user", "content": "a"}), from_chat({"role": "assistant", "content": "b"})]
    follow = [*history, from_chat({"role": "user", "content": "c"})]
    context = chains(history)[-1]
    answered = recorded("1", "s1", TurnState.JUDGING, context, 5.0)
    waiting = recorded("2", "s2", TurnState.WAITING, context)
    found = place_exactly(follow, chains(follow), [answered, waiting], None)
    assert found is not None
    assert (found.session_id, found.answers) == ("s2", "2")
    assert found.next_state == follow[2:]


def test_a_branch_is_linked_and_answers_nothing() -> None:
    history = [from_chat({"role": "user", "content": "a"}), from_chat({"role": "assistant", "content": "b"})]
    follow = [*history, from_chat({"role": "user", "content": "other"})]
    answered = recorded("1", "s1", TurnState.JUDGING, chains(history)[-1], 5.0)
    found = place_exactly(follow, chains(follow), [answered], None)
    assert found is not None
    assert (found.session_id, found.branch_of, found.answers, found.next_state) == (None, "s1", None, [])


@pytest.mark.parametrize(
    ("sampled", "sent_back"),
    [
        ('{"x": 1.0}', '{"x":1}'),
        ('{"a": 1', '{"a": 1}'),
        ("", "{}"),
        ('{"a": [2.0, {"b": 3.5}]}', '{"a":[2,{"b":3.5}]}'),
    ],
)
def test_arguments_are_known_again_as_clients_normalise_them(sampled: str, sent_back: str) -> None:
    def call(arguments: str) -> Message:
        return from_chat({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]})

    assert digest_of(call(sampled)) == digest_of(call(sent_back))


def test_an_answer_is_known_again_however_it_is_laid_out() -> None:
    answer = from_chat({"role": "assistant", "content": "<think>hm</think> The  answer\nis 4"})
    assert digest_of(answer) == digest_of(from_chat({"role": "assistant", "content": "The answer is 4"}))
    assert digest_of(answer) != digest_of(from_chat({"role": "assistant", "content": "The answer is 5"}))


def test_the_thread_is_all_answers_in_their_order() -> None:
    def thread(*messages: Message) -> str | None:
        return hash_history(list(messages)).thread

    a, b = (from_chat({"role": "assistant", "content": text}) for text in "ab")
    user = from_chat({"role": "user", "content": "x"})
    assert thread(user, a, user, b) == thread(a, b, user, user)
    assert len({thread(a), thread(b), thread(a, b), thread(b, a)}) == 4
    assert thread(user) is None


def test_only_an_answer_that_nobody_else_gives_tells_a_session() -> None:
    call = {"id": "1", "function": {"name": "run", "arguments": '{"command": "ls -la /srv"}'}}
    assert is_telling(from_chat({"role": "assistant", "content": "", "tool_calls": [call]}))
    assert is_telling(from_chat({"role": "assistant", "content": "one two three four five six seven eight"}))
    assert not is_telling(from_chat({"role": "assistant", "content": "Hello! How can I help?"}))


U, A = partial(saying, "user"), partial(saying, "assistant")


def test_a_message_that_moves_to_the_end_is_no_reaction() -> None:
    note = U("[internal] it is 10:01")
    old = [U("do it"), note]
    new = [U("do it"), A("done"), U("thanks"), U("[internal] it is 10:02")]
    change = compare_histories(old, new)
    assert (change.moved, change.reaction) == (True, [U("thanks")])
    assert change.likeness == 0.5


def test_an_older_picture_that_is_left_out_is_no_other_history_and_what_came_back_is_whole() -> None:
    def seen(text: str, picture: str) -> Message:
        return Message("user", (Text(text), Image(f"sha256:{picture}")))

    task, page, next_page = seen("do it", "a" * 64), seen("page 2", "b" * 64), seen("page 3", "c" * 64)
    left_out = [U(f"do it\n{LEFT_OUT}"), A("one"), U(f"page 2\n{LEFT_OUT}")]
    for old, new in (([task], [left_out[0], A("one"), page]), ([left_out[0], A("one"), page], [*left_out, A("two")])):
        change = compare_histories(old, [*new, next_page])
        at = max(i for i, message in enumerate(new) if message.role == "assistant")
        assert (change.moved, change.likeness, change.reaction) == (True, 1.0, [*new[at + 1 :], next_page])
    other = compare_histories([task], [U(f"do that\n{LEFT_OUT}"), A("one"), page])
    assert (other.moved, other.likeness) == (False, 0.0), "other words are another history"


def test_a_changed_system_prompt_is_the_same_session() -> None:
    old = [from_chat({"role": "system", "content": "v1"}), U("do it")]
    change = compare_histories(
        old, [from_chat({"role": "system", "content": "v2"}), U("do it"), A("done"), U("a"), U("b")]
    )
    assert (change.moved, change.likeness) == (True, 1.0)
    assert change.reaction == [U("a"), U("b")]


def test_an_edited_question_is_another_history() -> None:
    old = [U("first"), A("one"), U("second")]
    change = compare_histories(old, [U("FIRST"), A("one"), U("second"), A("two"), U("third")])
    assert (change.moved, change.likeness) == (False, 0.5)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Generate a concise title for this conversation", "title"),
        ("Summarize this conversation in 5 words or fewer", "title"),
        ("HEARTBEAT_OK if nothing needs attention", "heartbeat"),
        ("Follow the heartbeat monitor scratch context when provided. If nothing needs attention, reply", "heartbeat"),
        ("[Sat 2026-11-21 09:47 UTC] [OpenClaw heartbeat poll]", "heartbeat"),
        ("Pre-compaction memory flush. Store durable memories now", "memory"),
        ("What title did the 1998 film about the ship have?", None),
        ("Please write a poem", None),
        ("Fix the memory flush in cache.c", None),
        ("HEARTBEAT_OK is compared in heartbeat.py line 3, please fix the bug", None),
        ("Write a page with the title 'Home' for my chat app", None),
        ("Suggest a better title for the session table in schema.sql", None),
        ("Heartbeat monitoring is broken, look at it", None),
        ("Heartbeat: what is a normal rate for adults?", None),
        ("Write a title for the session I'm giving at PyCon on async Python", None),
        ("Suggest a title for our session at the fair", None),
        ("Create a title for this chat app and put it into index.html", None),
        ("Name the chat protocol in five words", None),
        ("Can you suggest some follow-up questions I could ask my doctor?", None),
        ("Suggest 3 relevant follow-up questions that the user might ask next in this conversation", "suggestions"),
        ("Why does it not follow the heartbeat monitor's scratch context?", None),
        ("x" * 5000 + " generate a title for this chat", None),
    ],
)
def test_side_rules(text: str, rule: str | None) -> None:
    assert side_rule([from_chat({"role": "user", "content": text})], None) == rule


def test_a_title_asked_for_before_the_text_that_it_is_of() -> None:
    ask = U("Generate a title for this conversation:\n")
    assert (
        side_rule([from_chat({"role": "system", "content": "You write titles."}), ask, U("Fix my build")], None)
        == "title"
    )
    assert side_rule([ask, A("Builds"), U("Fix my build")], None) is None


INTERNAL = U("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
CALL = answer_of("I look", calls=[ToolCall("f", "{}", "1")])
BEAT = U("Follow the heartbeat monitor scratch context when provided.")


def test_what_an_agent_adds_for_itself_does_not_hide_a_side_turn() -> None:
    assert side_rule([U("do it"), A("done"), BEAT, INTERNAL], None) == "heartbeat"
    assert side_rule([BEAT, A("done"), U("thanks"), INTERNAL], None) is None


def test_the_tool_results_of_a_side_turn_are_side_turns() -> None:
    result = from_chat({"role": "tool", "tool_call_id": "1", "content": "ok"})
    assert side_rule([U("do it"), A("done"), BEAT, CALL, result], None) == "heartbeat"
    assert side_rule([BEAT, A("done"), U("do it"), CALL, result], None) is None
    title = U("Generate a title for this conversation and put it into the README")
    assert side_rule([title, CALL, result], None) is None, "an agent's work, whatever its words"


@pytest.mark.parametrize(
    ("instructions", "rule"),
    [
        ("Generate a concise session title (3-6 words) from the user's first message.", "title"),
        ("You are a context summarization assistant. Your task is to read a conversation", "compaction"),
        ("Generate a concise title for each product that you are given.", None),
        ("You are a helpful assistant that writes session titles.", None),
        ("Create a session title and an abstract for my conference talk", None),
    ],
)
def test_side_turns_by_their_instructions(instructions: str, rule: str | None) -> None:
    system = from_chat({"role": "system", "content": instructions})
    assert side_rule([system, U("hello")], None) == rule
    assert side_rule([system, U("hello"), A("hi"), U("more")], None) is None, "only what has a single message"


def test_side_exchanges_before_what_is_asked_are_left_out() -> None:
    begins = [U("do it"), A("done")]
    asks = [U("thanks"), INTERNAL]
    beats = [BEAT, A("NO_REPLY"), BEAT, INTERNAL, CALL, from_chat({"role": "tool", "content": "ok"}), A("NO_REPLY")]
    assert without_side_tail([*begins, *beats, *asks]) == [*begins, *asks]
    between = [*begins, BEAT, A("NO_REPLY"), *begins, *asks]
    assert without_side_tail(between) == between, "only those that nothing of its own follows"
    assert without_side_tail([BEAT]) == [BEAT]
    persons = [*begins, U("Generate a title for this conversation"), A("Pear"), *asks]
    assert without_side_tail(persons) == persons, "a person asks such things too, and reacts to the answer"
    woken = [*begins, BEAT, A("HEARTBEAT_OK"), INTERNAL]
    assert side_rule(woken, None) is None, "a heartbeat that was answered is over"


def test_a_probe_for_one_token_is_a_side_turn_unless_the_client_says_main() -> None:
    hello = [from_chat({"role": "user", "content": "hello"})]
    assert turn_kind(None, hello, 1) is TurnKind.SIDE
    assert turn_kind("main", hello, 1) is TurnKind.MAIN
    assert turn_kind(None, hello, 2) is TurnKind.MAIN
