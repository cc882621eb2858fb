"""JSON, JSON with comments and JSON5: one value changes, every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise.agents.json_text import parse, read, set_value
from turnwise.errors import ConfigError

COMMENTED = """\
// my agent
{
  // the model I like
  agents: { defaults: { model: 'openai/gpt-5', }, },
  "tools": { "allow": ["exec"], /* never more */ },  // mine
  'sandbox': { mode: "all" } // keep
}
"""


def test_comments_quotes_and_order_survive() -> None:
    text = set_value(COMMENTED, ("models", "mode"), "merge")
    assert text == COMMENTED.replace(
        """mode: "all" } // keep\n""",
        """mode: "all" }, // keep\n  "models": {\n    "mode": "merge"\n  }\n""",
    )
    text = set_value(text, ("agents", "defaults", "model"), "turnwise/turnwise")
    assert """model: "turnwise/turnwise", }, },\n""" in text
    assert read(text, ("sandbox", "mode")) == "all"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ("{ // empty\n}\n", '{ // empty\n  "a": {\n    "b": 1\n  }\n}\n'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{\n\t"x": 1,\n}', '{\n\t"x": 1,\n\t"a": {\n\t\t"b": 1\n\t},\n}'),
        ('{\r\n    "a": {}\r\n}\r\n', '{\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}\r\n'),
        ('{"a": {"b": 2}}', '{"a": {"b": 1}}'),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
    ],
)
def test_a_member_is_added_in_the_manner_of_the_file(before: str, after: str) -> None:
    assert set_value(before, ("a", "b"), 1) == after


def test_json5_is_read() -> None:
    text = "\ufeff{a: +.5, b: 0x1F, c: -Infinity, d: 'it\\'s\\\n on', $e_1: [1, 2,], f: null, \"g\": '\\u0041\\x42'}"
    tree = parse(text).value
    assert parse("{null: 1, true: 2}").value == {"null": 1, "true": 2}, "keys that look like values"
    assert tree == {"a": 0.5, "b": 31, "c": float("-inf"), "d": "it's on", "$e_1": [1, 2], "f": None, "g": "AB"}


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a" 1}', '{"a": 1} x', '{"a": "b}', "{a: tru}", "{,}", '{"a": 1 "b": 2}', "{" * 5000]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        set_value(text, ("a",), 1)


def test_a_value_in_the_way_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a\.b is not an object"):
        set_value('{"a": {"b": []}}', ("a", "b", "c"), 1)


keys = st.text(st.characters(codec="utf-8"), max_size=4)
trees: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150)
@example({"": "\u2028"}, ["a"], 1, False)
@example({"": "\\x"}, ["a"], 1, False)
@given(st.dictionaries(keys, trees, max_size=4), st.lists(keys, min_size=1, max_size=3), trees, st.booleans())
def test_only_what_was_asked_changes(tree: dict[str, Any], path: list[str], value: Any, wide: bool) -> None:
    wanted = json.loads(json.dumps(tree))
    node = wanted
    for key in path[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            return  # refused; see above
    node[path[-1]] = value
    text = json.dumps(tree, indent=4 if wide else None, ensure_ascii=wide)
    changed = set_value(text, tuple(path), value)
    assert json.loads(changed) == wanted
    assert set_value(changed, tuple(path), value) == changed
