"""The demo against the real gateway and journal. Only the engine is a stub, and nothing judges or trains."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import Running
from turnwise.demo import arms, play
from turnwise.demo.play import DemoOptions, run_demo
from turnwise.demo.talk import at_once
from turnwise.errors import ConfigError, TurnwiseError


@pytest.fixture
def language(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the scoring of likelihoods, which has its own test with the real model."""
    asked: list[str] = []

    def mean_nll(groups: dict[str, object], model: str) -> dict[str, float]:
        asked.extend(groups)
        return dict.fromkeys(groups, 1.0)

    monkeypatch.setattr(play, "mean_nll", mean_nll)
    monkeypatch.setattr(arms, "SETTLE_LIMIT_S", 1.0)  # nothing judges here, so the wait for it is in vain
    return asked


def options(gateway: Running, out: Path, **changes: object) -> DemoOptions:
    given = {
        "persona": "student",
        "quick": True,
        "interactions": 5,
        "out": out,
        "url": gateway.url,
        "token": gateway.admin["Authorization"].removeprefix("Bearer "),
    } | changes
    return DemoOptions(**given)  # pyright: ignore[reportArgumentType]


def echo(prompt: str) -> str:
    """An answer with the question's numbers in it, wordy enough that the student is not content."""
    question = prompt.rsplit("<|im_start|>user\n", 1)[-1].split("<|im_end|>")[0]
    return f"Certainly, here is the solution: {question}"


def test_a_run_examines_talks_and_reports(gateway: Running, tmp_path: Path, language: list[str]):
    gateway.stub.reply = echo
    told = io.StringIO()
    result = run_demo(options(gateway, tmp_path / "out"), Console(file=told, width=160))

    assert result.failed_requests == 0
    assert result.notes == ["judge and trainer were not done 1 s after conversation 5"]
    assert result.faults == ["no policy version was published, so nothing was learned"]
    assert result.base.n == result.final.n == result.control.n == 8
    assert {"base", "base/wish", "final/wish", "control/wish", "reference/wish"} <= set(language)
    turns = gateway.journal.status.figures()["turns"]
    assert gateway.journal.status.figures()["excluded"]["side turn"] == 4 * 8  # base, wish, control, final
    assert turns["judging"] == 5 * 2  # each conversation: two answers with a next state, and one to the last word
    assert gateway.journal.status.figures()["sessions"]["open"] == 4 * 8  # every conversation was closed
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["interactions"] == 5 and len(written["answers"]) == 8 and len(written["curve"]) == 1
    played = [json.loads(line) for line in (tmp_path / "out" / "conversations.jsonl").read_text().splitlines()]
    assert [len(c["messages"]) for c in played] == [5] * 5
    assert "nothing was learned" in told.getvalue() and "examination after" in told.getvalue()


def test_the_teacher_grades_pupils_and_nothing_is_counted_as_a_right_result(
    gateway: Running, tmp_path: Path, language: list[str]
):
    gateway.stub.reply = lambda prompt: "Correct."
    result = run_demo(options(gateway, tmp_path / "out", persona="teacher"), Console(file=io.StringIO()))
    assert result.final.correct is None and result.final.n == 8
    first = json.loads((tmp_path / "out" / "conversations.jsonl").read_text().splitlines()[0])
    assert first["replies"][0]["aspects"] and not first["replies"][0]["satisfied"]


def test_a_satisfied_person_says_so_and_leaves(gateway: Running, tmp_path: Path, language: list[str]):
    def plain(prompt: str) -> str:
        question = prompt.rsplit("<|im_start|>user\n", 1)[-1].split("<|im_end|>")[0]
        numbers = " and ".join(re.findall("[0-9]+", question)[:4])
        return f"It comes out of {numbers}, and that is really all there is to it."

    gateway.stub.reply = plain
    run_demo(options(gateway, tmp_path / "out"), Console(file=io.StringIO()))
    played = [json.loads(line) for line in (tmp_path / "out" / "conversations.jsonl").read_text().splitlines()]
    assert [[reply["satisfied"] for reply in c["replies"]] for c in played] == [[True]] * 5
    assert [len(c["messages"]) for c in played] == [3] * 5


def test_failed_requests_are_counted_and_are_a_fault(gateway: Running, tmp_path: Path, language: list[str]):
    gateway.config.server.__dict__["engine_return_s"] = 1.0  # an engine that breaks off is waited for no longer
    unlucky: list[str] = []

    def failing(prompt: str) -> str:
        unlucky.append(prompt)
        if prompt == unlucky[0]:  # and again, should the gateway try once more
            raise RuntimeError("the engine fails on this one")
        return echo(prompt)

    gateway.stub.reply = failing
    result = run_demo(options(gateway, tmp_path / "out"), Console(file=io.StringIO()))
    assert result.failed_requests >= 1
    assert result.base.n == 7
    assert any("requests failed" in fault for fault in result.faults)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"persona": "pirate"}, "no persona 'pirate'"),
        ({"simulator_url": "http://127.0.0.1:1/v1"}, "go together"),
        ({"url": "http://127.0.0.1:1"}, "needs the server's admin --token"),
        ({"interactions": 0}, "at least 1"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(tmp_path: Path, changes: dict[str, object], said: str):
    with pytest.raises(ConfigError, match=said):
        run_demo(DemoOptions(out=tmp_path / "out", **changes))  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "out").exists()


def test_a_second_demo_in_the_same_folder_is_refused(gateway: Running, tmp_path: Path, language: list[str]):
    entered, go_on = threading.Event(), threading.Event()

    def slow(prompt: str) -> str:
        entered.set()
        go_on.wait(30)
        return echo(prompt)

    gateway.stub.reply = slow
    first = threading.Thread(
        target=run_demo, args=(options(gateway, tmp_path / "out", interactions=1), Console(file=io.StringIO()))
    )
    first.start()
    assert entered.wait(60)
    try:
        with pytest.raises(ConfigError, match="another demo"):
            run_demo(options(gateway, tmp_path / "out"), Console(file=io.StringIO()))
    finally:
        go_on.set()
        first.join(120)
    assert not first.is_alive()


async def test_jobs_keep_their_order_and_their_limit():
    running, most = 0, 0

    def job(n: int):
        async def run() -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return n

        return run

    assert await at_once([job(n) for n in range(9)], 3) == list(range(9))
    assert most == 3


async def test_an_error_of_a_job_is_raised_as_it_is():
    async def fail() -> None:
        raise TurnwiseError("the simulator's model failed")

    with pytest.raises(TurnwiseError, match="simulator"):
        await at_once([fail, fail], 2)
