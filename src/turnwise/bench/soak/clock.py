"""A wall clock that can be stepped for the program alone, while the machine's own is never touched.

The program is started with ``stepped/sitecustomize.py`` in front of its modules, which Python runs first: its
`time.time` is the machine's and an offset that stands in a file. Monotonic clocks go on as they do on a machine whose
clock was set, and so does what does not ask Python for the time.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_STEPPED = Path(__file__).parent / "stepped"


class Clock:
    """An offset of the program's clock, in seconds. A step takes effect at once in all of its processes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(struct.pack("<d", 0.0))

    def step(self, seconds: float) -> None:
        with self._file.open("r+b") as file:  # the same bytes: the program looks into them
            file.write(struct.pack("<d", seconds))

    @property
    def environment(self) -> dict[str, str]:
        """What a program has to be started with so that its clock is this one."""
        path = os.pathsep.join(p for p in (str(_STEPPED), os.environ.get("PYTHONPATH", "")) if p)
        return {"PYTHONPATH": path, "TURNWISE_SOAK_CLOCK": str(self._file)}
