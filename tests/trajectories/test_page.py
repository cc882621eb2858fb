"""The page of a trajectory: what stands in it, and that nothing of a hostile text runs or is fetched in a browser."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pixels
from typer.testing import CliRunner

from tests.conftest import Running
from tests.environments.browser.conftest import needs_browser
from turnwise.cli.main import app
from turnwise.environments.browser.chromium import driver, opened
from turnwise.messages import from_chat
from turnwise.trajectories.page import StoryPage, as_page
from turnwise.trajectories.record import AnswerCost, SavedTrajectory, written_trajectory
from turnwise.trajectories.steps import story_of
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep


def png(width: int = 200, height: int = 100) -> bytes:
    out = io.BytesIO()
    Pixels.new("RGB", (width, height), (240, 240, 240)).save(out, "PNG")
    return out.getvalue()


def shown(data: bytes, text: str = "what is seen") -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}],
    }


def called(name: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": text}


def page_of(messages: Sequence[dict[str, Any]], **more: Any) -> str:
    story = story_of([from_chat(dict(message)) for message in messages])
    return as_page(StoryPage("t", "reward 1", True, (), story, **more))


def test_a_click_is_drawn_on_the_picture_that_was_shown_before_it() -> None:
    messages = [
        shown(png()),
        called("click", x=50, y=25),
        result("ok"),
        shown(png(300, 100)),
        called("click", x=7, y=8),
    ]
    story = story_of([from_chat(message) for message in messages])
    assert [step.clicks for step in story.steps] == [[((50, 25),)], [((7, 8),)]]
    page = page_of(messages)
    first, second = page.index('cx="50" cy="25"'), page.index('cx="7" cy="8"')
    assert page.index('viewBox="0 0 200 100"') < first < page.index('viewBox="0 0 300 100"') < second


def test_a_drag_has_two_ends_and_a_click_by_its_number_is_where_it_is_said_to_have_been() -> None:
    drag = story_of(list(map(from_chat, [shown(png()), called("drag", x1=1, y1=2, x2=30, y2=40)]))).steps[0]
    assert drag.clicks == [((1, 2), (30, 40))]
    said = 'Succeeded: `click` on <button> "Go" at (12, 34). The content of the page changed.'
    marked = story_of(list(map(from_chat, [shown(png()), called("click", mark=3), result(said)]))).steps[0]
    assert (marked.clicks, marked.feedback) == ([((12, 34),)], [said])


def test_what_is_no_place_is_not_drawn() -> None:
    for arguments in ({"x": "1", "y": 2}, {"x": True, "y": 2}, {"x": 1e9, "y": 2}, {"x": 1}, {}):
        assert story_of(list(map(from_chat, [called("click", **arguments)]))).steps[0].clicks == []


def test_a_picture_that_is_gone_or_broken_is_said() -> None:
    assert "the picture is not shown" in page_of([shown(b"no picture"), called("click", x=1, y=2)])
    kept = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "sha256:00"}}]}
    assert "it is kept elsewhere" in page_of([kept, called("click", x=1, y=2)])
    away = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}]}
    page = page_of([away, called("click", x=1, y=2)])
    assert "no address is fetched" in page and "a.example" not in page


HOSTILE = (
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "</pre></section><iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<svg onload=window.ran=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.ran=1",
    '"><link rel=stylesheet href=https://evil.example/x.css>',
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "\u202egnp.exe",
    "\ud83d",
)


def hostile_page() -> str:
    """A page with hostile text in every place that it has."""
    text = "\n".join(HOSTILE)
    messages: list[dict[str, Any]] = [{"role": "system", "content": text}, shown(png(), text)]
    for hostile in HOSTILE:
        messages += [{**called(hostile, x=1, y=hostile), "content": text, "reasoning_content": text}, result(text)]
        messages.append({"role": "user", "content": text})
    story = story_of([from_chat(message) for message in messages])
    story.steps[0].notes.append(text)
    facts, ends = [(text, text)], [(text, text)]
    return as_page(StoryPage(text, text, False, facts, story, ends, [png(50, 50)]))


def test_every_text_is_escaped() -> None:
    page = hostile_page()
    assert "<script" not in page and "onerror=window" in page and "<img src=x" not in page and "<iframe" not in page
    assert "{{ 7 * 7 }}" in page, "what looks like a template is a text"
    assert page.encode()


@needs_browser
@pytest.mark.slow
def test_nothing_of_a_hostile_text_runs_or_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "t.html").write_text(hostile_page(), encoding="utf-8")

    async def look() -> tuple[list[str], dict[str, Any]]:
        asked: list[str] = []
        async with opened([], 800, 600) as context:
            page = await context.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.on("dialog", lambda dialog: asked.append(dialog.message))
            await page.goto((tmp_path / "t.html").as_uri())
            await page.wait_for_timeout(300)
            found = await page.evaluate(
                """() => ({ ran: window.ran ?? null, pictures: [...document.images].map(i => i.naturalWidth),
                url: location.href, frames: window.length, sections: document.querySelectorAll('section.step').length,
                circle: document.querySelector('circle.click') })"""
            )
        return asked, found

    asked, found = driver().run(look(), 60)
    assert found["ran"] is None
    assert [url for url in asked if not url.startswith("data:")] == [(tmp_path / "t.html").as_uri()]
    assert found["url"] == (tmp_path / "t.html").as_uri() and found["frames"] == 0
    assert set(found["pictures"]) == {200, 50}, "the pictures are there"
    assert found["sections"] == len(HOSTILE) + 3


@needs_browser
@pytest.mark.slow
def test_the_click_stands_where_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "t.html").write_text(page_of([shown(png(400, 200)), called("click", x=300, y=150)]), encoding="utf-8")

    async def look() -> list[float]:
        async with opened([], 1000, 700) as context:
            page = await context.new_page()
            await page.goto((tmp_path / "t.html").as_uri())
            return await page.evaluate(
                """() => { const i = document.images[0].getBoundingClientRect();
                const c = document.querySelector('circle.click').getBoundingClientRect();
                return [(c.x + c.width / 2 - i.x) / i.width, (c.y + c.height / 2 - i.y) / i.height]; }"""
            )

    assert driver().run(look(), 60) == pytest.approx([0.75, 0.75], abs=0.01)


def test_a_saved_trajectory_becomes_a_page(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "```web\nclick 3 4\n```"}]
    details = {"answer": "42", "judge_said": "Well done.", "faults": {"site": 1}}
    taken = TrailStep("", ("click(x=3, y=4)",), ("Succeeded: at (3, 4).",))
    trail = Trail("Do it.", (taken,), (ShownPage("the last page", png()),), "42")
    spent = [AnswerCost(1, 2, "hm", png())]
    saved = SavedTrajectory(
        "r.a.0", "a", "web", "Do it.", 1.0, details=details, messages=messages, spent=spent, trail=trail
    )
    (tmp_path / "run.jsonl").write_text(f"{written_trajectory(saved)}\n")
    asked = ["trajectory", "r.a", "--from", str(tmp_path / "run.jsonl"), "--out", str(tmp_path / "p.html")]
    assert CliRunner().invoke(app, asked).exit_code == 0
    page = (tmp_path / "p.html").read_text()
    assert all(
        part in page
        for part in ("r.a.0", "reward 1", "Well done.", "hm", "click ", "1 + 2 tokens", "at (3, 4).", "the last page")
    )
    assert page.count("<img ") == 2, "what the answer saw, and the last page"
    assert 'cx="3" cy="4"' in page
    asked[1] = "other"
    done = CliRunner().invoke(app, asked)
    assert done.exit_code != 0 and "no trajectory 'other'" in str(done.exception)


def test_a_recorded_session_becomes_a_page(gateway: Running, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: "The <b>answer</b>"
    client = gateway.client(**{"X-Session-Id": "mine"})
    client.chat.completions.create(model="turnwise", messages=[{"role": "user", "content": "A question?"}])
    asked = ["trajectory", "mine", "--home", str(gateway.config.home), "--out", str(tmp_path / "p.html")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "p.html").read_text()
    assert "A question?" in page and "The &lt;b&gt;answer&lt;/b&gt;" in page and "version 0" in page
