"""Which lines of a file are taken, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import DataError
from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.training.sft import conversations
from turnwise.training.sft.conversations import read_data

USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}}


def one(tmp_path: Path, row: Any) -> conversations.Dialogue:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    [found] = read_data(file).conversations
    return found


def refused(tmp_path: Path, line: bytes | Any) -> str:
    """What is said of a line in the middle of a good file."""
    good = json.dumps({"messages": [USER, ANSWER]}).encode()
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b"\n".join([good, line if isinstance(line, bytes) else json.dumps(line).encode(), good, b""]))
    with pytest.raises(DataError) as e:
        read_data(file)
    said = str(e.value)
    assert "  line 2: " in said
    assert "--skip-broken" in said
    left = read_data(file, skip_broken=True)
    assert len(left.conversations) == 2
    assert left.broken == 1
    return said


def test_messages_with_tools_thinking_and_weights(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    found = one(
        tmp_path,
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
                USER,
                ANSWER | {"weight": 0},
                USER,
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "a thing"},
                ANSWER | {"weight": 1},
                USER,
            ],
            "tools": [tool],
            "note": "what else stands in a row is its owner's",
        },
    )
    assert [m.role for m in found.messages][:2] == ["system", "user"]
    assert found.taught == {4, 6}
    assert thinking_in(found.messages[4]) == "hm"
    assert [(c.name, json.loads(c.arguments)) for c in calls_of(found.messages[4])] == [("look", {"at": "it"})]
    assert found.tools == [tool]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "completion": "hello"},
        {"prompt": [USER], "completion": [ANSWER]},
        {"prompt": [USER], "completion": "hello"},
    ],
)
def test_prompt_and_completion(tmp_path: Path, row: dict[str, Any]) -> None:
    found = one(tmp_path, row)
    assert [text_of(m) for m in found.messages] == ["hi", "hello"]
    assert found.taught == {1}


def test_answers_in_a_prompt_are_context(tmp_path: Path) -> None:
    found = one(tmp_path, {"prompt": [USER, ANSWER, USER], "completion": "hello"})
    assert found.taught == {3}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{not json", "it is no JSON"),
        (b'[{"messages": []}]', "jq -c '.[]'"),
        (b'"words"', "it is no object"),
        (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', "not UTF-8 (byte"),
        (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "half of a character"),
        (b"[" * 200_000, "it is no JSON"),
        ({"text": "hello"}, "does not say which of it is an answer"),
        ({"conversations": [{"from": "human", "value": "hi"}]}, "ShareGPT"),
        ({"instruction": "do", "input": "", "output": "done"}, "Alpaca"),
        ({"prompt": "hi"}, "its keys are prompt"),
        ({"messages": []}, "no list of messages"),
        ({"messages": "hi"}, "no list of messages"),
        ({"messages": [USER]}, "no answer to learn"),
        ({"messages": [USER, ANSWER | {"weight": 0}]}, "no answer to learn"),
        ({"messages": [USER, ANSWER | {"weight": 0.5}]}, "has the weight 0.5"),
        ({"messages": [USER, ANSWER], "chat_template_kwargs": []}, "is an object, as"),
        ({"messages": [USER, ANSWER], "chat_template_kwargs": {"preserve_thinking": "no"}}, "is true or false"),
        ({"messages": [ANSWER]}, "messages[0] answers nothing"),
        ({"messages": [USER, {"role": "model", "content": "x"}]}, "messages[1] has the role 'model'"),
        ({"messages": [USER, {"role": "assistant", "content": ""}]}, "without words and calls"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "without words and calls"),
        ({"messages": [USER, ANSWER | {"content": 7}]}, "is no text and no list"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ANSWER]}, 'an image_url without {"url"'),
        ({"messages": [USER, ANSWER | {"function_call": {"name": "f"}}]}, "write it as tool_calls"),
        ({"messages": [USER, ANSWER | {"tool_calls": [{"function": {}}]}]}, "no function with a name"),
        ({"messages": [USER | {"tool_calls": [CALL]}, ANSWER]}, "only an assistant calls tools"),
        ({"messages": [USER, {"role": "tool", "content": "x"}, ANSWER]}, "no answer before it calls a tool"),
        ({"messages": [USER, ANSWER], "tools": [{"name": "look"}]}, "tools[0] is no"),
        (
            {"messages": [USER, ANSWER | {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "arguments that are no JSON",
        ),
    ],
)
def test_a_line_that_cannot_be_learned_is_refused_by_its_number(tmp_path: Path, line: Any, said: str) -> None:
    assert said in refused(tmp_path, line)


def test_a_line_of_any_length_is_refused_without_being_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "LONGEST_LINE", 1000)
    long = json.dumps({"messages": [USER, ANSWER | {"content": "x" * 5000}]})
    assert "it is longer than" in refused(tmp_path, long.encode())


def test_the_hash_is_of_all_bytes_and_empty_lines_say_nothing(tmp_path: Path) -> None:
    import hashlib

    file = tmp_path / "data.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": [USER, ANSWER]}).encode() + b"\r\n\n  \n")
    found = read_data(file)
    assert len(found.conversations) == 1
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_with_nothing_in_it_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="holds no conversation"):
        read_data(tmp_path / "empty.jsonl")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.jsonl", Path("/dev/zero")):
        with pytest.raises(DataError, match="is no file"):
            read_data(path)


def test_many_faults_are_counted_and_a_few_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("{}\n" * 40)
    with pytest.raises(DataError, match="40 lines of it are no conversation") as e:
        read_data(file)
    assert "line 5:" in str(e.value)
    assert "and 35 more" in str(e.value)
    with pytest.raises(DataError, match="all of its 40 lines are broken"):
        read_data(file, skip_broken=True)
