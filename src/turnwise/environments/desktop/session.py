"""The session of one desktop: a display, the programs and their buses, and the hands that move its mouse.

Three sandboxes without a network, so that an agent's programs reach neither the X server's process nor the hands: each
sees of the others only their sockets. Nothing of them lives when `close` returns.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.desktop.lines import line_from
from turnwise.environments.desktop.programs import PYTHON, launcher
from turnwise.environments.desktop.screen import DISPLAY, SOCKETS, START_S, Display
from turnwise.errors import SandboxError, TurnwiseError
from turnwise.sandbox.bubblewrap import Room
from turnwise.sandbox.guest import Ends, Guest
from turnwise.sandbox.limits import Allowed, BoxLimits

OURS = Path(__file__).parent / "inside"
ANSWER_S = 40.0
"""Longest wait for the hands: beyond what they allow themselves."""
COMMANDS = 1000
"""So many times the seconds of a command may a process of a session compute."""
HANDS = BoxLimits(memory_mb=256, processes=16)
SESSION = BoxLimits(memory_mb=1024, processes=128, disk_mb=64, entries=5_000)
RUNTIME = "/tmp/run"
ETC = ("/etc/fonts", "/etc/gtk-3.0", "/etc/gtk-2.0", "/etc/xdg")
VARIABLES = {
    "DISPLAY": DISPLAY,
    "XAUTHORITY": "/etc/xauthority",
    "XDG_RUNTIME_DIR": RUNTIME,
    "XDG_CONFIG_HOME": "/tmp/config",
    "XDG_CACHE_HOME": "/tmp/cache",
    "XDG_DATA_HOME": "/tmp/data",
    "DBUS_SESSION_BUS_ADDRESS": f"unix:path={RUNTIME}/bus",
    "GSETTINGS_BACKEND": "memory",
    "GTK_MODULES": "gail:atk-bridge",
    "GTK2_RC_FILES": "/tmp/config/gtkrc-2.0",
    "NO_AT_BRIDGE": "0",
}


class SessionEnded(TurnwiseError):
    """The programs' sandbox or the hands are gone or do not answer: what an agent does can bring that about."""


class DeskSession:
    """A desktop over ``files``, with what it needs beside it in ``folder``. Raises InfrastructureFailure where it does
    not start."""

    def __init__(self, folder: Path, files: Path) -> None:
        self._files, self._folder = files, folder
        self._open: list[int] = []
        self._guests: list[Guest] = []
        self._screen: Display | None = None
        try:
            self._start()
        except SandboxError as e:
            self.close()
            raise InfrastructureFailure(f"the sandbox of a desktop failed: {e}") from e
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._screen = screen = Display(self._folder)
        sees = {SOCKETS: screen.sockets, VARIABLES["XAUTHORITY"]: screen.cookie}
        etc = {place: Path(place) for place in ETC if Path(place).is_dir()}
        inside = {"/etc/openbox.xml": OURS / "openbox.xml", "/etc/session.sh": OURS / "session.sh"}
        places = [self._folder / "session", self._folder / "hands", self._folder / "hands-files"]
        for place in places:
            place.mkdir(mode=0o700)
        given = Allowed(sees=sees | etc | inside, variables=VARIABLES)
        room = Room(self._files, places[0])
        self._tells, hears = self._guest(room, SESSION, given, ["/bin/sh", "/etc/session.sh", launcher()])
        if line_from(hears, START_S) != b"ready":
            raise InfrastructureFailure("the programs' session did not start")
        sees = sees | {RUNTIME: places[0] / "tmp" / "run", "/etc/hands.py": OURS / "hands.py"}
        given = Allowed(sees=sees, variables=VARIABLES)
        room = Room(places[2], places[1])
        self._asks, self._answers = self._guest(room, HANDS, given, [PYTHON, "-I", "/etc/hands.py"])
        until = time.monotonic() + START_S
        while "fault" in self.look(deep=False):  # the accessibility bus is on its way
            if time.monotonic() > until:
                raise InfrastructureFailure("the accessibility bus did not start")
            time.sleep(0.1)

    def _guest(self, room: Room, limits: BoxLimits, allowed: Allowed, command: list[str]) -> tuple[int, int]:
        """A program in a sandbox; gives the descriptors that it is told by and heard by."""
        inside, tells = os.pipe()
        hears, says = os.pipe()
        nothing = os.open(os.devnull, os.O_WRONLY)
        self._open += [tells, hears]
        try:
            self._guests.append(Guest(room, limits, allowed, command, Ends(inside, says, nothing), COMMANDS))
        finally:
            for descriptor in (inside, says, nothing):
                os.close(descriptor)
        return tells, hears

    def check(self) -> None:
        """Raises InfrastructureFailure where the display is gone, SessionEnded where the programs' session is."""
        if self._screen is None or not self._screen.lives:
            raise InfrastructureFailure("the X server of an episode has ended")
        for guest, what in zip(self._guests, ("the session of the programs", "the accessibility bus"), strict=False):
            if guest.process is None or guest.process.poll() is not None:
                raise SessionEnded(f"{what} has ended")
            if limit := guest.over_limit():
                raise SessionEnded(f"{what} was ended: the programs are beyond their limit of {limit}")
        if self._guests[0].too_full():
            raise SessionEnded(f"the session was ended: its files have more than {SESSION.disk_mb} MB")

    def start(self, line: str) -> None:
        """Start a program by the shell's words, which are ours. Raises as `check` does."""
        self._write(self._tells, line.encode() + b"\n")

    def look(self, deep: bool = True) -> Mapping[str, Any]:
        """What the accessibility bus tells of windows and, where it is to be deep, of elements. It is untrusted:
        nothing of it is sure but that it is an object."""
        return self.ask("look", deep=deep)

    def hand(self, calls: Sequence[Sequence[str]]) -> str | None:
        """Move the mouse and press keys: calls of xdotool. Gives the fault where one fails."""
        fault = self.ask("hand", calls=[list(words) for words in calls]).get("fault")
        return None if fault is None else str(fault)[:300]

    def frame(self) -> bytes:
        """What is on the screen."""
        assert self._screen is not None
        return self._screen.frame()

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        """Ask the hands. Raises SessionEnded where they do not answer, or what they say is no answer."""
        self._write(self._asks, json.dumps({"do": do, **what}).encode() + b"\n")
        try:
            answer = json.loads(line_from(self._answers, ANSWER_S))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self.check()
            raise SessionEnded("the accessibility bus does not answer any more")
        return answer

    def end_programs(self) -> None:
        """End all that the agent's programs could still do, so that files can be looked at."""
        for guest in self._guests:
            guest.end()

    def close(self) -> None:
        """End everything. May be called again."""
        try:
            self.end_programs()
            if self._screen is not None:
                self._screen.close()
        finally:
            while self._open:
                os.close(self._open.pop())

    def _write(self, descriptor: int, said: bytes) -> None:
        self.check()
        until = time.monotonic() + ANSWER_S
        while said:
            if not select.select([], [descriptor], [], max(0.0, until - time.monotonic()))[1]:
                raise SessionEnded("the session of the programs does not listen any more")
            try:
                said = said[os.write(descriptor, said[: select.PIPE_BUF]) :]
            except BrokenPipeError:
                self.check()
                raise SessionEnded("the session of the programs has ended") from None
