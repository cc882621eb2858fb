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
        (  # it is told no earlier thoughts, and some refuse the field
            "chat/completions",
            {"chat_template_kwargs": {"preserve_thinking": True}},
            {},
            {"max_tokens": DEFAULT_MAX_TOKENS},
        ),
        (
            "chat/completions",
            {"chat_template_kwargs": {"preserve_thinking": True, "enable_thinking": False}, "max_tokens": 7},
            {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 7},
            {"max_tokens": 7},
        ),
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


WITHOUT_A_WORD: dict[str, Any] = {
    "seed": 3,
    "frequency_penalty": 0.3,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.1,
    "min_p": 0.1,
    "verbosity": "low",
}
"""Settings that OpenAI's wire has, or servers beside OpenAI's own, and Anthropic's has not."""


async def test_penalties_and_the_like_are_told_in_openai_words(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, DONE) as fronted:
        answered = await fronted.ask(**WITHOUT_A_WORD)
        assert "x-turnwise-ignored" not in answered.headers
        assert {name: fronted.asked()[0].get(name) for name in WITHOUT_A_WORD} == WITHOUT_A_WORD


async def test_penalties_that_change_nothing_are_not_told(tmp_path: Path) -> None:
    neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0}
    for api, said in (("openai", DONE), ("anthropic", ENDED)):
        async with in_front_of(tmp_path / api, said, api=api) as fronted:
            answered = await fronted.ask(**neutral)
            assert (answered.status_code, "x-turnwise-ignored" in answered.headers) == (200, False)
            assert not neutral.keys() & fronted.asked()[0].keys()


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_what_an_upstream_has_no_word_for_is_left_out_and_named(tmp_path: Path, path: str) -> None:
    given = WITHOUT_A_WORD | ({} if path == "chat/completions" else {"text": {"verbosity": "low"}})
    if path == "responses":
        del given["verbosity"]
    async with in_front_of(tmp_path, ENDED, api="anthropic") as fronted:
        answered = await fronted.ask(path, **given)
        assert answered.status_code == 200, answered.text
        assert set(answered.headers["x-turnwise-ignored"].split(", ")) == set(WITHOUT_A_WORD)
        (told,) = fronted.asked()
        assert not WITHOUT_A_WORD.keys() & told.keys()
        row = fronted.journal.lookups.turn(answered.headers["x-turnwise-turn-id"])
        assert row is not None
        assert set(row.params["ignored"]) == set(WITHOUT_A_WORD)


@pytest.mark.parametrize("name", WITHOUT_A_WORD)
async def test_a_strict_server_refuses_it_by_name(tmp_path: Path, name: str) -> None:
    async with in_front_of(tmp_path, ENDED, api="anthropic", strict=True) as fronted:
        refused = await fronted.ask(**{name: WITHOUT_A_WORD[name]})
        assert (refused.status_code, fronted.asked()) == (400, [])
        assert refused.json()["error"]["param"] == name


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


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
async def test_the_beginning_of_an_answer_is_told_as_the_last_message(tmp_path: Path, path: str) -> None:
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The sky is"}]
    for api, said in (("openai", DONE), ("anthropic", ENDED)):
        async with in_front_of(tmp_path / api, said, api=api) as fronted:
            answered = await fronted.ask(path, messages=begun, max_tokens=9)
            assert answered.status_code == 200, answered.text
            last = fronted.asked()[0]["messages"][-1]
        assert last["role"] == "assistant"
        assert last["content"] in ("The sky is", [{"type": "text", "text": "The sky is"}])


async def test_instructions_alone_are_told(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, DONE) as fronted:
        answered = await fronted.ask(messages=[{"role": "system", "content": "Greet."}])
        assert answered.status_code == 200, answered.text
        assert fronted.asked()[0]["messages"] == [{"role": "system", "content": "Greet."}]


async def test_vllms_grammars_are_told_to_chat_completions_alone(tmp_path: Path) -> None:
    given = {"choice": ["yes", "no"]}
    async with in_front_of(tmp_path / "openai", DONE) as fronted:
        assert (await fronted.ask(structured_outputs=given)).status_code == 200
        assert fronted.asked()[0]["structured_outputs"] == given
    async with in_front_of(tmp_path / "anthropic", ENDED, api="anthropic") as fronted:
        assert (await fronted.ask(structured_outputs=given)).status_code == 400
