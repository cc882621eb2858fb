"""Watches the sensors and keeps the window for whoever trains.

Each sensor is read on a thread of its own, so that one which hangs holds up nobody. The gateway's traffic is read when
the window is looked at: it must shut it at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal.journal import Journal
from turnwise.schedule import traffic
from turnwise.schedule.sensor import Sensor, sensors_of
from turnwise.schedule.traffic import LastRequest
from turnwise.schedule.window import NOT_KNOWN, SensorOpinion, SensorReading, Window, WindowState, next_window

log = logging.getLogger(__name__)

STATUS_KEY = "schedule"
"""Under which the window and its readings stand among what loops say of themselves."""
LOOKED_EVERY_S = 0.3
HEARTBEAT_S = 5.0
HANGS_S = 60.0
"""Silence of a sensor, beyond the time between two readings, after which what it said before counts no longer."""


@dataclass(frozen=True)
class Outlook:
    """The window as it is now, and what each sensor said."""

    window: Window
    readings: list[SensorReading]

    @property
    def may_train(self) -> bool:
        """Whether another micro-batch may begin."""
        return self.window.may_train

    @property
    def open(self) -> bool:
        """Whether it may be looked for something to train."""
        return self.window.state in (WindowState.WINDOW_OPEN, WindowState.TRAINING)

    @property
    def why(self) -> str:
        """Why the window is open or shut, by those sensors that say so."""
        said = {o: [r.why for r in self.readings if r.opinion is o] for o in SensorOpinion}
        if closes := said[SensorOpinion.CLOSES]:
            return " ".join(closes)
        if opens := said[SensorOpinion.OPENS]:
            return " ".join(opens) if self.open else f"{' '.join(opens)} It opens a minute after that."
        return " ".join(said[SensorOpinion.NONE]) or "No sensor says that you are away."


class WindowWatch:
    """The window of one trainer.

    `last_request` and `say` (the status row) are the journal's; `quiet_min` as in the schedule. `clock` is the time of
    day for the sensors, `monotonic` gives seconds that never go back.
    """

    def __init__(
        self,
        sensors: Sequence[Sensor],
        last_request: Callable[[], LastRequest | None],
        say: Callable[[dict[str, Any]], None],
        quiet_min: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._last_request, self._say, self._monotonic = last_request, say, monotonic
        self._quiet_min = quiet_min
        self._readers = [_Reader(sensor, clock, monotonic) for sensor in sensors]
        self._outlook = Outlook(Window(), [])
        self._asked: tuple[bool, bool] | None = None
        self._looked_at = self._said_at = float("-inf")
        self._said: Any = None
        self._since = 0.0

    @classmethod
    def of(cls, config: Config, journal: Journal) -> WindowWatch:
        """The watch of a home's trainer."""

        def say(data: dict[str, Any]) -> None:
            journal.status.say(STATUS_KEY, data)

        return cls(sensors_of(config), lambda: traffic.last_request(journal), say, config.schedule.quiet_min)

    def look(self, *, due: bool, stopped: bool) -> Outlook:
        """The window now. `due` and `stopped` as `next_window` has them. Sensors are asked a few times a second."""
        now = self._monotonic()
        if self._asked == (due, stopped) and 0 <= now - self._looked_at < LOOKED_EVERY_S:
            return self._outlook
        self._asked, self._looked_at = (due, stopped), now
        readings = [self._traffic(), *(reader.reading(now) for reader in self._readers)]
        window = next_window(self._outlook.window, now, readings, due=due, stopped=stopped)
        self._outlook = Outlook(window, readings)
        self._tell(now)
        return self._outlook

    def close(self) -> None:
        """Let the sensors' threads end; one that hangs is left behind."""
        for reader in self._readers:
            reader.close()

    def _traffic(self) -> SensorReading:
        try:
            return traffic.reading(self._last_request(), self._quiet_min)
        except TurnwiseError as e:  # better to stand than to work beside a person who cannot be seen
            return SensorReading(traffic.NAME, SensorOpinion.CLOSES, f"Whether somebody talks cannot be read: {e}")

    def _tell(self, now: float) -> None:
        """Say in the journal what is seen: when it changes, and as a sign of life."""
        state = self._outlook.window.state
        seen = (state, [(r.sensor, r.opinion) for r in self._outlook.readings])
        if self._said is None or self._said[0] != state:
            self._since = time.time()
        if seen == self._said and now - self._said_at < HEARTBEAT_S:
            return
        self._said, self._said_at = seen, now
        readings = [asdict(reading) for reading in self._outlook.readings]
        try:
            self._say({"window": state, "since": self._since, "why": self._outlook.why, "readings": readings})
        except TurnwiseError as e:  # a full disk, a lock: it is only said
            log.debug("what the schedule sees could not be written down: %s", e)


class _Reader:
    """Reads one sensor again and again, on a daemon thread."""

    def __init__(self, sensor: Sensor, clock: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._sensor, self._clock, self._monotonic = sensor, clock, monotonic
        self._last = SensorReading(sensor.name, SensorOpinion.NONE, f"{NOT_KNOWN}it has not answered yet.")
        self._read_at = monotonic()
        self._closing = threading.Event()
        threading.Thread(target=self._run, name=f"sensor {sensor.name}", daemon=True).start()

    def reading(self, now: float) -> SensorReading:
        """What it said last, unless that is too long ago."""
        last, silent = self._last, now - self._read_at
        if silent <= self._sensor.every_s + HANGS_S:
            return last
        return SensorReading(self._sensor.name, SensorOpinion.NONE, f"{NOT_KNOWN}no answer for {silent:.0f} seconds.")

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._last = self._sensor.read(self._clock())
            except Exception as e:  # it should not raise; one that does has no opinion, and training no end
                log.warning("the sensor %s failed", self._sensor.name, exc_info=True)
                why = f"{NOT_KNOWN}it failed with {type(e).__name__}: {e}"
                self._last = SensorReading(self._sensor.name, SensorOpinion.NONE, why)
            self._read_at = self._monotonic()
            self._closing.wait(max(LOOKED_EVERY_S, self._sensor.every_s))
