"""macOS: the registry of devices counts the time without input."""

from __future__ import annotations

from turnwise.errors import SensorFault
from turnwise.patterns import pattern
from turnwise.schedule.input.asking import ask

_IDLE = pattern(r'"HIDIdleTime"\s*=\s*(\d{1,20})')


def idle_seconds() -> float:
    """Seconds without keyboard and mouse. Raises SensorFault."""
    return seconds_in(ask("/usr/sbin/ioreg", "-c", "IOHIDSystem", "-d", "4"))


def seconds_in(said: str) -> float:
    """The least time without input that `ioreg` prints, in nanoseconds there. Raises SensorFault."""
    found = [int(each[1]) for each in _IDLE.finditer(said)]
    if not found:
        raise SensorFault("ioreg told no HIDIdleTime")
    return min(found) / 1e9
