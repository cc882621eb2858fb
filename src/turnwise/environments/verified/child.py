"""The process that has `verifiers`, in the sandbox: it is asked in lines of JSON, each with a limit of time.

It sees its own Python and the taskset's folder, and has no network. `verifiers` asks for other versions of packages
than turnwise, so it lives in an environment of its own in the cache folder, which `make verifiers` makes.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.config import cache_dir
from turnwise.environments.base import InfrastructureFailure
from turnwise.errors import ConfigError, SandboxError
from turnwise.sandbox.bubblewrap import Room
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.guest import Ends, Guest
from turnwise.sandbox.leftovers import named
from turnwise.sandbox.limits import Allowed, BoxLimits

VERSION = "0.4.0"
INSIDE_FILE = Path(__file__).with_name("inside.py")
PROGRAM, TASKSET = "/given/inside.py", "/taskset"
"""Where our script and the taskset's folder stand for it."""
LIMITS = BoxLimits(seconds=300, memory_mb=4096, processes=128, disk_mb=128)
ANSWER_S = 60.0
"""Longest wait for one answer, the first apart."""
BEGIN_S = 120.0
"""Longest wait for the first: its imports take some seconds."""
MOST_BYTES = 32 << 20
"""Of one answer."""
LOOK_S = 0.5


class LimitMet(InfrastructureFailure):
    """The process took more time, memory or room than it may have."""


class TasksetRefused(Exception):
    """It answered that something cannot be done; the text is of bounded length."""


def verifiers_python() -> Path:
    """The Python that has it. Raises ConfigError where it is not installed."""
    folder = cache_dir() / f"verifiers-{VERSION}"
    if not (folder / ".installed").exists():
        raise ConfigError(f"verifiers {VERSION} is not installed; `make verifiers` does it")
    return folder / "bin" / "python"


class TasksetProcess:
    """Raises InfrastructureFailure where it cannot be started, ends, or meets a limit. ``place`` is a folder of ours
    that it makes and deletes, ``tasks`` that of a taskset which is not installed."""

    def __init__(self, place: Path, tasks: Path | None) -> None:
        self._place, self._number, self._rest = place, 0, b""
        python = verifiers_python()
        folder = python.parents[1]
        base = python.resolve().parents[1]
        sees = {str(folder): folder, PROGRAM: INSIDE_FILE}
        if not base.is_relative_to("/usr") and base != folder:
            sees[str(base)] = base
        sees |= {} if tasks is None else {TASKSET: tasks}
        variables = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        asks, self._asks = os.pipe()
        self._hears, says = os.pipe()
        self._guest: Guest | None = None
        try:
            box, room = place / "box", place / named()
            box.mkdir(parents=True, mode=0o700)
            room.mkdir(mode=0o700)
            log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                command = [str(python), "-B", PROGRAM, *([] if tasks is None else [TASKSET])]
                of = (Room(box, room), LIMITS, Allowed(sees=sees, variables=variables), command)
                self._guest = Guest(*of, Ends(asks, says, log), 20)
            finally:
                os.close(log)
        except (OSError, SandboxError) as e:
            self.close()
            raise InfrastructureFailure(f"the sandbox cannot be made: {e}") from e
        finally:
            os.close(asks)
            os.close(says)

    def ask(self, what: str, **more: Any) -> Mapping[str, Any]:
        """Its answer. Raises TasksetRefused where it says that it cannot be done."""
        self._number += 1
        until = time.monotonic() + (BEGIN_S if self._number == 1 else ANSWER_S)
        self._send(json.dumps({"ask": what, "number": self._number, **more}).encode() + b"\n", until)
        said = self._heard(until)
        if "refused" in said:
            raise TasksetRefused(str(said["refused"])[:500])
        return said

    def close(self) -> None:
        """End it and delete what it wrote. May be called again."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.end()
        if self._asks >= 0:
            os.close(self._asks)
            os.close(self._hears)
            self._asks = self._hears = -1
        delete_folder(self._place)

    def _send(self, line: bytes, until: float) -> None:
        os.set_blocking(self._asks, False)
        while line:
            if not select.select([], [self._asks], [], LOOK_S)[1]:
                self._look(until)
                continue
            try:
                line = line[os.write(self._asks, line) :]
            except OSError as e:
                raise InfrastructureFailure(f"the process of the taskset has ended: {self._last_words()}") from e

    def _heard(self, until: float) -> Mapping[str, Any]:
        while b"\n" not in self._rest:
            if time.monotonic() >= until:
                self._look(until)
            if select.select([self._hears], [], [], LOOK_S)[0]:
                part = os.read(self._hears, 1 << 16)
                self._rest += part
                if not part or len(self._rest) > MOST_BYTES:
                    why = "has ended" if not part else "answers without end"
                    raise InfrastructureFailure(f"the process of the taskset {why}: {self._last_words()}")
            else:
                self._look(until)
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("number") != self._number:
            raise InfrastructureFailure("the process of the taskset gives another answer than it was asked for")
        return said

    def _look(self, until: float) -> None:
        """Raises InfrastructureFailure where it has taken too much."""
        assert self._guest is not None
        beyond = "time" if time.monotonic() >= until else self._guest.over_limit()
        beyond = beyond or ("disk" if self._guest.too_full() else None)
        if beyond is not None:
            raise LimitMet(f"the process of the taskset met its limit of {beyond}")

    def _last_words(self) -> str:
        try:
            return GuestFolder(self._place).read("log", 1 << 20).decode(errors="replace").strip()[-300:]
        except (OSError, SandboxError):
            return "it said nothing"
