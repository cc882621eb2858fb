"""The window in which idle-time training runs, as a pure state machine.

It is told the time (seconds that never go back) and what the sensors say, and answers with the next state. It reads
no clock, asks no sensor and stops nothing: whoever trains asks it between two micro-batches and obeys.
"""

from dataclasses import dataclass
from enum import StrEnum

# A person who only pauses to read is not away; opening for less would start and stop with every page.
QUIET_SECONDS = 60.0
NOT_KNOWN = "Not known: "
"""How the sentence of a sensor begins that cannot know what it is asked; the reason follows."""


class SensorOpinion(StrEnum):
    """What one sensor makes of what it sees. A broken sensor has no opinion, and says so in its sentence."""

    OPENS = "opens"
    CLOSES = "closes"
    NONE = "none"


@dataclass(frozen=True)
class SensorReading:
    """One sensor's opinion, with a sentence for the person who asks why."""

    sensor: str
    opinion: SensorOpinion
    why: str


class WindowState(StrEnum):
    IDLE_WAIT = "idle-wait"
    WINDOW_OPEN = "window-open"
    TRAINING = "training"
    PAUSING = "pausing"


@dataclass(frozen=True)
class Window:
    """The state, and since when (seconds) somebody seems away without a break; None while nobody does."""

    state: WindowState = WindowState.IDLE_WAIT
    away_since: float | None = None

    @property
    def may_train(self) -> bool:
        """Whether the trainer may begin another micro-batch."""
        return self.state is WindowState.TRAINING


def next_window(
    window: Window,
    now: float,
    readings: list[SensorReading],
    *,
    due: bool,
    stopped: bool,
    quiet_seconds: float = QUIET_SECONDS,
) -> Window:
    """The window after one look at the sensors.

    `due`: there is training to do, a paused batch included. `stopped`: the trainer is between two updates, or has
    put its pause on disk. Any sensor that closes wins over all that open; with no opinion at all nobody is known to be
    away. It shuts at once, and opens only after `quiet_seconds` without a break, so that it does not flap. A clock
    that went back begins the wait anew.
    """
    opinions = {reading.opinion for reading in readings}
    away = SensorOpinion.OPENS in opinions and SensorOpinion.CLOSES not in opinions
    if not away:
        held_up = window.state in (WindowState.TRAINING, WindowState.PAUSING) and not stopped
        return Window(WindowState.PAUSING if held_up else WindowState.IDLE_WAIT)
    since = now if window.away_since is None or window.away_since > now else window.away_since
    if window.state is WindowState.PAUSING and not stopped:
        return Window(WindowState.PAUSING, since)
    if now - since < quiet_seconds and window.state in (WindowState.IDLE_WAIT, WindowState.PAUSING):
        return Window(WindowState.IDLE_WAIT, since)
    return Window(WindowState.TRAINING if due else WindowState.WINDOW_OPEN, since)
