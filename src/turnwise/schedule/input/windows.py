"""Windows: the system says at which of its ticks the last input came."""

from __future__ import annotations

import ctypes
import sys

from turnwise.errors import SensorFault

_ROUND = 1 << 32
"""The ticks, milliseconds since the start, begin anew after 49 days."""


class _LastInputInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("ticks", ctypes.c_uint)]


def idle_seconds() -> float:
    """Seconds without keyboard and mouse. Raises SensorFault."""
    if sys.platform != "win32":
        raise SensorFault("this is no Windows")
    info = _LastInputInfo(ctypes.sizeof(_LastInputInfo))
    if not ctypes.windll.user32.GetLastInputInfo(ctypes.byref(info)):
        raise SensorFault("Windows does not say when the last input came")
    return seconds_between(info.ticks, ctypes.windll.kernel32.GetTickCount())


def seconds_between(last_input: int, now: int) -> float:
    """Seconds between two counts of ticks."""
    return (now - last_input) % _ROUND / 1000
