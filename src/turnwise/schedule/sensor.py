"""What every sensor of the schedule can be asked, and which ones a configuration wants."""

from datetime import datetime
from typing import Protocol

from turnwise.config import Config
from turnwise.schedule.calendar.meetings import Meetings
from turnwise.schedule.calendar.reader import calendar_reader
from turnwise.schedule.input.idle import InputIdle
from turnwise.schedule.sleep import sleep_table
from turnwise.schedule.window import SensorReading


class Sensor(Protocol):
    """One source of news about whether the person is away.

    It never raises: a broken one has no opinion and says why.
    """

    @property
    def name(self) -> str: ...

    @property
    def every_s(self) -> float:
        """Seconds between two readings."""
        ...

    def read(self, now: datetime) -> SensorReading:
        """Its opinion at `now` (a time with a zone). May block, but no longer than a limit of its own."""
        ...


def sensors_of(config: Config, *, keep: bool = True) -> list[Sensor]:
    """The sensors that the configuration names, but for the gateway's own traffic, which the trainer's watch adds.

    With `keep` the calendar's times are kept in the home, for when it is out of reach.
    """
    schedule = config.schedule
    sensors: list[Sensor] = []
    if schedule.sleep:
        sensors.append(sleep_table(schedule))
    if schedule.idle_min:
        sensors.append(InputIdle(schedule.idle_min))
    if schedule.calendar:
        sensors.append(Meetings(calendar_reader(config, keep=keep), schedule.zone_info))
    return sensors
