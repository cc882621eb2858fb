"""Runs single commands of an agent where they can do no harm, over one folder, which is all that outlives them.

Nothing that a command starts outlives it, and nothing else can be written. `shell.py` is for commands that know of each
other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from typing import IO

from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import Room, check_machine, shell
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.guest import Ends, Guest
from turnwise.sandbox.leftovers import named
from turnwise.sandbox.limits import TRY_S, Allowed, BoxLimits, Ran, Stop

LOOK_S = 0.02
"""Seconds between two looks at what a command uses."""
WEIGH_S = 0.5
"""Seconds between two looks at how much lies in the folder."""
_READ = 64 << 10


class Box:
    """Runs commands over one folder, one after the other. Raises SandboxError where the machine cannot hold them."""

    def __init__(self, folder: GuestFolder, limits: BoxLimits | None = None, allowed: Allowed | None = None) -> None:
        check_machine()
        self._folder = folder
        self._limits, self._allowed = limits or BoxLimits(), allowed or Allowed()

    def run(self, command: str, seconds: float | None = None) -> Ran:
        """Run a shell command in the folder and wait for it. ``seconds``: a shorter time than the limits'."""
        place = self._folder.path.absolute().parent / named()
        try:
            place.mkdir(mode=0o700)
            return self._run(command, seconds, Room(self._folder.path, place))
        except OSError as e:
            raise SandboxError(f"no place for the sandbox can be made in {place.parent}: {e}") from e
        finally:
            delete_folder(place)

    def _run(self, command: str, seconds: float | None, room: Room) -> Ran:
        limits, started = self._limits, time.monotonic()
        hears, says = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        heard = _Heard(os.fdopen(hears, "rb", buffering=0), limits.output_kb << 10)
        try:
            try:
                guest = Guest(room, limits, self._allowed, [shell(), "-c", command], Ends(nothing, says, says))
            finally:
                os.close(says)
                os.close(nothing)
            try:
                until = started + min(seconds or limits.seconds, limits.seconds)
                stopped_by = self._watch(guest, heard, until)
            finally:
                killed, status = guest.killed_for_memory(), guest.end()
        finally:
            heard.finish()
        if not guest.began:
            raise SandboxError(
                f"the command cannot be started: {heard.content[-300:].decode(errors='replace').strip()}"
            )
        stopped_by = stopped_by or heard.stopped_by or ("memory" if killed else None)
        return Ran(status, heard.content, stopped_by, time.monotonic() - started)

    def _watch(self, guest: Guest, heard: _Heard, until: float) -> Stop | None:
        """Wait for the end of a command; gives the limit it met before."""
        weigh_at = time.monotonic() + WEIGH_S
        assert guest.process is not None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.process.wait(LOOK_S)
                return "disk" if guest.too_full() else None
            if heard.stopped_by:
                return heard.stopped_by
            if time.monotonic() >= until:
                return "time"
            if beyond := guest.over_limit():
                return beyond
            if time.monotonic() >= weigh_at:
                if guest.too_full():
                    return "disk"
                weigh_at = time.monotonic() + WEIGH_S


class _Heard:
    """Reads what a command says, up to a limit, while it runs."""

    def __init__(self, source: IO[bytes], most: int) -> None:
        self._source, self._most = source, most
        self._parts: list[bytes] = []
        self.stopped_by: Stop | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)[: self._most]

    def finish(self) -> None:
        """Wait for the last of it; its writers are gone."""
        self._thread.join(TRY_S)
        self._source.close()

    def _read(self) -> None:
        size = 0
        while part := self._source.read(_READ):
            size += len(part)
            if size > self._most:
                self.stopped_by = "output"
            else:
                self._parts.append(part)
                continue
            self._parts.append(part[: max(0, self._most - size + len(part))])
            return
