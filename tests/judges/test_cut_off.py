"""What came back because a token limit cut an answer off is not held against it; everything else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turnwise.judges.cut_off import NOTE, apart_from_the_cut
from turnwise.judges.prompts import hint_prompt, score_prompt
from turnwise.messages import answer_of, from_chat, saying, text_of
from turnwise.types import JudgeTask, Message, ToolCall


def task(next_state: list[Message], arguments: Any = None, cut_off: bool = True) -> JudgeTask:
    calls = [] if arguments is None else [ToolCall("f", arguments, "c1")]
    answer = answer_of("The moons of Jupiter are Io, Europa and", calls=calls)
    return JudgeTask("t", "k", 1, [saying("user", "Name them")], answer, next_state, cut_off)


def user(text: Any) -> Message:
    return from_chat({"role": "user", "content": text})


@pytest.mark.parametrize(
    "reply",
    [
        "continue",
        "Ok, go on please.",
        "You got cut off.",
        "it cut itself short. where's the rest?",
        "you stopped mid-sentence",
        "That's incomplete! Can you finish the list?",
        "your answer was truncated",
        "hm, it ends in the middle of a word",
        [{"type": "text", "text": "please keep going"}],
    ],
)
def test_a_reply_about_the_cut_alone_leaves_nothing_to_judge(reply: Any) -> None:
    assert apart_from_the_cut(task([user(reply)])) is None


@pytest.mark.parametrize(
    "reply",
    [
        "too long. just the names please",
        "No, that is wrong, Io is not the largest",
        "perfect, thank you",
        "I want to continue with Saturn now",
        "the restaurant list is good, but shorter please",
        "cut the bold, please",
    ],
)
def test_every_other_reply_counts_as_it_is(reply: str) -> None:
    asked = task([user(reply)])
    assert apart_from_the_cut(asked) == asked


def test_of_a_mixed_reply_the_rest_counts() -> None:
    rest = apart_from_the_cut(task([user("You were cut off. And Io is not the largest, check your facts.")]))
    assert rest is not None
    assert rest.next_state == [user("And Io is not the largest, check your facts.")]


def test_the_error_of_a_call_that_was_cut_is_left_out() -> None:
    error = from_chat({"role": "tool", "tool_call_id": "c1", "content": "Error: arguments are not valid JSON"})
    assert apart_from_the_cut(task([error], '{"path": "/tm')) is None
    whole = task([error], '{"path": "/tmp"}')
    assert apart_from_the_cut(whole) == whole, "a whole call answers for its error"


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        ("", True),
        ('{"a": 1', True),
        ('"{}"', True),
        ("[1]", True),
        ("[" * 9000, True),
        ("{}", False),
        (' {"a": 1} ', False),
    ],
)
def test_a_call_is_whole_when_its_arguments_are_one_object(arguments: str, broken: bool) -> None:
    error = from_chat({"role": "tool", "tool_call_id": "c1", "content": "no such file"})
    assert (apart_from_the_cut(task([error], arguments)) is None) is broken


def test_only_what_came_back_of_the_cut_is_left_out_and_all_else_keeps_its_order() -> None:
    asked = task([])
    answer = answer_of("x", calls=[ToolCall("f", '{"a": 1}', "whole"), ToolCall("f", '{"a"', "cut")])
    whole, cut = (from_chat({"role": "tool", "tool_call_id": name, "content": "continue"}) for name in ("whole", "cut"))
    state = [whole, cut, user("go on"), user("that is wrong.\nwhere is the rest?"), user("Perfect")]
    rest = apart_from_the_cut(replace(asked, answer=answer, next_state=state))
    assert rest is not None
    assert rest.next_state == [whole, user("that is wrong."), user("Perfect")], "a tool's words are not a person's"
    assert replace(rest, next_state=state) == replace(asked, answer=answer, next_state=state)


@pytest.mark.parametrize(
    "reply",
    [
        "you cut yourself short", "that was cut off", "it ends mid sentence", "half-way through it just ends",
        "it breaks off in the middle of the second list", "your answer looks incomplete", "it's not finished",
        "you suddenly broke off", "you did not finish", "you didn't finish", "what is the rest", "the rest is missing",
        "the rest please", "and the rest of your answer?", "yes, carry on", "Could you please keep going",
        "...finish it", "can you finish that",
    ],
)  # fmt: skip
def test_ways_to_say_that_an_answer_ended_early(reply: str) -> None:
    assert apart_from_the_cut(task([user(reply)])) is None


@pytest.mark.parametrize(
    "reply",
    [
        "cut the costs, off you go", "the rest was fine", "I went on without it", "we finish at six",
        "in the middle of the night", "you stop too late", "it is complete", "please finish early next time",
    ],
)  # fmt: skip
def test_words_like_these_that_say_something_else(reply: str) -> None:
    asked = task([user(reply)])
    assert apart_from_the_cut(asked) == asked


def test_an_answer_that_ended_by_itself_is_judged_by_every_reply() -> None:
    ended = task([user("you stopped in the middle of a sentence")], cut_off=False)
    assert apart_from_the_cut(ended) is ended


@pytest.mark.parametrize("prompt", [score_prompt, hint_prompt])
def test_the_model_judge_is_told(prompt: Any) -> None:
    asked = task([user("hm")])
    for cut_off in (True, False):
        system = prompt(asked.messages, asked.answer, asked.next_state, cut_off=cut_off)[0]
        assert (NOTE in text_of(system)) is cut_off
