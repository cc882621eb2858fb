"""Each tool in the real browser: what it does, what it says where nothing came of it, and whose doing a failure is."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.environments.browser.conftest import Step, needs_browser
from turnwise.environments.base import Action, Call, Task
from turnwise.environments.browser.environment import BrowserEnvironment

pytestmark = [needs_browser, pytest.mark.slow]
At = Callable[[str], Step]


def faults(browser: BrowserEnvironment) -> object:
    return browser.score().details["faults"]


def test_click(at: At) -> None:
    step = at("/")
    assert "Note: nothing on the page changed." in step("click", x=240, y=110)
    told = step("click", x=60, y=115)
    assert (
        told.startswith('Succeeded: `click` on <button> "Press" at (60, 115).')
        and "content of the page changed" in told
    )
    assert "double `click`" in step("click", x=60, y=115, click_type="double")


def test_click_outside_of_the_window_is_the_agents_fault(at: At, browser: BrowserEnvironment) -> None:
    assert (
        at("/")("click", x=5000, y=1)
        == "Failed: `click`: x = 5000 is outside of the window, which is 1280 by 720 pixels"
    )
    assert faults(browser) == {"agent": 1}


def test_links_history_and_addresses(at: At, site: str) -> None:
    step = at("/")
    assert f'The page is now {site}/second ("Second").' in step("click", x=20, y=15)
    assert f'The page is now {site}/ ("Start").' in step("go_back")
    assert f"The page is now {site}/second" in step("goto_url", url=f"{site}/second")
    assert "The site answered with status 404." in step("goto_url", url=f"{site}/gone")


def test_going_back_over_a_place_on_the_same_page(at: At, site: str, browser: BrowserEnvironment) -> None:
    step = at("/second")
    step("goto_url", url=f"{site}/second#place")
    assert f"The page is now {site}/second " in step("go_back")
    assert "The page is now about:blank" in step("go_back")
    assert step("go_back") == "Failed: `go_back`: there is no page before this one"


def test_a_long_text_is_written_whole(at: At) -> None:
    step = at("/field")
    told = step("write", text="word " * 1999 + "end")
    assert told.startswith("Succeeded: `write`") and "Note" not in told, told


def test_calls_that_come_too_late_are_not_done(
    at: At, browser: BrowserEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    at("/second")
    monkeypatch.setattr("turnwise.environments.browser.environment.CALLS_S", 0.2)
    waits = Action((Call("wait", {"seconds": 0.5}), Call("done", {"answer": "42"})))
    observation, ended = browser.step(waits)
    assert observation.results[0].startswith("Succeeded") and observation.results[1].startswith("Not done: ")
    assert not ended and browser.score().reward == 0.0


def test_addresses_that_no_task_allows(at: At, browser: BrowserEnvironment) -> None:
    step = at("/")
    refused = "Failed: `goto_url`: this address is none that the task allows"
    assert step("goto_url", url="http://127.0.0.1:1/") == refused
    assert step("goto_url", url="https://example.com/") == refused
    for url in ("file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "chrome://version", "view-source:x"):
        assert "begin with http:// or https://" in step("goto_url", url=url)
    assert faults(browser) == {"agent": 7}


def test_write(at: At) -> None:
    step = at("/field")
    assert (
        step("write", text="Alpine Ridge")
        == 'Succeeded: `write` typed "Alpine Ridge" into <input> text value "Alpine Ridge".'
    )
    assert 'value "again"' in step("write", text="again"), "what stood there is gone"
    assert 'Note: the value of the field is "abc", not what was typed.' in at("/stubborn")("write", text="abcdef")
    assert at("/second")("write", text="x") == "Failed: `write`: no field has the focus; click on one first"


def test_press_keys(at: At) -> None:
    step = at("/field")
    assert 'The focus is on <input> text value "hi".' in step("press_keys", keys=["h", "i"])
    assert '"hi!"' in step("press_keys", keys="!"), "one key needs no list"
    assert "Unknown key" in step("press_keys", keys=["Foo"])
    assert "nothing on the page changed" in at("/second")("press_keys", keys=["Shift"])
    assert "list of 1 to 20" in step("press_keys", keys=[])


def test_scroll(at: At) -> None:
    step = at("/long")
    assert step("scroll", direction="down") == "Succeeded: `scroll` down by 50% of the window."
    assert "Note: nothing moved; it may be at its end." in step("scroll", direction="left")
    assert "one of up, down, left, right" in step("scroll", direction="sideways")
    assert "above 0" in step("scroll", direction="down", amount=0)


def test_hover_and_drag(at: At) -> None:
    step = at("/hover")
    assert step("hover", x=300, y=300).startswith("Succeeded: `hover` on <body> at (300, 300).")
    assert step("hover", x=10, y=10).startswith("Succeeded: `hover` on <div>")
    step = at("/drag")
    assert "<input> range" in step("drag", x1=8, y1=15, x2=250, y2=15)
    assert "Nothing has the focus any more." in step("drag", x1=600, y1=400, x2=700, y2=400)
    assert "nothing on the page changed" in step("drag", x1=600, y1=400, x2=700, y2=400)


def test_tabs(at: At, site: str) -> None:
    step = at("/popup")
    assert "A new tab opened; it is number 1, and switch_tab goes there." in step("click", x=10, y=10)
    assert f"`switch_tab`: tab 1 of 2 is in front ({site}/second)" in step("switch_tab", index=1)
    assert "tab 0 of 1 is in front" in step("close_tab")
    assert "tab 1 of 2 is in front (about:blank)" in step("new_tab")
    assert step("switch_tab", index=7) == "Failed: `switch_tab`: there are tabs 0 to 1"


def test_wait_is_bounded(at: At) -> None:
    assert at("/")("wait", seconds=0.1) == "Succeeded: waited 0.1 s. Note: nothing on the page changed."
    assert "is a number" in at("/")("wait", seconds="long")


def test_done_ends_the_episode_with_an_answer(at: At, browser: BrowserEnvironment, site: str) -> None:
    at("/")
    observation, ended = browser.step(Action((Call("done", {"answer": " 42. "}), Call("wait", {}))))
    assert ended and observation.results[0] == "Succeeded: the task is ended."
    assert observation.results[1].startswith("Not done")
    assert browser.score().reward == 1.0
    browser.reset(Task("t", "web", "Do it.", {"url": f"{site}/", "contains": ["red", "blue"]}))
    browser.step(Action((Call("done", {"answer": "red only"}),)))
    assert browser.score().reward == 0.0


def test_dialogs_are_closed_and_downloads_refused_and_both_are_told(at: At) -> None:
    assert 'The page said "Give your password", which was closed.' in at("/dialog")("click", x=10, y=10)
    assert 'The page offered the file "file.bin", which is not kept.' in at("/download")("click", x=10, y=10)


def test_what_comes_between_two_calls_is_told_of_the_second(at: At) -> None:
    step = at("/later")
    assert "which is not kept" not in step("click", x=10, y=10)
    time.sleep(3)  # the page offers its file two seconds after the click
    assert 'Before this the page offered the file "file.bin", which is not kept.' in step("wait", seconds=0.1)


@pytest.mark.long
def test_a_page_that_hangs_is_the_sites_fault_and_can_be_left(at: At, browser: BrowserEnvironment, site: str) -> None:
    step = at("/hang")
    assert step("click", x=10, y=10).startswith("Failed: `click`: the page ")
    assert "/second" in step("goto_url", url=f"{site}/second")
    assert browser.score().details["faults"] == {"site": 1}


def test_redirects_without_end_are_told(at: At, site: str) -> None:
    assert "ERR_TOO_MANY_REDIRECTS" in at("/")("goto_url", url=f"{site}/loop")
