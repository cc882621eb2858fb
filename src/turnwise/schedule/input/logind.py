"""Linux with systemd: what logind knows of this user's sessions, on Wayland, X11 and terminals alike.

It is told by the desktop, often only some minutes after the last input, so "not idle" means no more than that. A
desktop that has never told anything says nothing about the person. Terminals, also over the network, are exact.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from turnwise.errors import SensorFault
from turnwise.schedule.input.asking import ask

TERMINAL = "tty"
MOST_SESSIONS = 50


@dataclass(frozen=True)
class DesktopSession:
    """One session of logind: `idle_since` is seconds since 1970, 0 where nothing was ever told."""

    kind: str
    idle: bool
    idle_since: float


def idle_seconds() -> float:
    """Seconds without input in the session that was used last. Raises SensorFault."""
    ids = ask("loginctl", "show-user", str(os.getuid()), "--property=Sessions", "--value").split()[:MOST_SESSIONS]
    if not ids:
        raise SensorFault("logind knows no session of this user")
    said = ask("loginctl", "show-session", *ids, "--property=Type,IdleHint,IdleSinceHint,State")
    return least_idle(sessions_in(said), time.time())


def sessions_in(said: str) -> list[DesktopSession]:
    """What `loginctl show-session` prints: lines of `Name=value`, an empty line between two sessions."""
    found = []
    for block in said.split("\n\n"):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if told.get("State") in (None, "closing"):
            continue
        since = told.get("IdleSinceHint", "0")
        found.append(
            DesktopSession(
                kind=told.get("Type", ""),
                idle=told.get("IdleHint") == "yes",
                idle_since=int(since) / 1e6 if since.isdecimal() and len(since) < 20 else 0.0,
            )
        )
    return found


def least_idle(sessions: list[DesktopSession], now: float) -> float:
    """Seconds since the last input of any session that says so. Raises SensorFault where none does."""
    idle = [
        max(0.0, now - session.idle_since) if session.idle or session.kind == TERMINAL else 0.0
        for session in sessions
        if session.idle_since
    ]
    if not idle:
        raise SensorFault("the desktop does not tell logind whether it is used")
    return min(idle)
