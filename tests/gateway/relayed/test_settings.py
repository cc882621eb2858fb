"""What a client may ask of an upstream besides tools: told to it in its words, refused by name, or only recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.relayed.test_upstream import DONE, in_front_of
from tests.support.raw_http import sse
from turnwise.engines.upstream.anthropic_api import DEFAULT_MAX_TOKENS

PAGE = Path(__file__).parents[3] / "docs" / "engines.md"
ENDED = sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
SAMPLING: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 5}
OPENAI_OWN = {"model", "messages", "stream", "stream_options"}
ANTHROPIC_OWN = {"model", "messages", "stream"}


@pytest.mark.parametrize(
    ("path", "fields", "openai", "anthropic"),
    [
        (
            "chat/completions",
            SAMPLING | {"stop": "END", "max_tokens": 7},
            SAMPLING | {"stop": ["END"], "max_tokens": 7},
            SAMPLING | {"stop_sequences": ["END"], "max_tokens": 7},
        ),
        ("chat/completions", {"max_completion_tokens": 7}, {"max_completion_tokens": 7}, {"max_tokens": 7}),
        ("chat/completions", {}, {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        ("chat/completions", {"top_k": -1}, {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        ("responses", {"top_k": 0, "max_output_tokens": 7}, {"max_tokens": 7}, {"max_tokens": 7}),
        ("responses", SAMPLING, SAMPLING, SAMPLING | {"max_tokens": DEFAULT_MAX_TOKENS}),
        (
            "messages",
            SAMPLING | {"stop_sequences": ["a", "b"], "max_tokens": 7},
            SAMPLING | {"stop": ["a", "b"], "max_tokens": 7},
            SAMPLING | {"stop_sequences": ["a", "b"], "max_tokens": 7},
        ),
    ],
)
async def test_the_settings_reach_the_upstream_in_its_words(
    tmp_path: Path, path: str, fields: dict[str, Any], openai: dict[str, Any], anthropic: dict[str, Any]
) -> None:
    for api, said, own, told in (
        ("openai", DONE, OPENAI_OWN, openai),
        ("anthropic", ENDED, ANTHROPIC_OWN, anthropic),
    ):
        async with in_front_of(tmp_path / api, said, api=api) as fronted:
            answered = await fronted.ask(path, **fields)
            assert answered.status_code == 200, answered.text
            (body,) = fronted.asked()
        assert {name: body[name] for name in body.keys() - own} == told


async def test_a_seed_is_told_or_refused_by_name(tmp_path: Path) -> None:
    async with in_front_of(tmp_path / "openai", DONE) as fronted:
        await fronted.ask(seed=3)
        assert fronted.asked()[0]["seed"] == 3
    async with in_front_of(tmp_path / "anthropic", ENDED, api="anthropic") as fronted:
        refused = await fronted.ask(seed=3)
        assert (refused.status_code, fronted.asked()) == (400, [])
        assert "seed" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value"), [("n", 2), ("logit_bias", {"5": 1}), ("frequency_penalty", 0.5), ("top_logprobs", 3)]
)
async def test_what_is_not_passed_on_is_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    async with in_front_of(tmp_path, DONE) as fronted:
        refused = await fronted.ask(**{name: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
        assert fronted.asked() == []


RECORDED: list[tuple[str, str, Any]] = [
    ("chat/completions", "user", "me"),
    ("chat/completions", "metadata", {"a": "b"}),
    ("chat/completions", "service_tier", "flex"),
    ("responses", "store", True),
    ("messages", "thinking", {"type": "enabled", "budget_tokens": 1024}),
]


@pytest.mark.parametrize(("path", "name", "value"), RECORDED)
async def test_what_only_stands_in_the_record_is_named_in_the_page(
    tmp_path: Path, path: str, name: str, value: Any
) -> None:
    async with in_front_of(tmp_path, DONE) as fronted:
        limit = {"max_tokens": 9} if path == "messages" else {}
        answered = await fronted.ask(path, **{name: value}, **limit)
        assert answered.status_code == 200
        assert name not in fronted.asked()[0]
    upstream = PAGE.read_text(encoding="utf-8").partition("## Upstream")[2]
    assert f"`{name}`" in upstream
    assert f"{DEFAULT_MAX_TOKENS} tokens" in upstream
