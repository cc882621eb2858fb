"""The sensor of keyboard and mouse: away after minutes without them, here within a minute of the last touch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime

from turnwise.errors import SensorFault
from turnwise.schedule.input import logind, macos, mutter, windows, x11
from turnwise.schedule.window import NOT_KNOWN, SensorOpinion, SensorReading

ACTIVE_S = 60.0
"""Who touched something so recently is here, whatever else is said."""

Probe = Callable[[], float]
"""Seconds without input. Raises SensorFault with the reason where they are not known."""


class InputIdle:
    """Asks the desktop how long nothing was touched."""

    name = "keyboard and mouse"
    every_s = 5.0

    def __init__(self, idle_min: float, probe: Probe | None = None) -> None:
        self._idle_s = idle_min * 60
        self._probe = probe or of_this_desktop

    def read(self, now: datetime) -> SensorReading:
        """What the time without input means; no opinion, with the reason, where it is not known."""
        try:
            idle = self._probe()
        except SensorFault as e:
            return SensorReading(self.name, SensorOpinion.NONE, f"{NOT_KNOWN}{e}.")
        if idle < ACTIVE_S:
            return SensorReading(self.name, SensorOpinion.CLOSES, f"Used {idle:.0f} seconds ago.")
        opinion = SensorOpinion.OPENS if idle >= self._idle_s else SensorOpinion.NONE
        wanted = "" if opinion is SensorOpinion.OPENS else f"; away after {self._idle_s / 60:g}"
        return SensorReading(self.name, opinion, f"Still for {idle / 60:.0f} minutes{wanted}.")


def of_this_desktop() -> float:
    """Seconds without input, from the first that knows. Raises SensorFault with what each of them said."""
    reasons = []
    for probe in probes():
        try:
            return probe()
        except SensorFault as e:
            reasons.append(str(e))
    raise SensorFault("; ".join(reasons))


def probes() -> list[Probe]:
    """Who can be asked here, best first. On Wayland an X server sees only what is typed into X programs."""
    if sys.platform == "darwin":
        return [macos.idle_seconds]
    if sys.platform == "win32":
        return [windows.idle_seconds]
    if os.environ.get("WAYLAND_DISPLAY") or os.environ.get("XDG_SESSION_TYPE") == "wayland":
        return [mutter.idle_seconds, logind.idle_seconds]
    return [x11.idle_seconds, logind.idle_seconds]
