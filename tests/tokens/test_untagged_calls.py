"""Calls whose tags were forgotten: read where they are calls, left as text where they are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.messages import calls_of, text_of
from turnwise.tokens.answer_parser import AnswerGrammar, AnswerParser

GRAMMAR = AnswerGrammar(untagged=True)
NAMES = frozenset({"look", "read_file"})
LOOK = '{"name": "look", "arguments": {"at": "the {door} ```"}}'
READ = json.dumps({"name": "read_file", "arguments": {"path": "a\n"}}, indent=2)


def read(text: str, size: int = 3, names: frozenset[str] = NAMES) -> tuple[str, list[tuple[str, str]]]:
    parser = AnswerParser(GRAMMAR, with_tools=True, names=names)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    parts = [*(parser.feed(piece) for piece in pieces), parser.finish()]
    content = "".join(part.content for part in parts)
    assert content == text_of(parser.message)
    return content, [(call.name, call.arguments) for call in calls_of(parser.message)]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "content"),
    [
        (LOOK, ""),
        (f"\n{LOOK}\n", ""),
        (f"```json\n{LOOK}\n```", ""),
        (f"```\n{LOOK}\n```\n", ""),
        (f"I look.\n\n```json\n{LOOK}\n```", "I look."),
        (f"<tools>\n{LOOK}\n</tools>", ""),
        (f"<tool_call>\n{LOOK}\n</tool_call>", ""),
        (f"So:\n<tool_call>\n{LOOK}\n</tool_call>", "So:"),
    ],
)
def test_a_call_is_read_in_every_form_that_is_met(text: str, content: str, size: int) -> None:
    assert read(text, size) == (content, [("look", '{"at": "the {door} ```"}')])


@pytest.mark.parametrize("between", ["\n", "\n```\n```json\n", ""])
def test_several_calls_are_read(between: str) -> None:
    fenced = "`" in between
    text = f"```json\n{LOOK}{between}{READ}\n```" if fenced else LOOK + between + READ
    assert [name for name, _ in read(text)[1]] == ["look", "read_file"]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "It is 12 degrees.",
        '{"city": "Paris"}',
        '{"name": "Ann", "arguments": {"with": "everybody"}}',  # no tool of that name
        '{"name": "look", "arguments": {}, "id": 3}',
        '{"name": "look", "arguments": ["door"]}',
        '{"name": "look", "arguments": {"at": ',  # cut off
        f"```json\n{LOOK}\n```\nThat is how a call looks.",
        "```python\nprint({})\n```",
        f"In text {LOOK}",
        "a `word` and ``two``, and ``` alone",
        "`",
        "```",
        "{",
        "<tools",
    ],
)
def test_what_is_no_call_stays_the_text_that_it_is(text: str, size: int) -> None:
    assert read(text, size) == (text, [])


def test_without_tools_nothing_is_a_call() -> None:
    assert read(LOOK, names=frozenset()) == (LOOK, [])


def test_text_is_held_back_only_while_it_may_be_a_call() -> None:
    parser = AnswerParser(GRAMMAR, with_tools=True, names=NAMES)
    assert parser.feed('{"city"').content == '{"city"' or parser.feed(': "Paris"' + " " * 300).content
    parser = AnswerParser(GRAMMAR, with_tools=True, names=NAMES)
    assert parser.feed("Here is `code`: ").content + parser.feed("well").content == "Here is `code`: well"


PIECES = st.sampled_from(
    ["```", "json\n", LOOK, READ, "{", "}", "`", "<tools>", "</tools>", "\n", " text", '{"name": ']
)


@given(st.lists(PIECES, max_size=8).map("".join), st.integers(1, 9))
def test_the_pieces_do_not_matter_and_nothing_is_lost(text: str, size: int) -> None:
    content, calls = read(text, size)
    assert (content, calls) == read(text, 10_000)
    if not calls:
        assert content == text
