"""A shell that lasts over an episode: its folder, its variables and what it started in the background stay.

Who is inside may do anything to this shell, for it is theirs. What it says of a command, its output and its status, is
their word; that it ended in time, within its limits, and that nothing of it lives afterwards, is ours. The end of a
command is told on a line of its own, which no program that is started inherits, with a number that is new each time: so
nothing that is printed can be taken for the end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import socket
import time
from typing import Protocol

from turnwise.errors import SandboxError
from turnwise.sandbox.limits import BoxLimits, Ran, Stop

LOOK_S = 0.02
"""Seconds between two looks at what the shell uses, where nobody else counts."""
WEIGH_S = 0.5
"""Seconds between two looks at how much lies in the folder."""
MOST_TOLD = 64 << 10
"""Bytes of what was told that are kept."""
_READ = 64 << 10
_BEGIN = b"exec 3>&2 4>&1 2>&1\n"


class Inhabitant(Protocol):
    """A command in a sandbox, begun (`guest.Guest`, `containers.Contained`)."""

    @property
    def is_counted(self) -> bool:
        """Whether the kernel holds its memory and its processes, so that nobody need look."""
        ...

    @property
    def began(self) -> bool:
        """Whether there was a room for it; else what it told says why not."""
        ...

    def over_limit(self) -> Stop | None: ...
    def too_full(self) -> bool: ...
    def killed_for_memory(self) -> int: ...
    def end(self) -> int:
        """End all that lives inside and say the status."""
        ...


class Lodging(Protocol):
    """Where shells of one episode live, one after the other."""

    settle_s: float
    """How long after the end of a command its last output may still be on the way."""

    def begin(self, input: int, output: int, error: int) -> Inhabitant:
        """Start a shell that reads commands. Raises SandboxError."""
        ...

    def close(self) -> None:
        """Take away what is not the folder's. May be called again."""
        ...


class Shell:
    """Runs commands one after the other. The shell is started with the first, and anew after one that ended it."""

    def __init__(self, lodging: Lodging, limits: BoxLimits | None = None) -> None:
        self._lodging, self._limits = lodging, limits or BoxLimits()
        self._living: _Living | None = None

    def run(self, command: str, seconds: float | None = None) -> Ran:
        """Run a command and wait for its end. ``seconds``: a shorter time than the limits'. Raises SandboxError."""
        try:
            asked = command.encode()
        except UnicodeEncodeError:
            raise SandboxError("the command cannot be started: it is no valid text") from None
        if b"\0" in asked:
            raise SandboxError("the command cannot be started: there is a NUL in it")
        limits, started = self._limits, time.monotonic()
        self.begin()
        living = self._living
        assert living is not None
        killed = living.inhabitant.killed_for_memory()
        status, stopped_by = living.command(command, started + min(seconds or limits.seconds, limits.seconds), limits)
        if stopped_by is None and living.inhabitant.killed_for_memory() > killed:
            stopped_by = "memory"
        output = living.output(limits.output_kb << 10)
        ends = status is None or stopped_by not in (None, "memory")
        if ends:
            self._living = None
            ended = living.end()
            status = ended if status is None else status
            if not living.inhabitant.began:
                said = living.told.decode(errors="replace").strip()[-300:]
                raise SandboxError(f"the command cannot be started: {said}")
        assert status is not None
        return Ran(status, output, stopped_by, time.monotonic() - started, restarted=ends)

    def begin(self) -> None:
        """Start the shell before its first command. Raises SandboxError."""
        if self._living is None:
            self._living = _Living(self._lodging)

    @property
    def lives(self) -> bool:
        """Whether a shell is there that has not ended."""
        return self._living is not None and self._living.lives()

    def stop(self) -> None:
        """End all that lives inside. The folder stays, and so does what was written elsewhere."""
        if self._living is not None:
            living, self._living = self._living, None
            living.end()

    def close(self) -> None:
        """End all that lives inside and take away what is not the folder's. May be called again."""
        try:
            self.stop()
        finally:
            self._lodging.close()


class _Living:
    """One shell, from its start to its end, and the lines to it."""

    def __init__(self, lodging: Lodging) -> None:
        self._settle_s = lodging.settle_s
        self._said = bytearray()
        self._rest = b""
        self.told = bytearray()
        self._asks, asked = socket.socketpair()
        self._hears, tells = socket.socketpair()
        self._output, says = os.pipe()
        try:
            self.inhabitant = lodging.begin(asked.fileno(), says, tells.fileno())
        except BaseException:
            self._close()
            raise
        finally:
            asked.close()
            tells.close()
            os.close(says)
        for descriptor in (self._asks.fileno(), self._hears.fileno(), self._output):
            os.set_blocking(descriptor, False)
        self._rest = _BEGIN

    def command(self, command: str, until: float, limits: BoxLimits) -> tuple[int | None, Stop | None]:
        """Give a command and wait for its end: its status, None where the shell ended, and the limit that it met."""
        number = secrets.token_hex(16)
        quoted = shlex.quote(command)
        # After a command that ends within a quotation, bash knows no brace on the next line.
        tell = f"command printf '%s %d\\0' {number} $? >&3"
        self._rest += f"eval {quoted} </dev/null >&4 2>&4 3>&- 4>&-\n{tell}\n".encode()
        mark = f"{number} ".encode()
        look_s = WEIGH_S if self.inhabitant.is_counted else LOOK_S
        weigh_at = time.monotonic() + WEIGH_S
        while True:
            lives = self._listen(min(look_s, max(0.0, until - time.monotonic())))
            if len(self._said) > limits.output_kb << 10:
                return None, "output"
            if (status := self._status(mark)) is not None:
                self._listen(self._settle_s)
                self._drain(limits.output_kb << 10)
                self._forget(number.encode())
                if len(self._said) > limits.output_kb << 10:
                    return status, "output"
                return status, "disk" if self.inhabitant.too_full() else None
            if not lives:
                self._drain(limits.output_kb << 10)
                return None, "disk" if self.inhabitant.too_full() else None
            if time.monotonic() >= until:
                return None, "time"
            if beyond := self.inhabitant.over_limit():
                return None, beyond
            if time.monotonic() >= weigh_at:
                if self.inhabitant.too_full():
                    return None, "disk"
                weigh_at = time.monotonic() + WEIGH_S

    def lives(self) -> bool:
        return self._listen(0.0)

    def output(self, most: int) -> bytes:
        """What was said since the last time, up to a number of bytes."""
        said = bytes(self._said[:most])
        self._said.clear()
        return said

    def end(self) -> int:
        try:
            return self.inhabitant.end()
        finally:
            self._close()

    def _listen(self, seconds: float) -> bool:
        """Wait for something to be said or told, or until more can be asked; says whether the shell still lives."""
        listened = select.poll()
        listened.register(self._hears, select.POLLIN)
        listened.register(self._output, select.POLLIN)
        if self._rest:
            listened.register(self._asks, select.POLLOUT)
        lives = True
        for descriptor, event in listened.poll(seconds * 1000):
            if descriptor == self._asks.fileno() and event & select.POLLOUT:
                with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                    self._rest = self._rest[self._asks.send(self._rest) :]
            elif descriptor == self._hears.fileno():
                lives = self._take_told()
            elif descriptor == self._output:
                self._take_said()
        return lives

    def _take_told(self) -> bool:
        try:
            part = self._hears.recv(_READ)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        self.told += part
        del self.told[:-MOST_TOLD]
        return bool(part)

    def _take_said(self) -> bool:
        try:
            part = os.read(self._output, _READ)
        except BlockingIOError:
            return False
        self._said += part
        return bool(part)

    def _drain(self, most: int) -> None:
        """Take what was said before the end was told: it is in the pipe by now."""
        while len(self._said) <= most and self._take_said():
            pass

    def _forget(self, number: bytes) -> None:
        """Leave our own line out of what a shell says that traces its commands."""
        if number in self._said:
            self._said = bytearray().join(line for line in self._said.splitlines(True) if number not in line)

    def _status(self, mark: bytes) -> int | None:
        """The status of the command that was given with this number, if its end was told."""
        for line in bytes(self.told).split(b"\0")[:-1]:
            at = line.find(mark)
            said = line[at + len(mark) :]
            if at >= 0 and said.isdigit() and len(said) <= 3:
                self.told.clear()
                return int(said)
        return None

    def _close(self) -> None:
        self._asks.close()
        self._hears.close()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
