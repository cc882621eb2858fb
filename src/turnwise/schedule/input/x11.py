"""Linux with X11: the server counts the time without input, in its screen saver extension."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from turnwise.errors import SensorFault
from turnwise.schedule.input.asking import ask

PROGRAM = Path(__file__).with_name("ask_x11.py")


def idle_seconds() -> float:
    """Seconds without keyboard and mouse at $DISPLAY. Raises SensorFault."""
    display = os.environ.get("DISPLAY", "")
    if not display:
        raise SensorFault("there is no display ($DISPLAY is not set)")
    try:
        return float(ask(sys.executable, "-I", "-S", str(PROGRAM))) / 1000
    except (SensorFault, ValueError) as e:
        raise SensorFault(f"the display {display} cannot be asked: {e}") from None
