"""What `turnwise doctor` says of the sensors of the schedule: which of them can say anything on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from turnwise.config import Config
from turnwise.doctor.journal import Said
from turnwise.schedule.calendar.meetings import Meetings
from turnwise.schedule.sensor import sensors_of
from turnwise.schedule.state import read_all
from turnwise.schedule.window import NOT_KNOWN


def examine_schedule(config: Config) -> Iterator[Said]:
    """Each sensor's word. A calendar that cannot be read is a fault; a machine without a display is none."""
    if not config.trains or config.train.when != "idle":
        return
    sensors = sensors_of(config, keep=False)
    for sensor, reading in zip(sensors, read_all(sensors, datetime.now(UTC)), strict=True):
        if not reading.why.startswith(NOT_KNOWN):
            yield "schedule", "ok", f"{reading.sensor}: {reading.why}"
        elif sensor.name == Meetings.name:
            yield "schedule", "fault", f"{reading.sensor}: {reading.why}"
        else:
            yield "schedule", "note", f"{reading.sensor}: {reading.why}"
