"""Linux with GNOME, also on Wayland: its compositor counts the time without input and tells it on the session bus."""

from __future__ import annotations

from turnwise.errors import SensorFault
from turnwise.patterns import pattern
from turnwise.schedule.input.asking import ask

_ANSWER = pattern(r"\(uint64 (\d{1,19}),\)")


def idle_seconds() -> float:
    """Seconds without keyboard and mouse. Raises SensorFault, as with any other desktop."""
    said = ask(
        "gdbus", "call", "--session", "--dest", "org.gnome.Mutter.IdleMonitor",
        "--object-path", "/org/gnome/Mutter/IdleMonitor/Core",
        "--method", "org.gnome.Mutter.IdleMonitor.GetIdletime",
    )  # fmt: skip
    return seconds_in(said)


def seconds_in(said: str) -> float:
    """What `gdbus` prints, such as `(uint64 5120,)` for milliseconds. Raises SensorFault."""
    found = _ANSWER.search(said)
    if found is None:
        raise SensorFault("GNOME gave an answer without a time")
    return int(found[1]) / 1000
