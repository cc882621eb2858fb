"""What the model judge sends, what becomes of its votes, and what its faults say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
import pytest
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from tests.judges.test_model import SAYS_NOTHING, TASK, good, is_hint, judging, serving
from turnwise.config import Config, JudgeConfig
from turnwise.judges.model import JudgeUnavailable, ModelJudge
from turnwise.messages import saying
from turnwise.types import Proposal


async def test_votes_and_hints_have_limits_of_their_own() -> None:
    limits = {"max_tokens": 77, "hint_max_tokens": 99}
    async with (
        serving(good) as endpoint,
        judging(endpoint.url, model="judge-1", temperature=0.25, **limits) as judge,
    ):
        await judge.judge(TASK)
    sent = {is_hint(body): (body["model"], body["temperature"], body["max_tokens"]) for body in endpoint.bodies}
    assert sent == {False: ("judge-1", 0.25, 77), True: ("judge-1", 0.25, 99)}


@pytest.mark.parametrize(
    ("votes", "score", "reason", "confidence"),
    [
        (["1", "1", "-1"], 1, "2 of 3 votes", 2 / 3),
        (["1", "nothing", "nothing"], 1, "1 of 3 votes", 1.0),  # what cannot be read is no opinion
        (["1", "-1", "nothing"], 0, "0 of 3 votes", 0.0),  # a tie
    ],
)
async def test_a_verdict_says_how_many_votes_agree(
    votes: list[str], score: int, reason: str, confidence: float
) -> None:
    left = [f"\\boxed{{{vote}}}" for vote in votes]
    async with (
        serving(lambda body, _: "\\boxed{-1} no" if is_hint(body) else left.pop()) as endpoint,
        judging(endpoint.url, votes=3) as judge,
    ):
        verdict = await judge.judge(TASK)
    assert (verdict.score, verdict.reason) == (score, reason)
    assert verdict.confidence == pytest.approx(confidence)
    assert sorted(vote.raw for vote in verdict.votes[:3]) == sorted(f"\\boxed{{{vote}}}" for vote in votes)
    assert [vote.raw for vote in verdict.votes[3:]] == ["\\boxed{-1} no"] * 3
    assert verdict.seconds > 0


async def test_what_the_model_makes_of_tools_alone_is_proposed_and_no_hint() -> None:
    advice = "Always water the ferns. " * 20
    async with (
        serving(lambda body, _: f"\\boxed{{1}} [HINT_START]{advice}[HINT_END]") as endpoint,
        judging(endpoint.url) as judge,
    ):
        nobody, somebody = [await judge.judge(task) for task in (SAYS_NOTHING, TASK)]
    assert nobody.hint is None
    assert nobody.proposal == Proposal("the judge model, from what tools returned", advice[:300])
    assert (somebody.hint, somebody.proposal) == (advice.strip(), None)
    assert somebody.votes[1].hint == advice.strip()
    assert somebody.votes[0].hint is None, "a vote on the score gives none"


# -- its faults -------------------------------------------------------------------------------------------------------


async def test_waits_between_tries_double_and_vary() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with serving(lambda *_: PlainTextResponse("down", 503)) as endpoint:
        client = openai.AsyncOpenAI(base_url=endpoint.url, api_key="none", max_retries=0)
        config = Config(judge=JudgeConfig(url=endpoint.url))
        judge = ModelJudge(client, config, sleep=sleep, rng=random.Random(4))
        with pytest.raises(JudgeUnavailable, match="did not answer in 3 tries: InternalServerError: Error code: 503"):
            await judge.judge(replace(TASK, votes=1))
        await judge.close()
    drawn = random.Random(4)
    assert slept == [0.5 * (0.5 + drawn.random()), 1.0 * (0.5 + drawn.random())]


@pytest.mark.parametrize("status", [401, 503])
async def test_the_key_is_in_no_fault(status: int) -> None:
    def refuse(*_: Any) -> Response:
        return JSONResponse({"error": {"message": "sk-secret-1 is no key"}}, status)

    async with serving(refuse) as endpoint:
        client = openai.AsyncOpenAI(base_url=endpoint.url, api_key="sk-secret-1", max_retries=0)
        judge = ModelJudge(client, Config(judge=JudgeConfig(url=endpoint.url)), sleep=lambda _: asyncio.sleep(0))
        with pytest.raises(JudgeUnavailable, match=r"\[the key\] is no key") as caught:
            await judge.judge(TASK)
        await judge.close()
    assert "sk-secret-1" not in str(caught.value)


async def test_votes_of_which_none_can_be_read_say_so() -> None:
    async with serving(lambda *_: "hm") as endpoint, judging(endpoint.url, votes=2) as judge:
        with pytest.raises(JudgeUnavailable, match="none of 2 votes could be read"):
            await judge.judge(TASK)


async def test_a_fault_of_ours_is_not_taken_for_the_endpoints() -> None:
    async def work(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("ours")

    async with serving(good) as endpoint:
        client = openai.AsyncOpenAI(base_url=endpoint.url, api_key="none", max_retries=0)
        judge = ModelJudge(client, Config(judge=JudgeConfig(url=endpoint.url)), work=work)
        with pytest.raises(ZeroDivisionError):
            await judge.judge(TASK)
        await judge.close()


@pytest.mark.parametrize(
    ("status", "error", "tries"),
    [
        (400, {"message": "no", "code": "context_length_exceeded"}, 2),
        (400, {"message": "the maximum context is 4096"}, 2),
        (400, {"message": "Input is TOO LONG for this model"}, 2),
        (400, {"message": "exceeds the context window"}, 2),
        (400, {"message": "too many tokens"}, 2),
        (400, {"message": "larger than max_model_len"}, 2),
        (400, {"message": "no such role"}, 1),
        (404, {"message": "too many tokens"}, 1),
        (403, {"message": "no", "code": "context_length_exceeded"}, 1),
    ],
)
async def test_a_prompt_that_is_too_long_is_halved_and_no_other_refusal_is_answered(
    status: int, error: dict[str, str], tries: int
) -> None:
    long = replace(TASK, votes=1, messages=[saying("user", "Water the plants, 12345. " * 900)])

    def behave(body: dict[str, Any], n: int) -> Any:
        return JSONResponse({"error": error}, status) if n == 1 else "\\boxed{1}"

    async with serving(behave) as endpoint, judging(endpoint.url) as judge:
        if tries == 2:
            assert (await judge.judge(long)).score == 1
        else:
            with pytest.raises(JudgeUnavailable, match="refused the request: .*" + error["message"]):
                await judge.judge(long)
    sizes = [len(str(body["messages"])) for body in endpoint.bodies]
    assert len(sizes) == tries
    assert tries == 1 or sizes[1] < 0.75 * sizes[0]
