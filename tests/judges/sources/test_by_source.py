"""Who said each piece of a next state: the person, a diagnostic tool, our own check of a call, or nobody we trust."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from turnwise.judges.sources.by_source import (
    MAX_PERSON_CHARS,
    MAX_REPORT_CHARS,
    ReadResult,
    Sources,
    by_source,
    misfit,
)
from turnwise.judges.sources.person import MAX_READ
from turnwise.judges.sources.quotations import shown
from turnwise.judges.sources.reports import MAX_READ as MAX_REPORT
from turnwise.messages import from_chat, saying
from turnwise.types import Message

MORE = "a message of the person that holds more than their words"
PASSED, FAILED = "3 passed in 0.1s", "1 failed in 0.1s"


def calling(*calls: tuple[str, str, Any]) -> Message:
    """An answer that makes these calls: (id, tool, arguments)."""
    made = [
        {"id": id_, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for id_, tool, arguments in calls
    ]
    return from_chat({"role": "assistant", "content": None, "tool_calls": made})


def result(id_: str, text: str, role: str = "tool") -> Message:
    return from_chat({"role": role, "tool_call_id": id_, "content": text})


def pytest_of(id_: str) -> tuple[str, str, Any]:
    return id_, "bash", {"command": "pytest"}


TOOLS = [
    {
        "type": "function",
        "function": {"name": "bash", "parameters": {"type": "object", "properties": {}, "required": ["command"]}},
    }
]


def said(words: str, *rest: Any) -> Sources:
    """Sources of words among which no phrase is quoted."""
    return replace(Sources(words, *rest), quoting=words)


def test_what_the_person_said_is_theirs_alone() -> None:
    state = [saying("user", "Too long."), saying("user", "Shorter,  please.")]
    assert by_source(saying("assistant", "Hi"), state) == said("Too long.\nShorter,  please.")


def test_a_message_of_the_person_that_holds_more_is_kept_for_the_review_list() -> None:
    text = "Too long.\n> quoted"
    assert by_source(saying("assistant", "Hi"), [saying("user", text)]) == said("Too long.", [], [(MORE, text)])
    only = "> quoted"
    assert by_source(saying("assistant", "Hi"), [saying("user", only)]) == said("", [], [(MORE, only)])
    # Full-width letters are the person's own, however they are written.
    assert by_source(saying("assistant", "Hi"), [saying("user", "Ｔoo long")]) == said("Too long")


def test_a_phrase_that_the_person_quotes_is_kept_apart_from_what_they_said() -> None:
    text = 'Close with "Over to you, folks!" please.'
    found = by_source(saying("assistant", "Hi"), [saying("user", text), saying("user", "Thanks.")])
    assert (found.person, found.foreign) == ('Close with "" please.\nThanks.', [(MORE, text)])
    assert "folks" not in found.quoting
    assert shown(found.quoting) == (f"{text}\nThanks.", ["Over to you, folks!"])


@pytest.mark.parametrize("role", ["system", "assistant", "developer", "a role with a very long name"])
def test_a_message_of_another_role_is_content(role: str) -> None:
    state = [saying(role, "Too long."), saying("user", "Thanks.")]
    foreign = [(f"a message of the role {role[:20]!r}", "Too long.")]
    assert by_source(saying("assistant", "Hi"), state) == said("Thanks.", [], foreign)


@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_result_is_read_with_the_call_that_asked_for_it(role: str) -> None:
    answer = calling(pytest_of("1"), ("2", "bash", {"command": "cat a"}), ("3", "fetch", {"url": "a"}))
    state = [result("2", PASSED, role), result("1", FAILED, role), result("3", "x", role), result("4", PASSED, role)]
    read = by_source(answer, state)
    assert read.results == [
        ReadResult("bash", "cat a", PASSED, "tool.content"),
        ReadResult("bash", "pytest", FAILED, "tool.tests_failed"),
        ReadResult("fetch", None, "x", "tool.content"),
        ReadResult("", None, PASSED, "tool.content"),
    ]
    assert read.foreign == [("tool bash", PASSED), ("tool bash", FAILED), ("tool fetch", "x"), ("a tool", PASSED)]
    assert read.person == ""


def test_an_id_that_two_calls_share_names_neither_of_them() -> None:
    answer = calling(pytest_of("1"), pytest_of("1"), pytest_of("2"))
    read = by_source(answer, [result("1", PASSED), result("2", PASSED), result("", PASSED)])
    assert [(found.tool, found.kind) for found in read.results] == [
        ("", "tool.content"),
        ("bash", "tool.tests_passed"),
        ("", "tool.content"),
    ]


def test_the_codes_of_a_report_are_read_with_it() -> None:
    answer = calling(("1", "bash", {"command": "ruff check"}))
    text = "a.py:1:1: F401 unused\nb.py:1:1: E501 too long\nFound 2 errors."
    read = by_source(answer, [result("1", text)])
    assert read.results == [ReadResult("bash", "ruff check", text, "tool.check_failed", ("F401", "E501"))]
    assert read.diagnostics == ["The compiler or checker that it ran found errors. Codes: F401, E501."]


def test_a_call_that_does_not_fit_its_definition_is_bad_whatever_came_back() -> None:
    answer = calling(("1", "bash", {"cmd": "pytest"}), pytest_of("2"))
    read = by_source(answer, [result("1", PASSED), result("2", PASSED)], TOOLS)
    assert read.results == [
        ReadResult("bash", None, PASSED, "tool.bad_call"),
        ReadResult("bash", "pytest", PASSED, "tool.tests_passed"),
    ]
    assert by_source(answer, [result("1", PASSED)]).results == [
        ReadResult("bash", "pytest", PASSED, "tool.tests_passed")
    ]


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("pytest", PASSED, ["The test run that it started passed."]),
        ("pytest", FAILED, ["The test run that it started failed."]),
        ("mypy src", "exit code: 0", ["The compiler or checker that it ran found no error."]),
        ("mypy src", "Found 1 error in 1 file", ["The compiler or checker that it ran found errors."]),
        ("pytest", "no tests ran in 0.1s", ["No tests ran."]),
        ("mkdir a", "exit code: 0", ["The command ended with status 0."]),
        ("mkdir a", "exit code: 1", ["The command ended with a status other than 0."]),
        ("pytest", "bash: pytest: command not found", ["The shell did not find the program."]),
        ("cat a", PASSED, []),
        ("pytest", "some words", []),
    ],
)
def test_what_a_trusted_tool_reported_is_told_in_our_own_words(command: str, text: str, said: list[str]) -> None:
    read = by_source(calling(("1", "bash", {"command": command})), [result("1", text)])
    assert read.diagnostics == said


def test_a_bad_call_is_told_in_our_own_words() -> None:
    read = by_source(calling(("1", "bash", {}), pytest_of("2")), [result("1", ""), result("2", PASSED)], TOOLS)
    assert read.diagnostics == [
        "The call did not fit the definition of its tool.",
        "The test run that it started passed.",
    ]


def test_the_person_s_messages_are_read_up_to_a_number_of_characters() -> None:
    half = ("No, " * MAX_PERSON_CHARS)[: MAX_PERSON_CHARS // 2 - 1] + "."
    answer = saying("assistant", "Hi")
    whole = by_source(answer, [saying("user", half), saying("user", half)])
    assert whole == said(f"{half}\n{half}")
    more = by_source(answer, [saying("user", half), saying("user", half), saying("user", "Thanks.")])
    assert more == said(f"{half}\n{half}", [], [(MORE, "Thanks.")])
    # What others say uses up nothing of it.
    other = by_source(answer, [saying("system", half), saying("system", half), saying("user", half)])
    assert other.person == half


def test_a_message_that_is_too_long_to_be_read_is_content() -> None:
    long = " " * (MAX_READ + 1)
    assert by_source(saying("assistant", "Hi"), [saying("user", long)]) == said("", [], [(MORE, long)])
    assert by_source(saying("assistant", "Hi"), [saying("user", long[1:])]) == said("")


def test_the_results_of_tools_are_read_up_to_a_number_of_characters() -> None:
    size = MAX_REPORT_CHARS // MAX_REPORT
    text = "x\n" * (MAX_REPORT // 2) + PASSED  # more than is read of one: it counts as so much
    answer = calling(*(pytest_of(str(i)) for i in range(size + 1)))
    read = by_source(answer, [result(str(i), text) for i in range(size)] + [result(str(size), PASSED)])
    assert [found.kind for found in read.results] == ["tool.tests_passed"] * size + ["tool.content"]
    assert read.results[-1].command == "pytest"


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {}, "lines": {}}, "required": ["path"]}
CLOSED = {**SCHEMA, "additionalProperties": False}


def tool(parameters: Any, name: str = "read") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("arguments", "parameters", "wrong"),
    [
        ({"path": "a"}, SCHEMA, False),
        ('{"path": "a"}', SCHEMA, False),
        ({"path": "a", "lines": 3}, CLOSED, False),
        ({"path": "a", "more": 3}, SCHEMA, False),
        ({"path": "a", "more": 3}, CLOSED, True),
        ({"lines": 3}, SCHEMA, True),
        ({"lines": 3}, CLOSED, True),
        ({}, SCHEMA, True),
        ("", SCHEMA, True),
        ("", {"type": "object", "properties": {}}, False),
        ("{", SCHEMA, True),
        ("[" * 100_000, SCHEMA, True),
        ("[]", SCHEMA, True),
        ("null", SCHEMA, True),
        (None, SCHEMA, True),
        (["path"], SCHEMA, True),
        # A definition that says nothing of it is not held against the call.
        ({"more": 3}, {"type": "object", "additionalProperties": False}, False),
        ({"more": 3}, {"type": "object", "properties": ["path"], "additionalProperties": False}, False),
        ({"more": 3}, {"type": "object", "properties": {"path": {}}, "additionalProperties": {}}, False),
        ({"more": 3}, {"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({}, {"type": "object", "required": "path"}, False),
        ({}, {"type": "object", "required": [3, None]}, False),
        ({}, {"type": "object", "required": [3, "path"]}, True),
        ("{", {"type": "string"}, False),
        ("{", {}, False),
        ("{", None, False),
        ("{", "object", False),
    ],
)
def test_whether_a_call_fits_the_definition_of_its_tool(arguments: Any, parameters: Any, wrong: bool) -> None:
    assert misfit("read", arguments, [tool(SCHEMA, "other"), tool(parameters)]) is wrong


@pytest.mark.parametrize(
    "tools",
    [None, [], [tool(SCHEMA, "other")], ["read"], [{"function": None}], [{"type": "web_search"}], [{"function": {}}]],
)
def test_a_tool_whose_definition_we_do_not_have_is_not_judged(tools: Any) -> None:
    assert misfit("read", {}, tools) is False
    assert misfit("read", {}, [*(tools or []), tool(SCHEMA)]) is True
