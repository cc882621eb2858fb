"""The watch over sensors: it shuts at once, opens when all is quiet, and outlives sensors that hang or fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.servers import wait_until
from turnwise.errors import JournalUnavailable
from turnwise.schedule.sensor import Sensor
from turnwise.schedule.traffic import LastRequest
from turnwise.schedule.watch import HANGS_S, HEARTBEAT_S, WindowWatch
from turnwise.schedule.window import QUIET_SECONDS, SensorOpinion, SensorReading, WindowState


class Fixed:
    """A sensor that says what a test wants."""

    name, every_s = "input", 0.01

    def __init__(self, opinion: SensorOpinion) -> None:
        self.opinion, self.asked = opinion, 0

    def read(self, now: datetime) -> SensorReading:
        assert now.tzinfo is not None
        self.asked += 1
        return SensorReading(self.name, self.opinion, f"It is {now:%H:%M}.")


class Raises(Fixed):
    def read(self, now: datetime) -> SensorReading:
        raise OSError("no display")


class Hangs(Fixed):
    def __init__(self) -> None:
        super().__init__(SensorOpinion.OPENS)
        self.go_on = threading.Event()

    def read(self, now: datetime) -> SensorReading:
        self.go_on.wait(60)
        return super().read(now)


class Home:
    """A watch with a clock and traffic of a test's own."""

    def __init__(self, *sensors: Sensor, say: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.now, self.last = 1000.0, LastRequest(0, 1e6)
        self.rows: list[dict[str, Any]] = []
        midnight = datetime(2026, 11, 23, tzinfo=UTC)
        self.watch = WindowWatch(sensors, self.read, say or self.rows.append, 10.0, lambda: midnight, lambda: self.now)

    def read(self) -> LastRequest | None:
        return self.last

    def after(self, seconds: float, *, due: bool = True, stopped: bool = True) -> Any:
        self.now += seconds
        return self.watch.look(due=due, stopped=stopped)


def test_it_opens_after_quiet_and_a_request_shuts_it_at_the_next_look() -> None:
    home = Home()
    assert not home.after(0).open
    assert home.after(QUIET_SECONDS, due=False).window.state is WindowState.WINDOW_OPEN
    assert home.after(1, stopped=False).may_train
    home.last = LastRequest(1, 0.0)
    shut = home.after(0.4, stopped=False)
    assert shut.window.state is WindowState.PAUSING and not shut.may_train and not shut.open
    assert "is being answered" in shut.why
    assert home.after(0.4).window.state is WindowState.IDLE_WAIT


def test_it_asks_a_few_times_a_second_and_no_more() -> None:
    home = Home()
    asked: list[int] = []
    home.watch._last_request = lambda: asked.append(1)  # type: ignore[assignment, func-returns-value]
    for _ in range(100):
        home.after(0.01, stopped=False)
    assert 3 <= len(asked) <= 5


def test_a_sensor_that_closes_wins() -> None:
    sensor = Fixed(SensorOpinion.CLOSES)
    home = Home(sensor)
    wait_until(lambda: sensor.asked)
    wait_until(lambda: home.after(1).readings[1].opinion is SensorOpinion.CLOSES)
    assert not home.after(10 * QUIET_SECONDS).open
    home.watch.close()


def test_a_sensor_that_raises_has_no_opinion_and_says_why() -> None:
    home = Home(Raises(SensorOpinion.CLOSES))
    wait_until(lambda: "no display" in home.after(1).readings[1].why)
    assert home.after(1).readings[1].opinion is SensorOpinion.NONE
    assert home.after(QUIET_SECONDS).open, "others decide"
    home.watch.close()


def test_a_sensor_that_hangs_holds_up_nobody_and_what_it_said_grows_old() -> None:
    sensor = Hangs()
    home = Home(sensor)
    assert "not answered yet" in home.after(0).readings[1].why
    sensor.go_on.set()
    wait_until(lambda: home.after(0.3).readings[1].opinion is SensorOpinion.OPENS)
    sensor.go_on.clear()
    home.watch.close()  # the thread reads no more
    wait_until(lambda: not any(t.name == "sensor input" and t.is_alive() and sensor.go_on.is_set()
                               for t in threading.enumerate()))  # fmt: skip
    old = home.after(HANGS_S + 100).readings[1]
    assert old.opinion is SensorOpinion.NONE and "no answer for" in old.why
    sensor.go_on.set()


def test_traffic_that_cannot_be_read_shuts_the_window() -> None:
    home = Home()
    home.after(0)
    assert home.after(QUIET_SECONDS).open

    def fails() -> LastRequest | None:
        raise JournalUnavailable("the journal is locked")

    home.watch._last_request = fails
    shut = home.after(1)
    assert not shut.open and "the journal is locked" in shut.why


def test_what_it_sees_is_written_when_it_changes_and_as_a_sign_of_life() -> None:
    home = Home()
    home.after(0)
    assert [row["window"] for row in home.rows] == ["idle-wait"]
    assert home.rows[0]["readings"][0]["sensor"] == "gateway"
    home.after(HEARTBEAT_S / 2)
    assert len(home.rows) == 1
    home.after(HEARTBEAT_S / 2)
    assert len(home.rows) == 2
    home.after(QUIET_SECONDS)
    home.after(1, stopped=False)
    home.last = LastRequest(0, 1.0)
    home.after(1, stopped=False)
    assert [row["window"] for row in home.rows[2:]] == ["training", "pausing"]


def test_a_full_disk_does_not_stop_it() -> None:
    def full(row: dict[str, Any]) -> None:
        raise JournalUnavailable("the disk is full")

    home = Home(say=full)
    home.after(0)
    assert home.after(QUIET_SECONDS).may_train


@pytest.mark.parametrize("due", [True, False])
def test_nothing_is_open_in_the_first_minute(due: bool) -> None:
    assert not Home().after(0, due=due).open
