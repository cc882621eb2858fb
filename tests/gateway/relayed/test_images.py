"""Images in front of an upstream: told to it in its shape, and marked in the text that is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.callers import user
from tests.gateway.relayed.test_settings import ENDED
from tests.gateway.relayed.test_upstream import DONE, in_front_of
from tests.support.raw_http import sse
from turnwise.messages import text_of

URL = "https://example.com/a.png"
DATA = "data:image/png;base64,AAAA"
SAID = {"type": "text", "text": "What is this?"}
OPENAI_IMAGES = [{"type": "image_url", "image_url": {"url": url}} for url in (URL, DATA)]
ANTHROPIC_IMAGES = [
    {"type": "image", "source": {"type": "url", "url": URL}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
]
GIVEN: dict[str, list[dict[str, Any]]] = {
    "chat/completions": [SAID, *OPENAI_IMAGES],
    "responses": [
        {"type": "input_text", "text": SAID["text"]},
        *({"type": "input_image", "image_url": url} for url in (URL, DATA)),
    ],
    "messages": [SAID, *ANTHROPIC_IMAGES],
}


def asking(path: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    key = "input" if path == "responses" else "messages"
    return {key: [{"role": "user", "content": content}]} | ({"max_tokens": 9} if path == "messages" else {})


@pytest.mark.parametrize("path", GIVEN)
async def test_they_reach_the_upstream_in_its_shape(tmp_path: Path, path: str) -> None:
    for api, said, told in (("openai", DONE, OPENAI_IMAGES), ("anthropic", ENDED, ANTHROPIC_IMAGES)):
        async with in_front_of(tmp_path / api, said, api=api) as fronted:
            answered = await fronted.ask(path, **asking(path, GIVEN[path]))
            assert answered.status_code == 200, answered.text
            (message,) = fronted.asked()[0]["messages"]
            assert message == {"role": "user", "content": [SAID, *told]}
            turn = fronted.journal.turns.get(answered.headers["x-turnwise-turn-id"])
        assert turn is not None
        assert text_of(turn.messages[0]).startswith("What is this?\n[image ")


async def test_a_detail_is_told_with_it(tmp_path: Path) -> None:
    content = [{"type": "input_image", "image_url": URL, "detail": "low"}]
    async with in_front_of(tmp_path, DONE) as fronted:
        await fronted.ask("responses", **asking("responses", content))
        assert fronted.asked()[0]["messages"][0]["content"][0]["image_url"] == {"url": URL, "detail": "low"}


async def test_a_screenshot_that_a_tool_returns(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [SAID, ANTHROPIC_IMAGES[1]]}
    asked = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [use]}]
    async with in_front_of(tmp_path, ENDED, api="anthropic") as fronted:
        answered = await fronted.ask("messages", messages=[*asked, {"role": "user", "content": [result]}], max_tokens=9)
        assert answered.status_code == 200, answered.text
        assert fronted.asked()[0]["messages"][-1] == {"role": "user", "content": [result]}


async def test_a_failed_tools_mark_goes_with_its_image(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [SAID, ANTHROPIC_IMAGES[1]]}
    asked = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [use]}]
    async with in_front_of(tmp_path, ENDED, api="anthropic") as fronted:
        await fronted.ask("messages", messages=[*asked, {"role": "user", "content": [result]}], max_tokens=9)
        told = fronted.asked()[0]["messages"][-1]["content"][0]["content"]
        assert told == [{"type": "text", "text": "Error:"}, SAID, ANTHROPIC_IMAGES[1]]


async def test_the_same_words_with_another_image_are_another_conversation(tmp_path: Path) -> None:
    hello = sse({"choices": [{"delta": {"content": "a cat"}, "finish_reason": "stop"}]})
    async with in_front_of(tmp_path, hello, hello) as fronted:
        sessions = []
        for image in OPENAI_IMAGES:
            first: Any = {"role": "user", "content": [SAID, image]}
            answer = {"role": "assistant", "content": "a cat"}
            one = await fronted.ask(messages=[first])
            two = await fronted.ask(messages=[first, answer, {"role": "user", "content": "sure?"}])
            assert one.headers["x-turnwise-session-id"] == two.headers["x-turnwise-session-id"]
            sessions.append(one.headers["x-turnwise-session-id"])
    assert len(set(sessions)) == 2


def test_a_text_model_refuses_them_in_every_format_and_in_a_tools_result(gateway: Running) -> None:
    """In the one place that knows what the model can see; the parser takes them for whoever can."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    shown = [user("look"), {"role": "assistant", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "c1", "content": [SAID, OPENAI_IMAGES[0]]}
    bodies = [(path, asking(path, content)) for path, content in GIVEN.items()]
    for path, body in [*bodies, ("chat/completions", {"messages": [*shown, result]})]:
        url = f"{gateway.url}/v1/{path}"
        refused = httpx.post(url, headers=gateway.auth, json={"model": "turnwise"} | body, timeout=60)
        assert refused.status_code == 400 and "this is a text model" in refused.text, refused.text
    assert gateway.stub.sampled == [] and gateway.journal.status.figures()["turns"]["served"] == 0
    counted = httpx.post(
        f"{gateway.url}/v1/messages/count_tokens",
        headers=gateway.auth,
        json={"model": "turnwise"} | asking("messages", GIVEN["messages"]),
        timeout=60,
    )
    assert counted.status_code == 400 and "this is a text model" in counted.text
