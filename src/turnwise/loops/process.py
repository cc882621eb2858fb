"""What every loop process does the same way: reads its configuration, logs to stderr, and stops when asked.

SIGTERM and SIGINT set an event; the loop finishes what it must and returns. If its supervisor dies, the loop stops
too. While it lives it says so (`lifeline`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from turnwise.config import Config, load_config
from turnwise.errors import TurnwiseError
from turnwise.loops import lifeline

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
SUPERVISOR_PID = "TURNWISE_SUPERVISOR_PID"
"""Environment variable in which a supervisor gives its loops its process id."""
_PR_SET_PDEATHSIG = 1


def loop_main(
    name: str,
    parser: argparse.ArgumentParser,
    run: Callable[[Config, argparse.Namespace, asyncio.Event], Awaitable[None]],
    *,
    beats_itself: bool = False,
) -> None:
    """Parse arguments, run the loop, exit 0 when asked to stop, 1 on an error a person can mend.

    Signs of life come from the event loop. A loop that works in a thread of its own gives them from there:
    `beats_itself`.
    """
    parser.add_argument("--config", type=Path, help="the TOML file; default: config.toml in the home folder")
    parser.add_argument("--home", type=Path, help="the home folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    die_with_parent()
    try:
        config = load_config(args.config, {"home": args.home} | parse_overrides(args.set))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_until_asked(config, args, run, beats_itself))
    except TurnwiseError as e:
        logging.getLogger(name).error("%s", e)
        sys.exit(1)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it exists: it takes a fifth less of the gateway's time (docs/decisions/0005)."""
    try:
        import uvloop
    except ImportError:  # it is not made for every system
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _until_asked(
    config: Config,
    args: argparse.Namespace,
    run: Callable[[Config, argparse.Namespace, asyncio.Event], Awaitable[None]],
    beats_itself: bool,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    beating = None if beats_itself else asyncio.create_task(lifeline.beating())
    try:
        await run(config, args, stop)
    finally:
        if beating is not None:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating


def parse_overrides(pairs: list[str]) -> dict[str, object]:
    """`["train.lr=1e-4"]` as `{"train.lr": "1e-4"}`; the typed tree turns the text into the key's type."""
    overrides: dict[str, object] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise TurnwiseError(f"--set takes KEY=VALUE, not {pair!r}")
        overrides[key] = value
    return overrides


def die_with_parent() -> None:
    """Have this process end when its supervisor is killed, so that no loop is left behind.

    Every loop may be killed at any moment without harm, and a stopped supervisor stops its loops in order first. The
    line to the supervisor does it on every system. On Linux the kernel does it too, even while this process lets no
    thread of Python run. The supervisor says who it is, because no pid says it by itself: in a container it may well be
    process 1.
    """
    lifeline.attach()
    supervisor = os.environ.get(SUPERVISOR_PID)
    if sys.platform != "linux" or not supervisor:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != supervisor:
        sys.exit(0)  # it died before the request was made
