"""Words that an upstream's model refuses: asked again where the client never chose them, passed on where it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.relayed.test_upstream import DONE, in_front_of
from tests.support.raw_http import Part, answer
from turnwise.engines.upstream.client import ChatParams
from turnwise.engines.upstream.refused_words import REMEMBERED, RefusedWords


def refusal(message: str, param: str | None = None, code: str | None = None) -> list[Part]:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return answer(400, {"error": error})


LIMIT = refusal(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)
LIMIT_IN_WORDS = refusal("Unrecognized request argument supplied: max_tokens")
EFFORT = refusal("Unrecognized request argument supplied: reasoning_effort")
EFFORT_VALUE = refusal(
    "Unsupported value: 'reasoning_effort' does not support 'max' with this model.",
    "reasoning_effort",
    "unsupported_value",
)
WORDS = ("max_tokens", "max_completion_tokens", "reasoning_effort")
CLAUDE: dict[str, Any] = {"max_tokens": 9, "output_config": {"effort": "max"}}
CODEX: dict[str, Any] = {"max_output_tokens": 9, "reasoning": {"effort": "max"}}
FIRST = {"max_tokens": 9, "reasoning_effort": "max"}
OTHER_LIMIT = {"max_completion_tokens": 9, "reasoning_effort": "max"}
NO_EFFORT = {"max_tokens": 9}


def words(body: dict[str, Any]) -> dict[str, Any]:
    return {word: body[word] for word in WORDS if word in body}


@pytest.mark.parametrize(("path", "fields"), [("messages", CLAUDE), ("responses", CODEX)])
@pytest.mark.parametrize(
    ("refusals", "told"),
    [
        ([LIMIT], [FIRST, OTHER_LIMIT, OTHER_LIMIT]),
        ([LIMIT_IN_WORDS], [FIRST, OTHER_LIMIT, OTHER_LIMIT]),
        ([EFFORT], [FIRST, NO_EFFORT, NO_EFFORT]),
        ([EFFORT_VALUE], [FIRST, NO_EFFORT, NO_EFFORT]),
        ([LIMIT, EFFORT], [FIRST, OTHER_LIMIT, *[{"max_completion_tokens": 9}] * 2]),
    ],
)
async def test_a_model_is_asked_again_without_a_word_that_its_client_never_chose(
    tmp_path: Path, path: str, fields: dict[str, Any], refusals: list[Any], told: list[dict[str, Any]]
) -> None:
    async with in_front_of(tmp_path, *refusals, DONE) as fronted:
        for _ in range(2):
            answered = await fronted.ask(path, **fields)
            assert answered.status_code == 200, answered.text
        assert [words(body) for body in fronted.asked()] == told


async def test_another_model_and_another_effort_are_asked_as_they_were(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, EFFORT_VALUE, DONE) as fronted:
        await fronted.ask("messages", **CLAUDE)
        await fronted.ask("messages", **CLAUDE | {"output_config": {"effort": "low"}})
        await fronted.ask("messages", **CLAUDE | {"model": "other"})
        assert [body.get("reasoning_effort") for body in fronted.asked()] == ["max", None, "low", "max"]


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("chat/completions", {"max_tokens": 9}, LIMIT),
        ("chat/completions", {"max_completion_tokens": 9}, LIMIT_IN_WORDS),
        ("chat/completions", {"reasoning_effort": "max"}, EFFORT),
        ("chat/completions", {"reasoning_effort": "max"}, EFFORT_VALUE),
        ("messages", CLAUDE, refusal("max_tokens is too large: 9.", "max_tokens", "invalid_value")),
        ("messages", CLAUDE, refusal("'temperature' is not supported with this model.", "temperature")),
        ("messages", CLAUDE, answer(500, b"max_tokens, reasoning_effort: unsupported", "text/plain")),
    ],
)
async def test_what_the_client_chose_and_any_other_refusal_is_passed_on(
    tmp_path: Path, path: str, fields: dict[str, Any], said: list[Part]
) -> None:
    async with in_front_of(tmp_path, said) as fronted:
        refused = await fronted.ask(path, **fields)
        assert refused.status_code in (400, 500)
        assert len(fronted.asked()) == 1


async def test_a_model_that_refuses_the_other_word_too_is_asked_no_third_time(tmp_path: Path) -> None:
    both = refusal("Unsupported parameter: 'max_completion_tokens'; 'max_tokens' is unsupported.")
    async with in_front_of(tmp_path, LIMIT, both) as fronted:
        assert (await fronted.ask("responses", max_output_tokens=9)).status_code == 400
        assert len(fronted.asked()) == 2


def test_only_so_many_words_are_kept_in_mind() -> None:
    refused = RefusedWords()
    params = ChatParams(max_tokens=9, translated=frozenset({"max_tokens"}))
    for number in range(REMEMBERED + 1):
        assert refused.learn(params, f"model {number}", httpx.Response(400, text="unsupported: max_tokens"))
    keys = [refused.fitting(params, f"model {number}").max_tokens_key for number in (0, 1, REMEMBERED)]
    assert keys == ["max_tokens", "max_completion_tokens", "max_completion_tokens"]
