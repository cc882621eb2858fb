"""Runs a command of an agent where it can do no harm: bubblewrap's namespaces, and limits that end it.

Inside there are the machine's programs (`/usr`, read-only), a `/tmp`, and one folder of ours, `/box`, which is all that
outlives the command. Nothing else can be written. There is no network, no other process, no home, no `/etc`, no
variable of ours, no right to make further namespaces. Nothing that the command starts outlives it. Each process is held
by `prlimit`; what they use together is counted from outside. It is the kernel that holds all this: nothing looks at the
text of a command.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal

import psutil

from turnwise.errors import SandboxError
from turnwise.sandbox.counted import counted
from turnwise.sandbox.folder import GuestFolder, delete_folder

INSIDE = "/box"
"""Where the folder stands for those who are inside."""
LOOK_S = 0.02
"""Seconds between two looks at what a command uses."""
WEIGH_S = 0.5
"""Seconds between two looks at how much lies in the folder."""
TRY_S = 20.0
"""Longest wait for the first, empty command."""
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_READ = 64 << 10

Stop = Literal["time", "memory", "processes", "output", "disk"]


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What one command may use. ``memory_mb``, ``processes`` and ``disk_mb`` hold for all of its processes together."""

    seconds: float = 30.0
    memory_mb: int = 512
    processes: int = 64
    file_mb: int = 64
    disk_mb: int = 256
    entries: int = 20_000
    """Files and folders."""
    output_kb: int = 256
    """A command that says more is ended."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its status, what it said (both streams), and the limit that ended it, if one did."""

    status: int
    output: bytes
    stopped_by: Stop | None
    seconds: float


class Box:
    """Runs commands over one folder, one after the other. Raises SandboxError where the machine cannot hold them."""

    def __init__(self, folder: GuestFolder, limits: BoxLimits | None = None) -> None:
        check_machine()
        self._folder = folder
        self._limits = limits or BoxLimits()

    def run(self, command: str, seconds: float | None = None) -> Ran:
        """Run a shell command in the folder and wait for it. ``seconds``: a shorter time than the limits'."""
        scratch = Path(tempfile.mkdtemp(prefix="turnwise-"))
        try:
            with counted(self._limits.processes) as before:
                return self._run(command, seconds, scratch, before)
        finally:
            delete_folder(scratch)

    def _run(self, command: str, seconds: float | None, scratch: Path, before: list[str]) -> Ran:
        limits = self._limits
        shell = ["/bin/bash" if Path("/bin/bash").exists() else "/bin/sh", "-c", command]
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                before + _wrapped(self._folder.path, scratch, limits, shell),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise SandboxError(f"the command cannot be started: {e}") from e
        assert process.stdout is not None
        heard = _Heard(process.stdout, limits.output_kb << 10)
        try:
            until = started + min(seconds or limits.seconds, limits.seconds)
            stopped_by = self._watch(process, heard, until, scratch)
        finally:
            _end(process)
            status = process.wait()
            heard.finish()
        return Ran(status, heard.content, stopped_by or heard.stopped_by, time.monotonic() - started)

    def _watch(self, process: subprocess.Popen[bytes], heard: _Heard, until: float, scratch: Path) -> Stop | None:
        """Wait for the end of a command; gives the limit it met before."""
        limits, weigh_at = self._limits, time.monotonic() + WEIGH_S
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
                return "disk" if self._too_full(scratch) else None
            if heard.stopped_by:
                return heard.stopped_by
            if time.monotonic() >= until:
                return "time"
            number, memory = _used(process.pid)
            if number > limits.processes + 2:  # bubblewrap's own two
                return "processes"
            if memory > limits.memory_mb << 20:
                return "memory"
            if time.monotonic() >= weigh_at:
                if self._too_full(scratch):
                    return "disk"
                weigh_at = time.monotonic() + WEIGH_S

    def _too_full(self, scratch: Path) -> bool:
        """Whether there is more in the folder and `/tmp` together than may be."""
        limits = self._limits
        found = [folder.weigh(limits.entries) for folder in (self._folder, GuestFolder(scratch))]
        weight, entries = (sum(part) for part in zip(*found, strict=True))
        return weight > limits.disk_mb << 20 or entries >= limits.entries


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
        while part := self._source.read1(_READ):  # pyright: ignore[reportAttributeAccessIssue]
            size += len(part)
            if size > self._most:
                self.stopped_by = "output"
            else:
                self._parts.append(part)
                continue
            self._parts.append(part[: max(0, self._most - size + len(part))])
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command: first the process that all others inside die with, so that none lives when this returns."""
    if process.poll() is not None:
        return
    with contextlib.suppress(psutil.Error):
        inner = psutil.Process(process.pid).children()
        for child in inner:
            child.kill()
        if inner:
            psutil.wait_procs(inner, TRY_S)
    process.kill()


def _used(pid: int) -> tuple[int, int]:
    """How many processes stand below one, and their memory together in bytes."""
    number = memory = 0
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            number += 1
            with contextlib.suppress(psutil.Error):
                memory += child.memory_info().rss
    return number, memory


def _wrapped(folder: Path, scratch: Path, limits: BoxLimits, command: list[str]) -> list[str]:
    """The command line that runs a command inside. ``scratch`` is its `/tmp`."""
    wrap = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    wrap += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--clearenv", "--hostname", "box"]
    wrap += ["--setenv", "PATH", ":".join(_PROGRAMS), "--setenv", "HOME", INSIDE, "--setenv", "LANG", "C.UTF-8"]
    wrap += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/") / name
        if place.is_symlink():
            wrap += ["--symlink", f"usr/{name}", str(place)]
        elif place.is_dir():
            wrap += ["--ro-bind", str(place), str(place)]
    wrap += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev"]
    # Where we are root, so is the user inside to the kernel's settings, which ask for no right but that.
    wrap += ["--ro-bind", "/proc/sys", "/proc/sys"]
    # What is no folder of ours would lie in the machine's memory, where nobody counts it: none of it can be written.
    wrap += ["--bind", str(scratch), "/tmp", "--bind", str(folder.absolute()), INSIDE, "--chdir", INSIDE]
    wrap += ["--remount-ro", "/dev", "--remount-ro", "/", "--"]
    held = ["prlimit", f"--as={limits.memory_mb << 20}", f"--fsize={limits.file_mb << 20}", "--core=0"]
    held += [f"--nproc={limits.processes}", f"--cpu={max(1, round(limits.seconds))}", "--nofile=256", "--"]
    programs = {"bwrap": _program("bwrap"), "prlimit": _program("prlimit")}
    return [programs.get(word, word) for word in (*wrap, *held)] + command


def _program(name: str) -> str:
    """Where a program of the machine stands. Raises SandboxError with what to install."""
    found = shutil.which(name, path=":".join((*_PROGRAMS, "/bin")))
    if found is None:
        package = {"bwrap": "bubblewrap", "prlimit": "util-linux"}[name]
        raise SandboxError(
            f"commands of an agent run in a sandbox, and {name} is not here; install it "
            f"(Debian, Ubuntu, Fedora, Arch: the package {package})"
        )
    return found


@cache
def check_machine() -> None:
    """Whether this machine can hold commands. Raises SandboxError that says what to install or to allow."""
    if sys.platform != "linux":
        raise SandboxError("commands of an agent run in a sandbox of Linux; use a Linux machine or a virtual one")
    try:
        with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
            wrapped = _wrapped(Path(place), Path(place), BoxLimits(), ["/bin/true"])
            with counted(BoxLimits().processes) as before:
                wrapped = before + wrapped
                done = subprocess.run(wrapped, stdin=subprocess.DEVNULL, capture_output=True, env={}, timeout=TRY_S)
    except subprocess.TimeoutExpired:
        raise SandboxError(f"the sandbox (bwrap) did not start within {TRY_S:.0f} s; try again") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise SandboxError(
            f"the sandbox (bwrap, at least 0.8) does not start here: {said}; allow user namespaces "
            "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, or an AppArmor profile for bwrap)"
        )
