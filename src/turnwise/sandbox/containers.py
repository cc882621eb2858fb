"""Docker or Podman as another place for the shells of an episode, where there is one of them and no bubblewrap.

The image is one that is there already: nothing is fetched. Its root is read-only, `/tmp` is small and in memory, and
the folder is `/box`. There is no network at all, also none that was named: for that, bubblewrap is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from turnwise.errors import SandboxError
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.guest import start_process
from turnwise.sandbox.leftovers import is_left, named
from turnwise.sandbox.limits import INSIDE, TRY_S, Allowed, BoxLimits, Stop

NOT_BEGUN = 125
"""The status with which both say that there was no container."""


class ContainerLodging:
    """``program`` is `docker` or `podman`. Raises SandboxError."""

    settle_s = 0.05
    """Output and what is told of its end come over two lines."""

    def __init__(self, program: str, image: str, folder: GuestFolder, limits: BoxLimits, allowed: Allowed) -> None:
        if allowed.has_network:
            raise SandboxError(f"{program} opens no way out of a sandbox; use environments.sandbox = 'bubblewrap'")
        self._program, self._image, self._folder, self._limits, self._allowed = program, image, folder, limits, allowed

    def begin(self, input: int, output: int, error: int) -> Contained:
        name, limits = named(), self._limits
        line = [self._program, "run", "-i", "--rm", "--name", name, "--pull", "never", "--network", "none", "--init"]
        line += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--hostname", "box", "--read-only"]
        line += [
            "--memory",
            f"{limits.memory_mb}m",
            "--memory-swap",
            f"{limits.memory_mb}m",
            "--cpus",
            f"{limits.cores:g}",
        ]
        line += [
            "--pids-limit",
            str(limits.processes),
            "--ulimit",
            f"fsize={limits.file_mb << 20}",
            "--ulimit",
            "core=0",
        ]
        line += ["--tmpfs", f"/tmp:rw,size={limits.disk_mb}m,nr_inodes={limits.entries}", "--workdir", INSIDE]
        line += ["--userns", "keep-id"] if self._program == "podman" else []
        line += ["--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{self._folder.path.absolute()}:{INSIDE}"]
        for inside, outside in self._allowed.sees.items():
            line += ["--volume", f"{outside.absolute()}:{inside}:ro"]
        for variable, value in {"HOME": INSIDE, "LANG": "C.UTF-8", **self._allowed.variables}.items():
            line += ["--env", f"{variable}={value}"]
        line += [self._image, "/bin/sh", "-c", "exec $(command -v bash || echo sh) -s"]
        try:
            process = start_process(line, stdin=input, stdout=output, stderr=error, start_new_session=True)
        except OSError as e:
            raise SandboxError(f"{self._program} cannot be started: {e}") from e
        return Contained(self._program, name, process, self._folder, limits)

    def close(self) -> None:
        """Nothing is left of a container once it has ended."""


class Contained:
    """A shell in a container."""

    def __init__(
        self, program: str, name: str, process: subprocess.Popen[bytes], folder: GuestFolder, limits: BoxLimits
    ) -> None:
        self._program, self._name, self._process = program, name, process
        self._folder, self._limits = folder, limits

    @property
    def is_counted(self) -> bool:
        return True

    @property
    def began(self) -> bool:
        return self._process.poll() != NOT_BEGUN

    def over_limit(self) -> Stop | None:
        """Memory and processes are held by the container."""
        return None

    def killed_for_memory(self) -> int:
        """Not told while it lives."""
        return 0

    def too_full(self) -> bool:
        weight, entries = self._folder.weigh(self._limits.entries)
        return weight > self._limits.disk_mb << 20 or entries >= self._limits.entries

    def end(self) -> int:
        if self._process.poll() is None:
            _asked(self._program, "rm", "--force", self._name)
            try:
                self._process.wait(TRY_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()


def check_containers(program: str, image: str) -> None:
    """Raises SandboxError that says what is missing."""
    if shutil.which(program) is None:
        raise SandboxError(f"{program} is not here; install it, or set environments.sandbox = 'bubblewrap'")
    if fault := _asked(program, "info"):
        raise SandboxError(f"{program} does not answer: {fault}; start it, or set environments.sandbox = 'bubblewrap'")
    if _asked(program, "image", "inspect", image):
        raise SandboxError(
            f"{program} has no image {image}; fetch it with `{program} pull {image}`, or set environments.image"
        )


def clean_containers(program: str) -> int:
    """Take away what hosts left that live no more; says how many."""
    try:
        asked = [program, "ps", "--all", "--format", "{{.Names}}"]
        names = subprocess.run(asked, capture_output=True, text=True, timeout=TRY_S, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return 0
    left = [name for name in names if is_left(name)]
    return sum(not _asked(program, "rm", "--force", name) for name in left)


def _asked(program: str, *words: str) -> str:
    """What went wrong with a short request; empty where nothing did."""
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, errors="replace", timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return "" if done.returncode == 0 else (done.stderr.strip()[-300:] or f"status {done.returncode}")
