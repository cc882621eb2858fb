"""A simulated year of random sleep tables, zones, meetings, activity and micro-batches keeps what is promised:

never training beside a person for longer than one look and one micro-batch, and always training when it is allowed and
due, after the quiet time and two looks (one sees that they left, one that they stayed away) and a micro-batch that may
still be pausing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.schedule.year import breaches, diary, live
from turnwise.schedule.window import SensorOpinion, Window, WindowState, next_window


def test_a_year() -> None:
    kept = replace(diary(5, 365), look_s=60.0)  # on the Chatham Islands, with two naps a day and two meetings
    assert breaches(kept, live(kept)) == []


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.integers(0, 10**6))
def test_many_years(seed: int) -> None:
    kept = diary(seed, 365)
    assert breaches(kept, live(kept)) == []


def test_there_is_training_and_there_are_interruptions() -> None:
    """The promises are not kept by doing nothing, nor by nobody ever coming back."""
    kept = diary(5, 60)
    lived = live(kept)
    assert len(lived.trained) > 20
    assert any(begin < touch < end for begin, end in lived.trained for touch in kept.touches)


# Faults planted into the window: each breaks a promise that the check above would notice


def deaf_to_the_person(window: Window, now: float, readings: Any, **said: Any) -> Window:
    heard = [r for r in readings if r.opinion is not SensorOpinion.CLOSES]
    return next_window(window, now, heard, **said)


def never_opens_again(window: Window, now: float, readings: Any, **said: Any) -> Window:
    after = next_window(window, now, readings, **said)
    return window if window.state is WindowState.PAUSING else after


def waits_too_long(window: Window, now: float, readings: Any, **said: Any) -> Window:
    return next_window(window, now, readings, quiet_seconds=600.0, **said)


def trains_without_leave(window: Window, now: float, readings: Any, **said: Any) -> Window:
    after = next_window(window, now, readings, **said)
    return Window(WindowState.TRAINING) if after.state is WindowState.WINDOW_OPEN else after


@pytest.mark.parametrize(
    ("fault", "noticed"),
    [
        (deaf_to_the_person, "beside a touch"),
        (never_opens_again, "does not train"),
        (waits_too_long, "does not train"),
        (trains_without_leave, "not allowed or not due"),
    ],
)
def test_a_planted_fault_is_noticed(fault: Any, noticed: str) -> None:
    kept = diary(5, 30)
    found = breaches(kept, live(kept, fault))
    assert any(noticed in each for each in found)
