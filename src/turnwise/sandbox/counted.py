"""Holds how many processes a command may have, where `prlimit` does not: the kernel exempts root from that limit.

Root therefore needs a control group of its own for each command (`pids`, version 1 or 2). Anybody else needs none.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from turnwise.errors import SandboxError

GROUPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Where groups with such a limit are made: version 1, version 2."""
OVERHEAD = 4
"""Processes of the sandbox itself."""
GONE_S = 5.0
"""Longest wait until the processes of a command that was ended are gone."""


@contextlib.contextmanager
def counted(most: int) -> Iterator[list[str]]:
    """The words to put before a command so that it has at most ``most`` processes. Raises SandboxError."""
    if os.geteuid() != 0:
        yield []
        return
    group = _made(most + OVERHEAD)
    try:
        yield ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        _take_away(group)


def _made(most: int) -> Path:
    for root in GROUPS:
        group = root / f"turnwise-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            limit = group / "pids.max"
            if limit.exists():  # else this is no folder of groups, or none that may count
                limit.write_text(str(most))
                return group
        except OSError:
            pass
        with contextlib.suppress(OSError):
            group.rmdir()
    raise SandboxError(
        "as root a command of an agent could start processes without end: no control group can be made in "
        f"{' or '.join(map(str, GROUPS))}; run turnwise as another user, or let it write there"
    )


def _take_away(group: Path) -> None:
    """A group goes once its last process has; those of a command are ended by now, and may need a moment."""
    until = time.monotonic() + GONE_S
    while time.monotonic() < until:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return
