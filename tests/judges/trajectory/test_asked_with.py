"""The judge of trajectories: whom it asks with which key, how often and with how much, and what it keeps of a reply."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judges.trajectory.test_asking import STEPS, TRAIL, endpoint, judge_at, pictures_in, refuses, says
from turnwise.config import Config, TrajectoryJudgeConfig
from turnwise.judges.model import JudgeUnavailable
from turnwise.judges.trajectory.asking import TrajectoryJudge, TrajectoryVerdict, is_loopback
from turnwise.trajectories.trail import ShownPage, Trail

PLAIN = Trail("Buy the mug.", STEPS, (ShownPage("page 1"),), "Done.")
YES = says("Verdict: SUCCESS")


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_the_details_of_an_outcome_hold_the_start_of_a_reply_and_what_it_cost() -> None:
    said = TrajectoryVerdict(False, "a" * 2000 + "b", "judge-1", 2, False, 70, 8)
    assert said.details() == {
        "judge": "judge-1",
        "verdict": False,
        "judge_said": "a" * 2000,
        "judge_tokens": [70, 8],
        "judge_pictures": 2,
    }
    assert replace(said, refused=True).details() == said.details() | {"judge_refused_pictures": True}
    assert TrajectoryVerdict(None, "", "j").details()["verdict"] is None


def test_a_reply_that_was_cut_off_has_no_verdict_yet() -> None:
    status, cut = says("It might be a SUCCESS, but")
    cut["choices"][0]["finish_reason"] = "length"
    with endpoint(lambda body: (status, cut)) as (url, _):
        said = judge_at(url).judge(PLAIN)
    assert (said.success, said.score, said.reply) == (None, 0.0, "It might be a SUCCESS, but")


def test_a_reply_is_kept_as_text_that_can_be_stored_and_without_usage_it_cost_nothing_known() -> None:
    status, said = says("half \ud83d. Verdict: SUCCESS")
    del said["usage"]
    with endpoint(lambda body: (status, said)) as (url, _):
        found = judge_at(url).judge(PLAIN)
    assert (found.success, found.reply) == (True, "half \ufffd. Verdict: SUCCESS")
    assert (found.prompt_tokens, found.completion_tokens, found.judge) == (0, 0, "judge-1")


# -- whom it asks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("judge", "at", "key", "model"),
    [
        ({"url": "A"}, "A", "sk-general", "turnwise@base"),
        ({"url": "A", "model": "m"}, "A", "sk-general", "m"),
        ({"url": "A", "model": "m", "trajectory": {"url": "B", "model": "t"}}, "B", "sk-general", "t"),
        ({"url": "A", "trajectory": {"api_key_env": "OWN_KEY"}}, "A", "sk-own", "turnwise@base"),
        ({"url": "A", "api_key_env": "NOT_SET"}, "A", "none", "turnwise@base"),
    ],
)
def test_what_is_not_said_of_trajectories_is_as_for_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, judge: dict[str, Any], at: str, key: str, model: str
) -> None:
    monkeypatch.setenv("TURNWISE_JUDGE_API_KEY", "sk-general")
    monkeypatch.setenv("OWN_KEY", "sk-own")
    with endpoint(lambda body: YES) as (one, at_one), endpoint(lambda body: YES) as (other, at_other):
        places = {"A": one, "B": other}

        def placed(section: dict[str, Any]) -> dict[str, Any]:
            return {k: placed(v) if isinstance(v, dict) else places.get(v, v) for k, v in section.items()}

        config = Config.model_validate({"home": tmp_path, "judge": placed(judge)})
        said = TrajectoryJudge.from_config(config).judge(PLAIN)
    [asked] = at_one if at == "A" else at_other
    assert (asked["model"], asked["headers"]["authorization"], said.judge) == (model, f"Bearer {key}", model)


def test_no_proxy_is_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with endpoint(lambda body: YES) as (url, _):
        assert judge_at(url).judge(PLAIN).success is True


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("http://127.0.0.1:8377/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8377/v1", True),
        ("https://models.example/v1", False),
        ("https://127.0.0.1.models.example/v1", False),
        ("models", False),
    ],
)
def test_an_address_of_this_machine_is_known(url: str, ours: bool) -> None:
    assert is_loopback(url) is ours


# -- how often and with how much ---------------------------------------------------------------------------------------


def test_waits_between_tries_double_and_vary() -> None:
    slept: list[float] = []
    settings = TrajectoryJudgeConfig()
    with endpoint(lambda body: refuses("come again", 503)) as (url, bodies):
        judge = TrajectoryJudge(url, "", "judge-1", settings, sleep=slept.append)
        with pytest.raises(JudgeUnavailable, match=r"did not answer in 3 tries: .*come again"):
            judge.judge(PLAIN)
    assert len(bodies) == 3 and len(slept) == 2
    assert 0.25 <= slept[0] < 0.75 and 0.5 <= slept[1] < 1.5
    assert bodies[0]["headers"]["authorization"] == "Bearer none"


def test_an_outage_that_ends_costs_nothing() -> None:
    left = [refuses("come again", 503), refuses("slow down", 429), YES]
    with endpoint(lambda body: left.pop(0)) as (url, _):
        assert judge_at(url).judge(PLAIN).success is True


@pytest.mark.parametrize(("pictures", "asked"), [("auto", 10), ("require", 5), ("never", 5)])
def test_what_never_fits_was_asked_with_less_each_time(pictures: str, asked: int) -> None:
    """All screenshots beside three sizes of text, the last one beside two, and five sizes of text alone."""
    long = replace(TRAIL, steps=STEPS * 40, pages=tuple(replace(p, text="word 12345 " * 9000) for p in TRAIL.pages))
    with (
        endpoint(lambda body: refuses("the prompt is TOO LONG")) as (url, bodies),
        pytest.raises(JudgeUnavailable, match="does not fit the context of judge-1"),
    ):
        judge_at(url, pictures=pictures).judge(long)
    shown = [3, 3, 3, 1, 1, 0, 0, 0, 0, 0]
    assert [pictures_in(body) for body in bodies] == (shown if pictures != "never" else [0] * 5)[:asked]
    plain = [len(body["messages"][1]["content"]) for body in bodies if not pictures_in(body)]
    assert all(more > less for more, less in itertools.pairwise(plain))


@pytest.mark.parametrize(
    ("status", "words", "asked"),
    [
        (400, "maximum CONTEXT length", 5),
        (413, "Request Entity Too Large", 5),
        (400, "no such role", 1),
        (404, "no such model; too long a name", 1),
        (401, "your context has no key", 1),
        (403, "no", 1),
    ],
)
def test_less_is_asked_where_it_was_too_much_and_nowhere_else(status: int, words: str, asked: int) -> None:
    with endpoint(lambda body: refuses(words, status)) as (url, bodies), pytest.raises(JudgeUnavailable) as caught:
        judge_at(url).judge(PLAIN)
    assert len(bodies) == asked
    assert asked == 5 or f"the trajectory judge refused the request: Error code: {status}" in str(caught.value)


@pytest.mark.parametrize(("status", "again"), [(400, True), (404, True), (415, True), (422, True), (403, False)])
def test_what_may_be_a_refusal_of_pictures_is_tried_once_more_without_them(status: int, again: bool) -> None:
    with (
        endpoint(lambda body: refuses("not with me", status)) as (url, bodies),
        pytest.raises(JudgeUnavailable, match=r"refused the request: .*not with me"),
    ):
        judge_at(url).judge(TRAIL)
    assert [pictures_in(body) for body in bodies] == ([3, 0] if again else [3])


def test_one_that_refused_text_as_well_is_shown_pictures_the_next_time() -> None:
    """It was not the pictures: nothing is known of whether it takes them."""
    left = [refuses("no"), refuses("no"), YES]
    with endpoint(lambda body: left.pop(0)) as (url, bodies):
        judge = judge_at(url)
        with pytest.raises(JudgeUnavailable):
            judge.judge(TRAIL)
        said = judge.judge(TRAIL)
    assert [pictures_in(body) for body in bodies] == [3, 0, 3]
    assert (said.pictures, said.refused) == (3, False)


def test_what_an_endpoint_says_is_cut_and_no_key_is_made_of_none() -> None:
    with (
        endpoint(lambda body: refuses("none of it " * 100, 401)) as (url, _),
        pytest.raises(JudgeUnavailable) as caught,
    ):
        judge_at(url).judge(PLAIN)
    said = str(caught.value).removeprefix("the trajectory judge refused the request: ")
    assert len(said) == 300 and "none of it" in said
    with endpoint(lambda body: refuses("sk-1 " * 100, 503)) as (url, _), pytest.raises(JudgeUnavailable) as caught:
        judge_at(url, key="sk-1").judge(PLAIN)
    assert len(str(caught.value)) < 360 and "[the key] [the key]" in str(caught.value)
