"""Runs `busy_times` in a process of its own, with limits on time and memory: a calendar may be hostile.

`RRULE:FREQ=SECONDLY` since 1970 is 20 bytes and keeps a processor busy for a day. The child gets the calendar on its
input, as it was fetched, writes times on its output, and is killed at its limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from turnwise.errors import SensorFault
from turnwise.schedule.calendar.busy import Busy, busy_times
from turnwise.schedule.calendar.trimming import trimmed

LIMIT_S = 20.0
"""Longest reading of a calendar: the largest that is taken needs a third of it on a slow machine."""
MEMORY_BYTES = 1 << 30


def bounded_busy_times(
    content: bytes, start: datetime, end: datetime, zone: ZoneInfo | None, mine: str = ""
) -> list[Busy]:
    """The busy times of a calendar as it was fetched; `mine` is the person's address. Raises SensorFault, also at a
    limit."""
    asked = {"start": start.isoformat(), "end": end.isoformat(), "zone": zone.key if zone else None, "mine": mine}
    asked |= {"memory": MEMORY_BYTES, "seconds": int(LIMIT_S) + 1}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(asked).encode() + b"\n" + content,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SensorFault(f"its series take longer than {LIMIT_S:g} seconds to work out") from None
    except OSError as e:
        raise SensorFault(f"no process could be started to read it: {e.strerror}") from None
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise SensorFault(f"reading it ended with code {done.returncode}, as for want of memory") from None
    if "fault" in told:
        raise SensorFault(told["fault"])
    return [Busy(datetime.fromisoformat(begins), datetime.fromisoformat(ends)) for begins, ends in told["busy"]]


def main() -> None:
    """The child: what is asked and the calendar on the standard input, one answer on the standard output."""
    asked = json.loads(sys.stdin.buffer.readline())
    _limit(asked["memory"], asked["seconds"])
    zone = ZoneInfo(asked["zone"]) if asked["zone"] else None
    start, end = (datetime.fromisoformat(asked[name]) for name in ("start", "end"))
    try:
        busy = busy_times(trimmed(sys.stdin.buffer.read(), start, asked["mine"]), start, end, zone)
        told = {"busy": [[each.start.isoformat(), each.end.isoformat()] for each in busy]}
    except SensorFault as e:
        told = {"fault": str(e)}
    except MemoryError:
        told = {"fault": "it takes more memory than it may"}
    json.dump(told, sys.stdout)


def _limit(memory: int, seconds: int) -> None:
    if sys.platform == "win32":
        return
    import os
    import resource

    os.nice(10)  # the person may be at work
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # should who asked be dead


if __name__ == "__main__":
    main()
