"""Which judge a configuration names, what each of them makes of a reading, and how two of them share a turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judges.test_model import TASK, good, is_hint, judging, serving
from turnwise.config import Config
from turnwise.judges.choice import SignalJudge, SignalsThenModelJudge, make_judge
from turnwise.judges.model import JudgeUnavailable, ModelJudge, make_client
from turnwise.judges.signals.reading import Reading
from turnwise.messages import saying
from turnwise.types import Proposal

CLEAR = replace(TASK, next_state=[saying("user", "No, that's wrong, you forgot the ferns!")])
PROPOSAL = Proposal("tool bash", "use ISO dates")
NOTHING = Reading("Water the plants", "Watered.", ())


class Reader:
    """Does the work right here, and knows what was asked of it."""

    def __init__(self, instead: Reading | None = None) -> None:
        self.did: set[str] = set()
        self.instead = instead

    async def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.did.add(function.__name__)
        return self.instead if function.__name__ == "read" and self.instead else function(*args, **kwargs)


def settings(home: Path, **sections: Any) -> Config:
    return Config.model_validate({"home": home, **sections})


# -- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "model", "url", "why"),
    [
        ({"kind": "vllm", "url": "http://127.0.0.1:9"}, "a/model", None, 'engine.kind = "vllm" gives no hidden states'),
        ({}, "a/model", "http://127.0.0.1:9", "the model is no local folder"),
        ({}, "a/model", None, "no engine was named"),
    ],
)
async def test_the_free_signals_alone_read_in_the_child_and_by_the_engine_of_the_configuration(
    tmp_path: Path, engine: dict[str, Any], model: str, url: str | None, why: str
) -> None:
    work = Reader()
    judge = make_judge(settings(tmp_path, engine=engine, model={"path": model}), work, url)
    assert judge.who == "signals", "before the first turn nobody knows which head it is"
    assert (await judge.judge(CLEAR)).judge == "signals"
    assert judge.who == f"signals, the words alone ({why})"
    assert work.did == {"read"}
    await judge.close()


async def test_the_model_alone_votes_on_every_turn(tmp_path: Path) -> None:
    work = Reader()
    async with serving(good) as endpoint:
        config = settings(tmp_path, judge={"kind": "model", "url": endpoint.url, "model": "judge-1"})
        judge = make_judge(config, work)
        assert (await judge.judge(CLEAR)).judge == "model"
        assert judge.who == "model judge-1"
        await judge.close()
    assert work.did == {"score_prompt", "hint_prompt", "parse_vote", "by_source"}, "foreign text is read in the child"
    assert {body["model"] for body in endpoint.bodies} == {"judge-1"}


async def test_signals_then_model_asks_the_model_where_the_signals_abstain(tmp_path: Path) -> None:
    work = Reader(NOTHING)
    async with serving(good) as endpoint:
        config = settings(
            tmp_path,
            judge={"kind": "signals-then-model", "url": endpoint.url, "model": "judge-1"},
            model={"path": "a/model"},
        )
        judge = make_judge(config, work, "http://127.0.0.1:9")
        verdict = await judge.judge(CLEAR)
        assert (verdict.judge, verdict.score, verdict.hint) == ("model", -1, "Water the ferns twice.")
        assert work.did > {"read", "score_prompt"}
        work.instead = None
        assert (await judge.judge(CLEAR)).judge == "signals"
        assert judge.who == "signals, the words alone (the model is no local folder); where they abstain, model judge-1"
        await judge.close()


# -- what the free signals say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reading", "score", "reason", "confidence"),
    [
        (NOTHING, 0, "no signal (no evidence)", 0.4),
        (replace(NOTHING, evidence="tool.tests_failed"), -1, "p=0.94: tool.tests_failed", 0.94),
        (replace(NOTHING, evidence="tool.tests_passed"), 1, "p=0.91: tool.tests_passed", 0.91),
    ],
)
async def test_a_verdict_of_the_signals_says_why_and_how_sure(
    reading: Reading, score: int, reason: str, confidence: float
) -> None:
    verdict = await SignalJudge(Reader(replace(reading, proposal=PROPOSAL))).judge(TASK)
    assert (verdict.score, verdict.reason, verdict.judge) == (score, reason, "signals")
    assert verdict.confidence == pytest.approx(confidence)
    assert (verdict.hint, verdict.proposal) == (None, PROPOSAL)
    hinted = await SignalJudge(Reader(replace(reading, report_hint="Use what is installed."))).judge(TASK)
    assert (hinted.hint, hinted.score) == ("Use what is installed.", score), "a hint counts without a score as well"


# -- both on one turn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_hint", "model_hint", "person", "hint", "proposal"),
    [
        # of two hints that of the model is taken, for it saw more
        ("Use what is installed.", "Water twice, please.", True, "Water twice, please.", None),
        ("Use what is installed.", None, True, "Use what is installed.", None),
        (None, "Water twice, please.", True, "Water twice, please.", None),
        # what the model made of content is a proposal, and no use beside a hint
        (None, "Water twice, please.", False, None, "Water twice, please."),
        ("Use what is installed.", "Water twice, please.", False, "Use what is installed.", None),
        # the free signals' own proposal where the model has none
        (None, None, False, None, "use ISO dates"),
    ],
)
async def test_hints_of_both_are_put_together(
    free_hint: str | None, model_hint: str | None, person: bool, hint: str | None, proposal: str | None
) -> None:
    def votes(body: dict[str, Any], _: int) -> str:
        if not is_hint(body):
            return "\\boxed{1}"
        return f"\\boxed{{1}} [HINT_START]{model_hint}[HINT_END]" if model_hint else "\\boxed{-1}"

    task = replace(TASK, next_state=[saying("user" if person else "tool", "blorp")])
    free = SignalJudge(Reader(replace(NOTHING, report_hint=free_hint, proposal=PROPOSAL)))
    async with serving(votes) as endpoint, judging(endpoint.url) as model:
        verdict = await SignalsThenModelJudge(free, model).judge(task)
    assert (verdict.score, verdict.judge, verdict.hint) == (1, "model", hint)
    assert (verdict.proposal.hint if verdict.proposal else None) == proposal


# -- the model's endpoint --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:8399/v1/"), ("::1", "http://[::1]:8399/v1/")]
)
def test_without_an_address_the_gateway_is_asked_with_its_token(tmp_path: Path, host: str, url: str) -> None:
    config = settings(tmp_path, server={"host": host, "port": 8399}, judge={"timeout_s": 7.5})
    config.token_path.write_text("the-token\n", encoding="utf-8")
    client = make_client(config)
    assert (str(client.base_url), client.api_key, client.timeout, client.max_retries) == (url, "the-token", 7.5, 0)


def test_a_key_in_the_environment_is_sent_in_place_of_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1")
    client = make_client(settings(tmp_path, judge={"api_key_env": "MY_KEY"}))
    assert client.api_key == "sk-1", "no token is looked for"
    away = make_client(settings(tmp_path, judge={"api_key_env": "MY_KEY", "url": "http://models.test/v1"}))
    assert (str(away.base_url), away.api_key) == ("http://models.test/v1/", "sk-1")


def test_another_endpoint_never_gets_the_gateways_token(tmp_path: Path) -> None:
    config = settings(tmp_path, judge={"url": "http://models.test/v1"})
    config.token_path.write_text("the-token", encoding="utf-8")
    assert make_client(config).api_key == "none"


def test_a_gateway_that_wants_no_token_is_asked_without_one(tmp_path: Path) -> None:
    assert make_client(settings(tmp_path, server={"auth": False})).api_key == "none"
    with pytest.raises(JudgeUnavailable, match=r"cannot read the gateway's token at .*token"):
        make_client(settings(tmp_path))
    with pytest.raises(JudgeUnavailable, match="cannot read the gateway's token"):
        ModelJudge.from_config(settings(tmp_path))
