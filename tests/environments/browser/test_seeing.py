"""Pictures of the real browser: what stands on them, numbers that can be clicked, and frames in a page."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import CDPSession, Error

from tests.environments.browser.conftest import needs_browser
from turnwise.environments.base import Action, Call, Observation, Task
from turnwise.environments.browser.calls import RefusedCall, definitions
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.kind import KIND
from turnwise.environments.browser.lines import block_of, calls_in
from turnwise.environments.browser.seeing.marks import MOST_BYTES, Mark, drawn, marks_in, placed
from turnwise.environments.browser.web_task import VIEWS, web_task
from turnwise.errors import DataError

PNG = b"\x89PNG"
GREEN = (0, 128, 0)
Look = Callable[..., Observation]


def pixels(observation: Observation) -> Image.Image:
    [data] = observation.images
    return Image.open(io.BytesIO(data)).convert("RGB")


@pytest.fixture
def look(browser: BrowserEnvironment, site: str) -> Look:
    """Begin at a page in this view."""

    def begin(path: str, observe: str, **more: object) -> Observation:
        data = {"url": site + path, "answer": "42", "observe": observe, "window": [400, 300], **more}
        return browser.reset(Task("t", "web", "Do it.", data))

    return begin


def step(browser: BrowserEnvironment, name: str, **arguments: object) -> Observation:
    return browser.step(Action((Call(name, arguments),)))[0]


@needs_browser
@pytest.mark.slow
def test_each_view_of_the_same_page(look: Look, site: str) -> None:
    head = f'Do it.\n\nPage: {site}/green "Green", window 400 by 300'
    text, screenshot, marks, both = (look("/green", view) for view in VIEWS)
    assert text.images == () and text.text == f'{head}\n<button> "Go" at (110, 65)\n<p> "words" at (200, 210)'
    assert screenshot.text == head and both.text == text.text
    assert both.images == screenshot.images and screenshot.images[0].startswith(PNG)
    assert marks.text == f'{head}\n[1] <button> "Go" at (110, 65)', "words are on the picture"
    plain, numbered = pixels(screenshot), pixels(marks)
    assert plain.size == numbered.size == (400, 300)
    assert plain.getpixel((300, 100)) == GREEN == numbered.getpixel((300, 100))
    assert plain.getpixel((70, 65)) != numbered.getpixel((70, 65)), "the left edge of the box"


@needs_browser
@pytest.mark.slow
def test_a_number_is_clicked_and_one_that_there_is_not_is_the_agents_fault(
    look: Look, browser: BrowserEnvironment
) -> None:
    assert '[2] <button> "Press"' in look("/", "marks").text
    told = step(browser, "click", mark=2)
    assert told.results[0].startswith('Succeeded: `click` on <button> "Press" at (60, 115).')
    assert '[2] <button> "Pressed"' in told.text and told.images
    wrong = step(browser, "hover", mark=9)
    assert wrong.results == ("Failed: `hover`: no element on the picture has the number 9; there are 1 to 2",)
    assert step(browser, "click", x=60, y=115).results[0].startswith("Succeeded"), "places are taken as well"
    assert browser.score().details["faults"] == {"agent": 1} and browser.score().details["unreadable"] == 0


@needs_browser
@pytest.mark.slow
def test_numbers_are_of_marks_alone_and_places_are_read_off_any_picture(
    look: Look, browser: BrowserEnvironment
) -> None:
    look("/", "screenshot")
    assert "not 'mark'" in step(browser, "click", mark=1).results[0]
    assert '"Press"' in step(browser, "click", x=60, y=115).results[0]


@needs_browser
@pytest.mark.slow
def test_the_page_in_front_is_seen_while_a_window_that_it_opened_stands_over_it(
    look: Look, browser: BrowserEnvironment
) -> None:
    before = look("/popup", "screenshot")
    after = step(browser, "click", x=10, y=10)
    assert "A new tab opened" in after.results[0] and pixels(after).size == pixels(before).size
    assert pixels(step(browser, "switch_tab", index=1)).tobytes() != pixels(after).tobytes()


@needs_browser
@pytest.mark.slow
def test_a_page_that_hangs_makes_no_picture_and_says_so(
    look: Look, browser: BrowserEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    look("/hang", "screenshot")
    monkeypatch.setattr("turnwise.environments.browser.acting.ACT_S", 1.0)
    monkeypatch.setattr("turnwise.environments.browser.tab.SCRIPT_S", 1.0)
    told = step(browser, "click", x=10, y=10)
    assert told.images == () and "does not answer" in told.text


@needs_browser
@pytest.mark.slow
def test_a_page_that_was_not_painted_yet_is_asked_again(
    look: Look, browser: BrowserEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failed = CDPSession.send, []

    async def fails_once(self: CDPSession, method: str, params: Any = None) -> Any:
        if method == "Page.captureScreenshot" and len(failed) < 2:
            failed.append(method)
            raise Error("Protocol error (Page.captureScreenshot): Unable to capture screenshot")
        return await send(self, method, params)

    monkeypatch.setattr(CDPSession, "send", fails_once)
    assert pixels(look("/green", "screenshot")).getpixel((300, 100)) == GREEN and len(failed) == 2


@needs_browser
@pytest.mark.slow
def test_a_frame_of_the_same_site_is_read_and_written_into(look: Look, browser: BrowserEnvironment) -> None:
    seen = look("/framed", "text")
    assert "<input> text at (" in seen.text and "<iframe>" not in seen.text and '"Deep" at (85, 213)' in seen.text
    place = next(line for line in seen.text.splitlines() if line.startswith("<input>")).split("(")[1].rstrip(")")
    x, y = map(int, place.split(", "))
    assert "`click` on <input> text at" in step(browser, "click", x=x, y=y).results[0]
    assert 'typed "hello" into <input> text value "hello".' in step(browser, "write", text="hello").results[0]
    assert "content of the page changed" in step(browser, "click", x=85, y=213).results[0]


@needs_browser
@pytest.mark.slow
def test_a_frame_of_another_site_is_named_and_not_read(look: Look, site: str) -> None:
    port = site.rpartition(":")[2]
    seen = look(f"/foreign?{port}", "text", hosts=[f"127.0.0.1:{port}", f"localhost:{port}"])
    assert "(a page of another site in it, which is not read)" in seen.text and "Start" not in seen.text


def test_what_is_drawn_is_small_enough_to_be_sent() -> None:
    noise = Image.frombytes("RGB", (1600, 1200), random.Random(1).randbytes(1600 * 1200 * 3))
    out = io.BytesIO()
    noise.save(out, "PNG", compress_level=0)
    found = drawn(out.getvalue(), ())
    assert found.startswith(b"\xff\xd8") and len(found) <= MOST_BYTES
    assert Image.open(io.BytesIO(found)).size == (1600, 1200), "of the same size: places stay places"


def test_numbers_stand_within_the_picture_wherever_a_box_is() -> None:
    out = io.BytesIO()
    Image.new("RGB", (60, 40), "white").save(out, "PNG")
    boxes = ((0, 0, 60, 40), (50, 30, 60, 40), (0, 0, 1, 1), (58, 0, 60, 2))
    marks = tuple(Mark(n + 10, box, (0, 0), "") for n, box in enumerate(boxes))
    assert Image.open(io.BytesIO(drawn(out.getvalue(), marks))).size == (60, 40)


def test_what_a_page_gives_for_boxes_is_not_believed() -> None:
    box = [1, 2, 30, 40, 15, 21, 1]
    assert marks_in({"lines": ["a", "b"], "boxes": [[*box[:6], 0], box]}) == (Mark(1, (1, 2, 30, 40), (15, 21), "b"),)
    for odd in (None, [None], [box[:6]], [[*box[:6], "x"]], [[float("nan"), *box[1:]]], [[1e9, *box[1:]]], "box"):
        assert marks_in({"lines": ["a"], "boxes": odd}) == ()
    assert marks_in({}) == ()


def test_a_call_by_number_has_the_place_of_its_element() -> None:
    marks = (Mark(1, (0, 0, 2, 2), (7, 8), ""),)
    assert placed(Call("click", {"mark": 1, "button": "right"}), marks).arguments == {"x": 7, "y": 8, "button": "right"}
    assert placed(Call("scroll", {"direction": "up"}), marks).arguments == {"direction": "up"}
    for wrong in (True, "1", None, 2, [1]):
        with pytest.raises(RefusedCall, match="there are 1 to 1"):
            placed(Call("click", {"mark": wrong}), marks)
    with pytest.raises(RefusedCall, match="there is none"):
        placed(Call("click", {"mark": 1}), ())


def test_a_model_is_told_how_it_sees() -> None:
    def told(observe: str) -> tuple[str, str, list[str]]:
        task = Task("t", "web", "p", {"url": "http://a/", "answer": "1", "observe": observe})
        calls = KIND.instructions(task)
        return (
            calls.system,
            KIND.instructions_in_blocks(task).system,
            list(calls.tools[0]["function"]["parameters"]["properties"]),
        )

    assert all("{" not in system for view in VIEWS for system in told(view)[:2])
    assert "picture" not in told("text")[0] + told("text")[1] and "mark" not in told("both")[2]
    assert told("marks")[2][0] == "mark" and "#N" in told("marks")[1]
    assert definitions(marks=True)[0]["function"]["parameters"]["required"] == []
    assert definitions()[0]["function"]["parameters"]["required"] == ["x", "y"]
    with pytest.raises(DataError, match="'observe' is one of text, screenshot, marks, both"):
        web_task({"url": "http://a/", "answer": "1", "observe": "video"})


def test_numbers_in_lines() -> None:
    assert calls_in("```web\nclick #3\nhover #12\n```").calls == (
        Call("click", {"mark": 3}),
        Call("hover", {"mark": 12}),
    )
    action = Action((Call("click", {"mark": 3}),))
    assert calls_in(block_of(action)).calls == action.calls
    assert calls_in("```web\nclick #\n```").calls == (Call("click", {"x": "#"}),), "not read as a number"
