"""A Python that lasts over an episode, in the sandbox: names and imports of a call are there in the next one.

A call that meets a limit, and one that ends the interpreter, costs its state; the next call begins in a new one, and
the agent is told.
"""

from __future__ import annotations

import base64
import secrets
import shlex
from pathlib import Path

from turnwise.environments.terminal.environment import readable, shown
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.guest import BubblewrapLodging
from turnwise.sandbox.limits import BoxLimits
from turnwise.sandbox.shell import Shell

INSIDE = Path(__file__).with_name("inside.py")
LIMITS = BoxLimits(seconds=20, memory_mb=512, processes=32, disk_mb=64, output_kb=256)
LOST = "(the interpreter was ended; the next call begins in a new one, without the names of this one)"
ENDED = 97
"""Status of the command that speaks to the interpreter where that has ended."""


class Interpreter:
    """Runs calls one after the other; ``folder`` holds what they write. Raises SandboxError."""

    def __init__(self, folder: Path, limits: BoxLimits = LIMITS) -> None:
        box = folder / "box"
        box.mkdir(mode=0o700)
        self._limits = limits
        self._shell = Shell(BubblewrapLodging(GuestFolder(box), limits, layered=False), limits)
        # The lines to it stand apart from its input, which is empty, and from its output, which is the agent's.
        start = f"python3 -I -B -c {shlex.quote(INSIDE.read_text(encoding='utf-8'))}"
        self._start = f'[ -n "$PY_PID" ] || coproc PY {{ exec {start} 6<&0 </dev/null 5>&1 >&2; }}'

    def run(self, code: str) -> str:
        """What the agent is told of a call."""
        number, sent = secrets.token_hex(8), base64.b64encode(code.encode()).decode()
        told = f'told= && while [ "$told" != {number} ]; do IFS= read -r told <&"${{PY[0]}}" || exit {ENDED}; done'
        ran = self._shell.run(f"{self._start}\nprintf '%s %s\\n' {number} {sent} >&\"${{PY[1]}}\"\n{told}")
        if ran.stopped_by is not None:
            return f"{shown(ran, self._limits)}\n{LOST}"
        if ran.restarted or ran.status:
            return f"{readable(ran.output)}\n{LOST}".strip()
        return readable(ran.output) or "(it printed nothing)"

    def close(self) -> None:
        """End it. May be called again."""
        self._shell.close()
