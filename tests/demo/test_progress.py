"""The stages of the demo: named, with the time left from the pace so far, in plain lines where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from turnwise.demo.progress import Stages


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_follows_the_pace_and_the_weights():
    told, clock = io.StringIO(), Clock()
    with Stages(Console(file=told, width=120), {"first": 10, "second": 30}, clock=clock) as stages:
        with stages.stage("first", 4) as advance:
            for done in range(4):
                clock.now += 5  # twice as slow as expected
                advance(0.25 * done)
        with stages.stage("second"):
            clock.now += 60
    lines = told.getvalue().splitlines()
    assert "demo: first · 1/4 · score 0.00 · 1:15 left" in lines
    assert "demo: first · done in 20 s · 1:00 left" in lines
    assert lines[-1] == "demo: second · done in 60 s · 0:00 left"


def test_a_terminal_gets_bars_with_the_stage_and_the_score():
    told = io.StringIO()
    console = Console(file=told, width=120, force_terminal=True)
    with Stages(console, {"examination": 10}) as stages, stages.stage("examination", 2) as advance:
        advance(None)
        advance(0.75)
    assert "examination" in told.getvalue() and "score 0.75" in told.getvalue() and "the whole demo" in told.getvalue()
