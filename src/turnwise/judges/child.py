"""A child process that reads foreign text for the judge, with a deadline after which it is killed.

Patterns and parsers run here, never in the judge's own loop: whatever a text does to them costs one attempt of its
turn. The child has no files, no network and no model; it gets a function of the package and its arguments over a pipe
and sends the result back. It never outlives the judge: the kernel ends it with its parent (Linux), its alarm ends it
while it works, and a closed pipe ends it while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import pickle
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, ParamSpec, Protocol, TypeVar

from turnwise.errors import TurnwiseError

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

START_S = 60.0
"""How long a child may take to start, on a machine that is busy."""
ALARM_GRACE_S = 5.0
"""How much later than the judge the child's own alarm ends it."""
ENDING_S = 5.0
"""How long a child that has closed its pipe may take to end."""
MEMORY_BYTES = 1 << 30
"""Address space of a child: the largest request takes a tenth of it."""
_LENGTH = struct.Struct("!Q")
_PR_SET_PDEATHSIG = 1


class TooSlow(TurnwiseError):
    """A piece of work met its deadline, or took its process down. The turn should be tried again, and then given up."""


class ChildUnavailable(TurnwiseError):
    """No child could be started: the machine is at fault and no turn. The work should be done later."""


class Work(Protocol):
    """Calls a function of a module by value: in a child with a deadline, or, for `judge eval` and tests, right here."""

    async def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...


async def right_here(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Work in a thread of this process, without a deadline."""
    return await asyncio.to_thread(function, *args, **kwargs)


class Child:
    """One child at a time, started when it is first needed and again after it was killed. Calls wait for each other."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the child that runs now."""
        return self._process.pid if self._process is not None else None

    async def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result. Raises TooSlow at the deadline, RuntimeError with the child's words for a fault.

        Raises ChildUnavailable where no child could be started.
        """
        async with self._turn:
            process = self._process or await self._start()
            try:
                async with asyncio.timeout(self._deadline_s):
                    await _send(process, (self._deadline_s + ALARM_GRACE_S, function, args, kwargs))
                    done, value = await _receive(process)
            except TimeoutError:
                await self.close()
                raise TooSlow(
                    f"reading this turn took more than {self._deadline_s:g} s and was stopped; see judge.deadline_s"
                ) from None
            except (OSError, asyncio.IncompleteReadError) as e:
                code = await self.close(ending=True)
                raise TooSlow(f"the process that read this turn ended with code {code}: {e}") from e
            except BaseException:  # this call was cancelled: what the child is at now is nobody's
                await self.close()
                raise
        if not done:
            raise RuntimeError(value)
        return value

    async def close(self, *, ending: bool = False) -> int | None:
        """Kill the child, if there is one; gives how it ended. One that is ``ending`` has a moment to do so by itself:
        a kill looks whether it has ended, and asyncio could not say how any more."""
        process, self._process = self._process, None
        if process is None:
            return None
        if ending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDING_S):
                    return await process.wait()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            # Kept at once, so that a start which is cancelled or fails is cleaned up as well.
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "turnwise.judges.child", str(os.getpid())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(START_S):
                await _receive(process)
        except TimeoutError:
            await self.close()
            raise ChildUnavailable(f"the process that reads turns did not start within {START_S:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as e:
            await self.close()
            raise ChildUnavailable(f"the process that reads turns could not be started: {e}") from e
        except BaseException:  # this call was cancelled
            await self.close()
            raise
        log.info("process %d reads what comes back", process.pid)
        return process


async def _send(process: asyncio.subprocess.Process, value: object) -> None:
    assert process.stdin is not None
    data = pickle.dumps(value)
    process.stdin.write(_LENGTH.pack(len(data)) + data)
    await process.stdin.drain()


async def _receive(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
    return pickle.loads(await process.stdout.readexactly(length))


def main(parent: int) -> None:
    """The child: one call after the other, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process even while a pattern holds the interpreter
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # it died before the request was made
    calls, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may stand between the results
    import turnwise.judges.cut_off
    import turnwise.judges.signals.reading  # noqa: F401  now, so that no call's time goes into it

    _limit_memory()
    _answer(results, None)
    while (head := calls.read(_LENGTH.size)) and len(head) == _LENGTH.size:
        data = calls.read(_LENGTH.unpack(head)[0])
        alarm_s, function, args, kwargs = pickle.loads(data)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        try:
            result = (True, function(*args, **kwargs))
        except Exception as e:  # MemoryError is one
            result = (False, f"{type(e).__name__}: {e}")
        _answer(results, result)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory() -> None:
    """What needs more than MEMORY_BYTES ends as a MemoryError of its turn, not of the machine."""
    with contextlib.suppress(OSError, ValueError):  # not every system has such a limit, and not every start may set it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _answer(results: BinaryIO, value: object) -> None:
    data = pickle.dumps(value)
    results.write(_LENGTH.pack(len(data)) + data)
    results.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
