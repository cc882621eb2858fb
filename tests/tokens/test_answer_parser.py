"""Answers read while they are sampled: what comes out in parts, whatever the pieces, is what is recorded."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers.base import ToolCallParseStatus

from tests.support.models import make_qwen3
from turnwise.messages import calls_of, saying, text_of, thinking_in
from turnwise.tokens.answer_parser import AnswerGrammar, AnswerParser, AnswerParts
from turnwise.tokens.rendering import PromptRenderer, load_renderer

QWEN3 = AnswerGrammar(reasoning=True, calls="json")
PLAIN = AnswerGrammar(reasoning=False, calls="json")


def call(name: str, arguments: Any) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def read(pieces: list[str], grammar: AnswerGrammar = QWEN3, **options: Any) -> tuple[AnswerParser, list[AnswerParts]]:
    parser = AnswerParser(grammar, **{"with_tools": True} | options)
    return parser, [*(parser.feed(piece) for piece in pieces), parser.finish()]


def summed(parts: list[AnswerParts]) -> dict[str, Any]:
    """What a client has that adds the parts up."""
    calls: list[list[str]] = []
    for part in parts:
        for piece in part.calls:
            if piece.name is not None:
                assert piece.index == len(calls), "calls begin in their order"
                calls.append([piece.name, ""])
            calls[piece.index][1] += piece.arguments
    return {
        "reasoning": "".join(p.reasoning for p in parts),
        "content": "".join(p.content for p in parts),
        "calls": calls,
    }


def recorded(parser: AnswerParser) -> dict[str, Any]:
    message = parser.message
    calls = [[call.name, call.arguments] for call in calls_of(message)]
    return {"reasoning": thinking_in(message), "content": text_of(message), "calls": calls}


def whole(text: str, grammar: AnswerGrammar = QWEN3, **options: Any) -> dict[str, Any]:
    parser, parts = read([text], grammar, **options)
    assert summed(parts) == recorded(parser)
    return recorded(parser)


def told(reasoning: str = "", content: str = "", calls: list[list[str]] | None = None) -> dict[str, Any]:
    return {"reasoning": reasoning, "content": content, "calls": calls or []}


# -- one by one -------------------------------------------------------------------------------------------------------


def test_reasoning_then_content() -> None:
    assert whole("<think>\nlet me see\n</think>\n\nfour") == told("let me see", "four")


def test_reasoning_that_the_prompt_opened() -> None:
    assert whole("\nlet me see\n</think>\n\nfour", in_reasoning=True) == told("let me see", "four")


def test_reasoning_that_never_ends() -> None:
    assert whole("<think>\nlet me") == told("let me")
    assert whole("let me", in_reasoning=True) == told("let me")


def test_without_a_grammar_for_reasoning_its_tags_are_text() -> None:
    assert whole("<think>a</think>b", PLAIN) == told("", "<think>a</think>b")


def test_a_think_tag_in_the_middle_is_text() -> None:
    assert whole("so <think>a</think>b") == told("", "so <think>a</think>b")


def test_an_empty_answer() -> None:
    assert whole("") == told()
    assert whole("<think>\n\n</think>\n\n") == told()


def test_parallel_calls_and_the_space_between_them() -> None:
    text = "Let me look.\n" + call("a", {"x": 1}) + "\n" + call("b", {}) + "\n"
    assert whole(text) == told("", "Let me look.", [["a", '{"x": 1}'], ["b", "{}"]])


def test_calls_are_text_where_no_tools_were_offered() -> None:
    text = "look: " + call("a", {"x": 1})
    assert whole(text, with_tools=False) == told("", text)


def test_braces_and_tags_in_strings_end_nothing() -> None:
    arguments = {"deep": {"er": [{"s": 'a } ] " \\ </tool_call> <tool_call> {'}, [[]]]}, "t": "\\"}
    assert whole(call("f", arguments) + "after")["calls"] == [["f", json.dumps(arguments)]]
    assert whole(call("f", arguments) + "after")["content"] == "after"


@pytest.mark.parametrize(
    "block",
    [
        *(
            "no json",
            "[]",
            "3",
            "",
            '{"name": f, "arguments": {}}',
            '{"arguments": {}}',
            '{"name": "", "arguments": {}}',
        ),
        *('{"name": "f", "arguments": "text"}', '{"name": "f", "arguments": [1]}', '{"name": 3, "arguments": {}}'),
        *('{"name": "\\ud800", "arguments": {}}', '{"arguments": {"a": "\\ud800"}, "name": "f"}'),
        *('{"arguments": {"a": NaN}, "name": "f"}', '{"arguments": {"a": ' + "1" * 5000 + '}, "name": "f"}'),
        '{"arguments": ' + "[" * 5000 + '}, "name": "f"}',
    ],
)
def test_what_is_no_call_stays_text(block: str) -> None:
    text = f"so: <tool_call>{block}</tool_call> well"
    parser, parts = read([text])
    assert summed(parts) == recorded(parser) == told("", text)
    assert parser.broken == 1


def test_keys_in_another_order_and_a_call_without_arguments() -> None:
    text = '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>'
    assert whole(text)["calls"] == [["f", '{"a": 1}'], ["g", "{}"]]


def test_arguments_that_are_no_json_are_given_as_they_are() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": nope}}</tool_call>'
    assert whole(text)["calls"] == [["f", '{"a": nope}']]


def test_an_object_that_is_not_closed_ends_with_its_call() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": {"b": 1}</tool_call>and ' + call("g", {})
    assert whole(text) == told("", "and", [["f", '{"a": {"b": 1}'], ["g", "{}"]])


def test_what_comes_after_a_call_whose_closing_tag_was_forgotten() -> None:
    opened = '<tool_call>{"name": "f", "arguments": {"a": 1}}'
    f = ["f", '{"a": 1}']
    for text, content, calls in (
        (opened + " and more\n", " and more", [f]),
        (opened + "\n" + call("g", {}), "", [f, ["g", "{}"]]),
        (opened + " so " + call("g", {}) + "end", " soend", [f, ["g", "{}"]]),
        (opened + "\n</tool_ca", "", [f]),
        (opened + "\n", "", [f]),
        (opened[:-1], "", [f]),
    ):
        for pieces in ([text], list(text)):
            parser, parts = read(pieces)
            assert summed(parts) == recorded(parser) == told("", content, calls)


@pytest.mark.parametrize(
    ("stray", "content"),
    [
        ("} and so on\n", " and so on"),
        ("}}", "}"),
        (" I mean it }", " I mean it }"),
        ("}</tool_cal", "</tool_cal"),
        (', "id": nope}', ', "id": nope}'),
        ('"}', '"}'),
    ],
)
def test_what_stands_between_the_arguments_and_the_closing_tag_stays_text(stray: str, content: str) -> None:
    text = 'so <tool_call>{"name": "f", "arguments": {"a": 1}' + stray + "</tool_call>" + call("g", {})
    for pieces in ([text], list(text)):
        parser, parts = read(pieces)
        assert summed(parts) == recorded(parser) == told("", "so" + content, [["f", '{"a": 1}'], ["g", "{}"]])
        assert parser.broken == 1


@pytest.mark.parametrize("rest", ["}", "\n}\n", ', "id": 3}', ', "more": {"b": ["}"]} }'])
def test_other_keys_after_the_arguments_are_part_of_the_call(rest: str) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": 1}' + rest + "</tool_call>"
    parser, parts = read([text])
    assert summed(parts) == recorded(parser) == told("", "", [["f", '{"a": 1}']])
    assert parser.broken == 0


def test_an_answer_cut_in_the_middle_of_a_call() -> None:
    text = 'one <tool_call>\n{"name": "f", "arguments": {"a": "hel'
    assert whole(text) == told("", "one", [["f", '{"a": "hel']])
    assert whole('one <tool_call>\n{"name": "f"') == told("", 'one <tool_call>\n{"name": "f"')
    assert whole('one <tool_call>\n{"name": "f"}') == told("", "one", [["f", "{}"]])
    assert whole("one <tool_ca") == told("", "one <tool_ca")


def test_a_call_inside_closed_reasoning_is_a_draft() -> None:
    draft = call("draft", {})
    assert whole(f"<think>maybe {draft} no</think>{call('real', {})}") == told(
        f"maybe {draft} no", "", [["real", "{}"]]
    )


def test_a_call_ends_reasoning_that_is_never_closed() -> None:
    assert whole(f"<think>I will.\n{call('f', {'a': 1})}") == told("I will.", "", [["f", '{"a": 1}']])
    assert whole(f"I will.\n{call('f', {})}", in_reasoning=True) == told("I will.", "", [["f", "{}"]])


def test_arguments_leave_while_they_are_sampled() -> None:
    text = call("write", {"text": "a long text that takes many tokens to sample"})
    _, parts = read(list(text))
    pieces = [piece for part in parts for piece in part.calls]
    assert len([p for p in pieces if p.arguments]) > 20
    assert pieces[0].name == "write"


# -- properties -------------------------------------------------------------------------------------------------------

PLACES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", '"', "{", "}", "\\", "<", "ü"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=12) | PLACES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-zA-Z0-9_.:-]{1,12}", fullmatch=True)
CALLS = st.builds(call, NAMES, st.dictionaries(st.text(max_size=6), VALUES, max_size=3))
WORDS = st.text(max_size=12) | PLACES
HEADS = st.sampled_from(['<tool_call>{"name": "f", "arguments": ', '<tool_call>{"name": ', "<tool_call>{"])
ANSWERS = st.lists(WORDS | CALLS | HEADS, max_size=8).map("".join)


def cut(text: str, places: list[int]) -> list[str]:
    at = sorted({min(p, len(text)) for p in places})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@settings(max_examples=250, deadline=None)
@given(
    text=ANSWERS,
    thinks=st.booleans(),
    places=st.lists(st.integers(0, 200), max_size=12),
    grammar=st.sampled_from([QWEN3, PLAIN]),
    with_tools=st.booleans(),
    in_reasoning=st.booleans(),
)
def test_the_parts_are_the_same_whatever_the_pieces(
    text: str, thinks: bool, places: list[int], grammar: AnswerGrammar, with_tools: bool, in_reasoning: bool
) -> None:
    text = "<think>" + text if thinks else text
    options = {"with_tools": with_tools, "in_reasoning": in_reasoning and grammar.reasoning}
    expected = whole(text, grammar, **options)
    for pieces in (cut(text, places), list(text)):
        parser, parts = read(pieces, grammar, **options)
        assert summed(parts) == recorded(parser) == expected


@settings(max_examples=150, deadline=None)
@given(
    reasoning=st.text(max_size=20),
    content=st.text(max_size=20),
    calls=st.lists(st.tuples(NAMES, st.dictionaries(st.text(max_size=6), VALUES, max_size=3)), max_size=3),
)
def test_an_answer_as_the_template_writes_it_is_read_as_it_was_meant(
    reasoning: str, content: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    if "<" in reasoning + content:
        return
    text = f"<think>\n{reasoning.strip()}\n</think>\n\n{content.strip()}"
    text += "".join("\n" + call(name, arguments) for name, arguments in calls)
    expected = [[name, json.dumps(arguments)] for name, arguments in calls]
    assert whole(text) == told(reasoning.strip(), content.strip(), expected)


# -- beside the family's own parser -----------------------------------------------------------------------------------


@cache
def qwen3() -> PromptRenderer:
    with TemporaryDirectory() as folder:
        return load_renderer(make_qwen3(Path(folder)))


def test_a_local_qwen3_folder_gets_its_family_renderer(tmp_path: Path) -> None:
    folder = make_qwen3(tmp_path)
    assert type(load_renderer(folder).renderer).__name__ == "Qwen3Renderer"
    about = json.loads((folder / "tokenizer_config.json").read_text())
    about["chat_template"] = about["chat_template"].replace(
        "<|im_start|>assistant\\n' + m.content", "robot: ' + m.content"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    assert type(load_renderer(folder).renderer).__name__ == "DefaultRenderer", (
        "a template of its own is not the family's"
    )


@settings(max_examples=150, deadline=None)
@given(text=ANSWERS, thinks=st.booleans(), in_reasoning=st.booleans())
def test_the_family_parser_reads_the_same(text: str, thinks: bool, in_reasoning: bool) -> None:
    """Where both are defined: every call is closed, is JSON with an object as arguments, and has no tags in it.

    Text after a call and white space at the ends are left out by the family's parser.
    """
    text = "<think>" + text if thinks else text
    if text.count("<think>") + in_reasoning > 1:
        return  # a second opening tag: left out there, kept here
    renderer = qwen3()
    prompt = [saying("user", "go")]
    prompt_ids = renderer.render(prompt, None).ids
    encode = renderer.renderer._tokenizer.encode  # type: ignore[attr-defined]
    if in_reasoning:
        prompt_ids = [*prompt_ids, *encode("<think>\n", add_special_tokens=False)]
    theirs = renderer.parse(encode(text, add_special_tokens=False), None, prompt_ids)
    parser, _ = read([text], in_reasoning=renderer.ends_in_reasoning(prompt_ids))
    ours = recorded(parser)
    assert ours["reasoning"].strip() == (theirs.reasoning_content or "").strip()
    fine = [c for c in theirs.tool_calls if c.status is ToolCallParseStatus.OK and isinstance(c.arguments, dict)]
    if parser.broken or len(fine) < len(theirs.tool_calls):
        return
    assert [[name, json.loads(arguments)] for name, arguments in ours["calls"]] == [[c.name, c.arguments] for c in fine]
    if not fine:
        assert ours["content"].strip() == re.sub(r"^\n+", "", theirs.content).strip()
    else:
        assert ours["content"].startswith(theirs.content) or theirs.content == ours["content"].strip()


# -- families whose calls are read at the end --------------------------------------------------------------------------


@pytest.mark.parametrize("notation", ["tagged", "whole"])
def test_a_reading_at_the_end_is_given_once(notation: Any) -> None:
    text = "<think>\nhm\n</think>\n\nLet me look.\n<tool_call>\n<function=f>1</function>\n</tool_call>"
    parser, parts = read(list(text), AnswerGrammar(reasoning=True, calls=notation))
    parts.append(parser.adopt("Let me look.", "hm", [("f", {"a": 1}), ("g", '{"b": 2}')]))
    assert summed(parts) == recorded(parser)
    assert recorded(parser) == told("hm", "Let me look.", [["f", '{"a": 1}'], ["g", '{"b": 2}']])


def test_a_reading_that_differs_does_not_take_back_what_was_given() -> None:
    parser, parts = read(["  so it is "], AnswerGrammar(reasoning=True, calls="tagged"))
    parts.append(parser.adopt("so it is", None, []))
    assert summed(parts) == recorded(parser) == told("", "  so it is ")


FIRST, SECOND = (f"<tool_call>\n<function={name}>\n</function>\n</tool_call>" for name in "fg")


@pytest.mark.parametrize("known", [True, False])
def test_tagged_calls_that_cannot_be_read_and_text_after_a_call_stay_text(known: bool) -> None:
    bad = "<tool_call>\n<function=\n</tool_call>"
    parser, parts = read(list(f"Let me.\n{FIRST}\nThen \n{bad}\n{SECOND} done\n"), AnswerGrammar(calls="tagged"))
    unread: list[Any] = [bad] if known else []
    parts.append(parser.adopt("Let me.", None, [("f", {}), *unread, ("g", {"b": 2})]))
    assert summed(parts) == recorded(parser)
    assert recorded(parser) == told("", f"Let me.\nThen \n{bad} done", [["f", "{}"], ["g", '{"b": 2}']])
    assert [getattr(piece, "name", "text") for piece in parts[-1].pieces] == ["f", "text", "g", "text"]
    assert parser.broken == 1


def test_a_call_that_only_the_family_can_read_and_cannot_stays_text() -> None:
    parser, parts = read(["Look. [call f(]"], AnswerGrammar(calls="whole"))
    parts.append(parser.adopt("Look. ", None, ["[call f(]"]))
    assert summed(parts) == recorded(parser) == told("", "Look. [call f(]")


def test_a_call_in_text_that_was_given_already_is_not_given_again() -> None:
    parser, parts = read([FIRST], AnswerGrammar(calls="tagged"), with_tools=False)
    parts.append(parser.adopt("", None, [FIRST]))
    assert summed(parts) == recorded(parser) == told("", FIRST)
