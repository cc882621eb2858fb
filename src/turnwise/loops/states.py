"""What the supervisor knows of its loops, in a file of the home: for `/readyz`, `turnwise status` and `doctor`.

Not in the journal: a journal that is locked or full must not keep anyone from learning what is wrong. The last words of
a loop are for who may read the home; the open route `/readyz` leaves them out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from turnwise.patterns import pattern

FILE = "loops.json"
LOCK = "serve.lock"
"""Held by the supervisor of a home as long as it lives."""
RECENT_S = 600.0
OFTEN = 3
"""So many restarts within `RECENT_S` are trouble, although the loop runs between them."""
_LONGEST_LINE = 300
_CONTROL = pattern(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class LoopState:
    """One loop. ``state``: starting, running, hung (it is being ended) or down (it ended, and waits to be started).

    ``restarts`` since the supervisor began, ``recent`` ones within `RECENT_S`; ``why`` the last one was needed.
    """

    state: str
    restarts: int = 0
    recent: int = 0
    why: str | None = None
    last_words: tuple[str, ...] = ()

    @property
    def troubled(self) -> bool:
        """Whether it does not do its work now, or hardly."""
        if self.state in ("hung", "down") or self.recent >= OFTEN:
            return True
        return self.state == "starting" and self.restarts > 0

    def open_part(self) -> dict[str, object]:
        """What anybody may know of it."""
        return {"state": self.state, "restarts": self.restarts, "recent_restarts": self.recent, "why": self.why}

    def said(self) -> str:
        """In a few words, without its last ones."""
        times = f"restarted {self.restarts} time{'s' if self.restarts != 1 else ''}"
        lately = f", {self.recent} of them in the last {RECENT_S / 60:.0f} minutes" if self.recent else ""
        return f"{self.state}; {times}{lately}: {self.why}" if self.restarts or self.why else self.state


def write_states(home: Path, pid: int, states: dict[str, LoopState]) -> None:
    """Put the file in place as a whole, mode 0600. Raises OSError."""
    path, beside = home / FILE, home / f".{FILE}.new"
    body = json.dumps({"pid": pid, "loops": {name: asdict(state) for name, state in states.items()}})
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(body)
    beside.replace(path)


def forget_states(home: Path) -> None:
    """After a stop that was asked for: nothing is supervised any more."""
    with contextlib.suppress(OSError):
        (home / FILE).unlink(missing_ok=True)


def read_states(home: Path) -> dict[str, LoopState]:
    """The loops of the supervisor that runs now; empty where none does, or where the file cannot be read."""
    try:
        told = json.loads((home / FILE).read_text(encoding="utf-8"))
        if not _lives(told["pid"]) or not _held(home / LOCK):
            return {}
        return {
            name: LoopState(**state | {"last_words": tuple(state["last_words"])})
            for name, state in told["loops"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def troubled(states: dict[str, LoopState]) -> dict[str, LoopState]:
    return {name: state for name, state in states.items() if state.troubled}


def fit_words(lines: Iterable[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Last words without control characters, without what is secret, and of a bounded length."""
    clean = []
    for line in lines:
        for secret in secrets:
            line = line.replace(secret, "[a secret]") if secret else line
        clean.append(_CONTROL.sub(" ", line)[:_LONGEST_LINE])
    return tuple(clean)


def _held(lock: Path) -> bool:
    """Whether a process holds the lock. A number may be another process's by now, but a lock ends with its holder."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not mislead each other
        except BlockingIOError:
            return True
    return False


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
