"""Run by Python before anything else in the program under soak: its wall clock is the machine's and an offset.

Does nothing in a process that was not given a clock.
"""

import mmap
import os
import struct
import time
from pathlib import Path


def _step() -> None:
    with Path(os.environ["TURNWISE_SOAK_CLOCK"]).open("rb") as file:
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns

    def stepped() -> float:
        return real() + struct.unpack_from("<d", offset)[0]

    def stepped_ns() -> int:
        return real_ns() + int(struct.unpack_from("<d", offset)[0]) * 1_000_000_000

    time.time, time.time_ns = stepped, stepped_ns


if "TURNWISE_SOAK_CLOCK" in os.environ:
    _step()
