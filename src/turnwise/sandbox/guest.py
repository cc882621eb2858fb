"""What runs in one sandbox, from its start until nothing of it lives: its process, its group, its ways out."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import Room, check_machine, options, shell, wrapped
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.groups import Group, make_group
from turnwise.sandbox.leftovers import named
from turnwise.sandbox.limits import TRY_S, Allowed, BoxLimits, Stop
from turnwise.sandbox.overlay import can_lay_roots, lay_root, take_down
from turnwise.sandbox.reach import WaysOut

OVERHEAD = 2
"""Processes of bubblewrap itself."""
MOST_SAID = 4096
COMMANDS = 20
"""For how many commands' time a process of a shell that lasts may use a core, before the kernel ends it."""

_OF_PYTHON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Without these a Python in a folder of its own may not start; what it starts is told nothing of them."""
_HEAR = """import os, signal, sys
for number in sys.argv[1].split(","):
    signal.signal(int(number), signal.SIG_DFL)
os.execve(sys.argv[2], sys.argv[2:], {})
"""


@dataclass(frozen=True, slots=True)
class Ends:
    """The three descriptors of a guest; ``output`` and ``error`` may be one."""

    input: int
    output: int
    error: int


class Guest:
    """A command in a sandbox, begun. Raises SandboxError where it cannot be begun."""

    def __init__(
        self, room: Room, limits: BoxLimits, allowed: Allowed, command: list[str], ends: Ends, commands: int = 1
    ) -> None:
        self._room, self._limits = room, limits
        self._ways: WaysOut | None = None
        self.group: Group = make_group(limits)
        try:
            room.furnish(allowed)
            self._begin(allowed, command, ends, commands)
        except BaseException:
            self.end()
            raise

    process: subprocess.Popen[bytes] | None = None
    _inner = -1

    def _begin(self, allowed: Allowed, command: list[str], ends: Ends, commands: int) -> None:
        told, tell = os.pipe()
        waits, go = os.pipe()
        asked = os.memfd_create("options")
        try:
            # Who is inside sees the command line of bubblewrap. It tells whose it is, and nothing of our folders.
            os.write(asked, b"".join(os.fsencode(word) + b"\0" for word in options(self._room, allowed)))
            os.lseek(asked, 0, os.SEEK_SET)
            words = ["--unsetenv", self._room.place.name, "--args", str(asked)]
            words += ["--info-fd", str(tell), "--block-fd", str(waits)]
            line = wrapped(words, self._limits, command, self.group.holds_memory, commands)
            hearing = _hearing_signals()
            self.process = start_process(
                hearing + self.group.joining() + line,
                stdin=ends.input,
                stdout=ends.output,
                stderr=ends.error,
                pass_fds=(tell, waits, asked),
                env={name: os.environ[name] for name in _OF_PYTHON if hearing and name in os.environ},
                start_new_session=True,
            )
            os.close(tell)
            tell = -1
            self._inner = _pid_in(_read_all(told))
            if self._inner > 0 and allowed.has_network:
                self._ways = WaysOut(self._inner, allowed)
            os.write(go, b"x")
        except (OSError, ValueError) as e:
            raise SandboxError(f"the command cannot be started: {e}") from e
        finally:
            for descriptor in (told, tell, waits, go, asked):
                if descriptor >= 0:
                    os.close(descriptor)

    @property
    def is_counted(self) -> bool:
        return self.group.holds_memory and self.group.holds_processes

    @property
    def began(self) -> bool:
        """Whether bubblewrap has made its room; else it said why not and has ended, or soon will."""
        return self._inner > 0

    def over_limit(self) -> Stop | None:
        """The limit of memory or processes that it is beyond, where no group holds it."""
        group, limits = self.group, self._limits
        if self.is_counted or self.process is None:
            return None
        number, memory = _used(self.process.pid)
        if not group.holds_processes and number > limits.processes + OVERHEAD:
            return "processes"
        return "memory" if not group.holds_memory and memory > limits.memory_mb << 20 else None

    def too_full(self) -> bool:
        """Whether there is more in its folders together than may be."""
        limits, weight, entries = self._limits, 0, 0
        places = [self._room.folder, self._room.scratch]
        for place in [*places, *self._room.written()]:
            more = GuestFolder(place).weigh(limits.entries)
            weight, entries = weight + more[0], entries + more[1]
        if self.process is not None and self.process.poll() is None:
            # Where no group tells who is inside, every process of the machine is looked at.
            inside = self.group.members()
            inside = [each.pid for each in _below(self.process.pid)] if inside is None else inside
            weight += _held(inside, of_memory=False)
        return weight > limits.disk_mb << 20 or entries >= limits.entries

    def killed_for_memory(self) -> int:
        """How many of its processes the kernel has ended for want of memory."""
        return self.group.killed_for_memory()

    def end(self) -> int:
        """End all that lives inside and say the status. Called again it says the same."""
        if self._ways is not None:
            self._ways.close()
            self._ways = None
        status = -1
        if self.process is not None:
            if self.process.poll() is None:
                # The first process inside takes all others with it, so that none lives when the outer one has ended.
                if self._inner > 0:
                    with contextlib.suppress(OSError):
                        os.kill(self._inner, signal.SIGKILL)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(TRY_S)
                self.process.kill()
            status = self.process.wait()
        self.group.remove()
        return status


class BubblewrapLodging:
    """A place for the shells of one episode over a folder. Raises SandboxError.

    ``layered``: whether they have a root of their own that they can write, as root can have it; unset: where it can be.
    """

    settle_s = 0.0

    def __init__(
        self, folder: GuestFolder, limits: BoxLimits, allowed: Allowed | None = None, layered: bool | None = None
    ) -> None:
        check_machine()
        beside = folder.path.absolute().parent
        layered = can_lay_roots(beside) if layered is None else layered
        place = beside / named()
        self._limits, self._allowed = limits, allowed or Allowed()
        self._room = Room(folder.path, place, place / "root" if layered else None)
        try:
            place.mkdir(mode=0o700)
            self._room.furnish(self._allowed)
            if layered:
                lay_root(place)
        except (OSError, SandboxError) as e:
            self.close()
            raise SandboxError(f"no place for the sandbox can be made in {beside}: {e}") from e

    def begin(self, input: int, output: int, error: int) -> Guest:
        command = [shell(), *(("--norc", "--noprofile") if shell().endswith("bash") else ()), "-s"]
        return Guest(self._room, self._limits, self._allowed, command, Ends(input, output, error), COMMANDS)

    def close(self) -> None:
        """Take the place away. May be called again."""
        if self._room.place.exists():
            take_down(self._room.place)
            delete_folder(self._room.place)


def _hearing_signals() -> list[str]:
    """The words to put before a command that is to hear the signals that we were told to ignore, as by `nohup`.

    A program inherits what is ignored, and a shell cannot even trap it.
    """
    passed_on = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}  # which Python ignores, and gives back
    ignored = [int(each) for each in passed_on if signal.getsignal(each) is signal.SIG_IGN]
    return [sys.executable, "-I", "-S", "-c", _HEAR, ",".join(map(str, ignored))] if ignored else []


def start_process(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as we do: `--die-with-parent` is about the thread."""
    return _starter().start(command, options)


class _Starter:
    def __init__(self) -> None:
        self.process = os.getpid()
        self._asked: SimpleQueue[tuple[list[str], dict[str, Any], Future[subprocess.Popen[bytes]]]] = SimpleQueue()
        threading.Thread(target=self._run, name="starts sandboxes", daemon=True).start()

    def start(self, command: list[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        started: Future[subprocess.Popen[bytes]] = Future()
        self._asked.put((command, options, started))
        return started.result()

    def _run(self) -> None:
        while True:
            command, options, started = self._asked.get()
            try:
                started.set_result(subprocess.Popen[bytes](command, **options))
            except BaseException as e:  # it is for whoever asked
                started.set_exception(e)


_starters: list[_Starter] = []
_lock = threading.Lock()


def _starter() -> _Starter:
    with _lock:
        if not _starters or _starters[-1].process != os.getpid():
            _starters[:] = [_Starter()]
        return _starters[-1]


def _read_all(descriptor: int) -> bytes:
    """What bubblewrap tells of its room. Raises SandboxError where it says nothing for long."""
    until, found = time.monotonic() + TRY_S, b""
    while True:
        if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            raise SandboxError(f"the sandbox (bwrap) did not start within {TRY_S:.0f} s; try again")
        part = os.read(descriptor, MOST_SAID)
        found += part
        if not part or found.rstrip().endswith(b"}"):
            return found


def _pid_in(said: bytes) -> int:
    try:
        return int(json.loads(said)["child-pid"])
    except (ValueError, KeyError, TypeError):
        return -1


def _used(pid: int) -> tuple[int, int]:
    """How many processes stand below one, and their memory together in bytes."""
    found = _below(pid)
    memory = _held([each.pid for each in found], of_memory=True)
    for child in found:
        with contextlib.suppress(psutil.Error):
            memory += child.memory_info().rss
    return len(found), memory


def _below(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _held(processes: list[int], of_memory: bool) -> int:
    """Bytes of files that have no name any more and are open: those in memory (`memfd`), or those on a disk.

    One that is only mapped, or under way from process to process, is not seen.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in processes:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            for each in descriptors:
                with contextlib.suppress(OSError):
                    at = Path(each.path)
                    name = str(at.readlink())
                    if name.endswith(" (deleted)") and name.startswith("/memfd:") == of_memory:
                        told = at.stat()
                        if stat.S_ISREG(told.st_mode) and not told.st_nlink:
                            found[told.st_dev, told.st_ino] = told.st_blocks * 512
    return sum(found.values())
