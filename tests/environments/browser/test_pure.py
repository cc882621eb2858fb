"""Calls, their lines, what is told of them, and tasks, as values: no browser."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.environments.base import Action, Call
from turnwise.environments.browser import chromium
from turnwise.environments.browser.calls import TOOLS, BadCall, RefusedCall, checked, definitions
from turnwise.environments.browser.feedback import Done, Happened, PageState, told
from turnwise.environments.browser.lines import block_of, calls_in
from turnwise.environments.browser.miniwob_oracle import SeenElement, screen_of
from turnwise.environments.browser.tab import _number, clean
from turnwise.environments.browser.web_task import web_task
from turnwise.errors import DataError


def test_the_tools_are_the_thirteen_of_the_paper() -> None:
    assert len(TOOLS) == 13 and {d["function"]["name"] for d in definitions()} == set(TOOLS)
    click = next(d for d in definitions() if d["function"]["name"] == "click")["function"]["parameters"]
    assert click["required"] == ["x", "y"] and click["properties"]["button"]["enum"] == ["left", "right", "middle"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fly", {}, "there is no tool 'fly'"),
        ("click", {"x": 1}, "click asks for y"),
        ("click", {"x": 1, "y": 2, "z": 3}, "not 'z'"),
        ("click", {"x": "1", "y": 2}, "is a number"),
        ("click", {"x": True, "y": 2}, "is a number"),
        ("click", {"x": float("nan"), "y": 2}, "is a number"),
        ("click", {"x": 1, "y": 2, "button": "nose"}, "one of left, right, middle"),
        ("write", {"text": "a" * 20_000}, "at most 10000"),
        ("press_keys", {"keys": ["Enter"] * 21}, "list of 1 to 20"),
        ("press_keys", {"keys": [5]}, "list of 1 to 20"),
        ("scroll", {"direction": "down", "amount": 1e5}, "at most 20"),
    ],
)
def test_calls_that_have_no_form_are_told_why(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadCall, match=said) as found:
        checked(Call(name, arguments), 100, 100)
    assert not isinstance(found.value, RefusedCall)


def test_what_is_left_out_has_its_default_and_waits_are_cut() -> None:
    assert checked(Call("click", {"x": 1.4, "y": 2}), 9, 9) == {
        "x": 1,
        "y": 2,
        "button": "left",
        "click_type": "single",
    }
    assert checked(Call("wait", {"seconds": 500}), 9, 9) == {"seconds": 10.0}
    assert checked(Call("press_keys", {"keys": "Enter"}), 9, 9) == {"keys": ["Enter"]}
    assert checked(Call("goto_url", {"url": "example.org/a"}), 9, 9) == {"url": "https://example.org/a"}


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:1", "ftp://a", "http://", "data:,x", "FILE:///x"])
def test_addresses_of_anything_but_the_web_are_refused(url: str) -> None:
    with pytest.raises(RefusedCall, match="http"):
        checked(Call("goto_url", {"url": url}), 9, 9)


ACTIONS = [
    Action((Call("click", {"x": 80, "y": 129}),)),
    Action(
        (Call("click", {"x": 1, "y": 2}), Call("write", {"text": "two words"}), Call("press_keys", {"keys": ["Enter"]}))
    ),
    Action((Call("done", {"answer": "It is 42, I think."}),)),
    Action((Call("scroll", {"direction": "down"}), Call("go_back", {}))),
]


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_written_as_a_block_is_read_as_the_same_calls(action: Action) -> None:
    read = calls_in(block_of(action)).calls
    assert [checked(call, 900, 900) for call in read] == [checked(call, 900, 900) for call in action.calls]


def test_a_text_without_one_block_asks_for_nothing() -> None:
    assert calls_in("click 1 2").calls == calls_in("```web\nclick 1 2").calls == ()
    assert calls_in("```web\nclick 1 2\n```\n```web\nclick 1 2\n```").calls == ()
    assert calls_in("```web\nfly 3\n```").calls == (Call("fly", {}),)


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for call in calls_in(f"```web\n{text}\n```").calls:
        try:
            checked(call, 100, 100)
        except BadCall as e:
            assert str(e)


HERE = PageState("http://a/", ("http://a/",), 0, focus="<body>")
CLICK = Done("click", {"x": 1, "y": 2, "button": "left", "click_type": "single"}, HERE, HERE, target='<a> "Go"')


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (CLICK, 'Succeeded: `click` on <a> "Go" at (1, 2). Note: nothing on the page changed.'),
        (replace(CLICK, after=replace(HERE, url="http://b/", title="B")), 'The page is now http://b/ ("B").'),
        (replace(CLICK, after=replace(HERE, tabs=("http://a/", "http://b/"))), "A new tab opened; it is number 1"),
        (replace(CLICK, after=replace(HERE, content=(1, 2, 3))), "The content of the page changed."),
        (replace(CLICK, happened=Happened(dialogs=("Hi\nthere",))), 'The page said "Hi there", which was closed.'),
        (replace(CLICK, happened=Happened(status=503)), "The site answered with status 503."),
        (replace(CLICK, happened=Happened(loading=True)), "It is still loading."),
        (replace(CLICK, fault=("site", "it hangs")), "Failed: `click`: it hangs"),
        (
            replace(CLICK, fault=("site", "it hangs"), happened=Happened(dialogs=("Hi",))),
            'Failed: `click`: it hangs. The page said "Hi", which was closed.',
        ),
        (
            replace(CLICK, meanwhile=Happened(downloads=("a.bin",))),
            'at (1, 2). Before this the page offered the file "a.bin", which is not kept. Note: nothing',
        ),
        (Done("write", {"text": "ab"}, HERE, replace(HERE, focus="<input>", value="a")), 'is "a", not what was typed'),
    ],
)
def test_what_is_told_of_a_call(done: Done, said: str) -> None:
    assert said in told(done)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "'url' is the address"),
        ({"url": "file:///x", "answer": "a"}, "begins with http"),
        ({"url": "http://a"}, "give one of them"),
        ({"url": "http://a", "answer": 5}, "'answer' is a text"),
        ({"url": "http://a", "answer": "b", "hosts": ["*"]}, "'hosts' has"),
        ({"url": "http://a", "answer": "b", "hosts": ["a;b"]}, "'hosts' has"),
        ({"url": "http://a", "answer": "b", "hosts": ["a:70000"]}, "'hosts' has"),
        ({"url": "http://a", "answer": "b", "hosts": ["127.0.0.1"]}, "give its port"),
        ({"url": "http://a", "answer": "b", "hosts": ["shop.localhost"]}, "give its port"),
        ({"url": "http://a", "answer": "b", "hosts": ["[::1]"]}, "give its port"),
        ({"url": "http://a", "answer": "b", "hosts": ["192.168.1.7"]}, "give its port"),
        ({"url": "http://a", "answer": "b", "window": [5, 5]}, "200 to 4000"),
        ({"url": "http://a", "answer": "b", "reward": 1}, "no 'reward'"),
        ({"miniwob": "../core/core"}, "MiniWoB"),
        ({"url": "http://a", "answer": "b", "oracle": [{"name": "click"}]}, "list of answers"),
    ],
)
def test_a_task_that_is_wrong_is_told_what(data: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        web_task(data)


def test_an_answer_is_right_whatever_its_case_and_space() -> None:
    task = web_task({"url": "http://a", "answer": ["Forty  two", "42"]})
    assert task.is_right(" forty two. ") and task.is_right("42") and not task.is_right("It is 42")
    assert task.hosts == ("a:80",)
    parts = web_task({"url": "http://a", "contains": ["red", "Blue"]})
    assert parts.is_right("blue and RED") and not parts.is_right("red")


def test_each_host_has_a_port() -> None:
    named = ["shop.example", "*.example.org", "127.0.0.1:8000", "[::1]:9"]
    task = web_task({"url": "HTTPS://shop.example/x", "answer": "a", "hosts": named})
    wild = ("*.example.org:80", "*.example.org:443")
    assert task.hosts == ("shop.example:443", *wild, "127.0.0.1:8000", "[::1]:9")
    assert web_task({"url": "http://127.0.0.1/", "answer": "a"}).hosts == ("127.0.0.1:80",)
    assert web_task({"url": "http://127.0.0.1:81?x", "answer": "a"}).hosts == ("127.0.0.1:81",)


def test_what_a_page_gives_is_cleaned_and_its_numbers_are_numbers() -> None:
    assert clean({"a\ud800": ["x\udc00y", 1, None]}) == {"a?": ["x?y", 1, None]}
    assert [_number(odd) for odd in (None, {}, "7", True, float("nan"), float("inf"), 2.6)] == [0, 0, 0, 0, 0, 0, 2]


def test_an_observation_is_read_as_its_elements() -> None:
    text = (
        'Do it.\n\nClick "x".\n\nPage: http://a "A", window 5 by 5\n<div> "Click "x"." at (1, 2)\n'
        '<input> checkbox "B" checked at (3, 4) focused\n<select> value "T" at (5, 6) options: T | U\nno element'
    )
    screen = screen_of(text)
    assert screen.goal == 'Click "x".' and list(screen.elements) == [
        SeenElement("input", "checkbox", "B", "", 3, 4, frozenset({"checked", "focused"})),
        SeenElement("select", "", "", "T", 5, 6),
    ]


def test_all_threads_have_one_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a browser of one would be spoken to on the loop of another."""

    class SlowToMake:
        def __init__(self) -> None:
            time.sleep(0.05)

    monkeypatch.setattr(chromium, "Driver", SlowToMake)
    monkeypatch.setattr(chromium, "_the_driver", cache(lambda: chromium.Driver()))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: chromium.driver(), range(8)))) == 1
