"""Whether the window is open and why, for `turnwise schedule status` and `doctor`.

A trainer that runs writes what its watch sees into the journal; where none does, the sensors are read here and now, and
of the gateway's own traffic what it noted last.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal.read_only import exists, read_ours
from turnwise.schedule import traffic
from turnwise.schedule.asked import HOLDS_S
from turnwise.schedule.asked import STATUS_KEY as ASKED_KEY
from turnwise.schedule.sensor import Sensor, sensors_of
from turnwise.schedule.telling import why_never
from turnwise.schedule.watch import STATUS_KEY
from turnwise.schedule.window import QUIET_SECONDS, SensorOpinion, SensorReading, WindowState

STALE_S = 60.0
"""Seconds after which what a trainer said is no longer news: it says it anew every few."""
_SAID = {
    WindowState.IDLE_WAIT: "shut",
    WindowState.WINDOW_OPEN: "open, and nothing is due",
    WindowState.TRAINING: "open, and the trainer works",
    WindowState.PAUSING: "shutting: the trainer finishes a micro-batch",
}


def schedule_state(config: Config, supervised: Collection[str] = ()) -> dict[str, Any]:
    """What `said` sums up, whether the window is `open`, who `seen_by`, and the `readings` of the sensors.

    `supervised` names the loops of the server that runs; empty where none does.
    """
    return _whatever_is_seen(config, supervised) or _of_the_trainer(config) or _of_now(config)


def _whatever_is_seen(config: Config, supervised: Collection[str]) -> dict[str, Any] | None:
    """Where the configuration alone decides; None with `train.when = "idle"`."""
    if why := why_never(config, supervised):
        said, opens = f"Nothing is trained: {why}.", False
    elif config.train.when == "always":
        said, opens = 'train.when is "always": a step begins whenever there is enough for one, whoever is there.', True
    elif config.train.when == "manual":
        said, opens = 'train.when is "manual": only `turnwise train now` trains.', False
    else:
        return None
    return {"said": said, "open": opens, "window": None, "seen_by": "the configuration", "readings": []}


def read_all(sensors: list[Sensor], now: datetime) -> list[SensorReading]:
    """What each sensor says, asked at once: one that waits for a server holds up no other."""
    if not sensors:
        return []
    with ThreadPoolExecutor(len(sensors)) as threads:
        return list(threads.map(lambda sensor: sensor.read(now), sensors))


def _of_the_trainer(config: Config) -> dict[str, Any] | None:
    """What a running trainer's watch last said; None where there is none, or it has been silent for long."""
    try:
        if not exists(config):
            return None
        loops = read_ours(config, lambda journal: journal.status.figures())["loops"]
        told = loops.get(STATUS_KEY)
        if told is None or told["seconds_ago"] > STALE_S or loops.get("trainer", {}).get("state") == "stopped":
            return None
        window = WindowState(told["window"])
        readings = [{key: str(each[key]) for key in ("sensor", "opinion", "why")} for each in told["readings"]]
    except (JournalError, ValueError, LookupError, TypeError):
        return None  # of another program's version, or a journal that `doctor` has more to say about
    opens = window in (WindowState.WINDOW_OPEN, WindowState.TRAINING)
    asked = loops.get(ASKED_KEY, {})
    if asked.get("step") == "training" and asked["seconds_ago"] < HOLDS_S:
        said = "The trainer works whatever the window says: somebody asked for it (`turnwise train now`)."
    else:
        said = f"The window is {_SAID[window]}. {told.get('why', '')}".strip()
    return {"said": said, "open": opens, "window": str(window), "seen_by": "trainer",
            "readings": readings}  # fmt: skip


def _traffic(config: Config) -> list[SensorReading]:
    """The gateway's opinion; nothing where no gateway ever ran here, or its journal cannot be read."""
    try:
        last = read_ours(config, traffic.last_request) if exists(config) else None
    except JournalError:
        return []
    return [] if last is None else [traffic.reading(last, config.schedule.quiet_min)]


def _of_now(config: Config) -> dict[str, Any]:
    readings = [*_traffic(config), *read_all(sensors_of(config), datetime.now(UTC))]
    opens = [each.sensor for each in readings if each.opinion is SensorOpinion.OPENS]
    closes = [each.sensor for each in readings if each.opinion is SensorOpinion.CLOSES]
    if closes:
        said = f"No trainer runs. The window would be shut: {', '.join(closes)} says that somebody is here."
    elif opens:
        said = f"No trainer runs. The window would open after {QUIET_SECONDS:g} seconds: {', '.join(opens)} says so."
    else:
        said = "No trainer runs. The window would be shut: no sensor says that the person is away."
    told = [{"sensor": each.sensor, "opinion": str(each.opinion), "why": each.why} for each in readings]
    return {"said": said, "open": bool(opens) and not closes, "window": None, "seen_by": "this command",
            "readings": told}  # fmt: skip
