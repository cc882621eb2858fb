"""Chromium processes, each with one context for one rollout, driven by Playwright on a thread of their own.

One process a rollout at a time: what crashes or hangs it is that rollout's alone. For pages that are our own a process
is used again, with a context that is new; any other page has a process that nothing else has seen. What its pages may
reach is held by Chromium's own proxy rules: hosts that a task names are reached, anything else meets a proxy that is
not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from playwright.async_api import Browser, BrowserContext, Error, Playwright, async_playwright

from turnwise.environments.base import InfrastructureFailure
from turnwise.errors import TurnwiseError

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_S = 60.0
"""Longest wait for a driver or a browser."""
NOWHERE = "http://127.0.0.1:1"
"""A proxy that is not there. Every address that is not named goes to it, and so nowhere."""
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--deny-permission-prompts",
)
MOST_IDLE, MOST_USES = 8, 50
"""Processes that wait for a rollout, and rollouts of one."""
CLEAN_S = 5.0
"""Longest wait for a context to be closed; a process where it takes longer is ended."""
T = TypeVar("T")


def program() -> str:
    """Where a Chromium is. Raises TurnwiseError with what to install."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise TurnwiseError(
        "pages need a Chromium, and none is here; install one (Debian: chromium-headless-shell, Fedora: "
        "chromium-headless, macOS: brew install chromium)"
    )


class Driver:
    """Playwright on an event loop of its own. Others ask it from any thread by `run`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="browsers", daemon=True).start()
        self._playwright: Playwright | None = None
        self._starting = asyncio.Lock()
        self._idle: list[tuple[Browser, int]] = []
        """Processes that wait, all begun with the hosts of our own pages, and how many rollouts each has had."""

    def run(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """What ``work`` gives. Raises TimeoutError, and whatever it raises."""
        limited = asyncio.wait_for(work, within_s)
        return asyncio.run_coroutine_threadsafe(limited, self._loop).result(within_s + START_S)

    async def launch(self, hosts: Sequence[str], leads: Mapping[str, str] | None = None) -> Browser:
        """A browser whose pages reach these hosts alone (`host:port`, `*.host`). Raises InfrastructureFailure.

        ``leads``: where hosts are that no name service knows, as `{"shop.invalid:80": "127.0.0.1:40123"}`.
        """
        bypass = ";".join(["<-loopback>", *hosts])
        args = [*FLAGS, f"--proxy-server={NOWHERE}", f"--proxy-bypass-list={bypass}"]
        if leads:
            args.append("--host-resolver-rules=" + ",".join(f"MAP {name} {place}" for name, place in leads.items()))
        try:
            async with self._starting:
                if self._playwright is None:
                    self._playwright = await async_playwright().start()
            return await self._playwright.chromium.launch(
                executable_path=program(),
                headless=True,
                args=args,
                chromium_sandbox=False,
                timeout=START_S * 1000,
                handle_sigint=False,  # at Ctrl-C what is under way is played to its end
                handle_sigterm=False,
            )
        except Error as e:
            self._playwright = None
            raise InfrastructureFailure(f"the browser does not start: {first_line(e)}") from e

    def idle(self) -> tuple[Browser, int] | None:
        """A process that waits and is fit, and is the caller's from now on. Only on the loop."""
        while self._idle:
            browser, uses = self._idle.pop()
            if browser.is_connected():
                return browser, uses
        return None

    async def give_back(self, browser: Browser, uses: int) -> None:
        """Let a process wait for the next rollout, or end it where it has had enough of them."""
        if uses < MOST_USES and len(self._idle) < MOST_IDLE and browser.is_connected():
            self._idle.append((browser, uses))
        else:
            await _end(browser)

    async def end_idle(self) -> None:
        """End the processes that wait."""
        while self._idle:
            await _end(self._idle.pop()[0])


_making = threading.Lock()


def driver() -> Driver:
    """The driver of this process: one, however many threads ask for the first time at once."""
    with _making:
        return _the_driver()


@cache
def _the_driver() -> Driver:
    return Driver()


@contextlib.asynccontextmanager
async def opened(
    hosts: Sequence[str], width: int, height: int, ours: bool = False, leads: Mapping[str, str] | None = None
) -> AsyncIterator[BrowserContext]:
    """A context with one empty tab, in a browser that no other rollout has meanwhile. ``ours``: its pages are our own,
    always with the same ``hosts``, so that the browser may have had such a rollout before and have another later.
    ``leads``: as `launch` has it."""
    browser, uses = (driver().idle() if ours else None) or (await driver().launch(hosts, leads), 0)
    context = None
    try:
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            accept_downloads=False,
            service_workers="block",
            permissions=[],
            locale="en-US",
            timezone_id="UTC",
        )
        yield context
    finally:
        if ours and context is not None and await _closed(context):
            await driver().give_back(browser, uses + 1)
        else:
            await _end(browser)


async def _closed(context: BrowserContext) -> bool:
    """Whether nothing is left of a context."""
    try:
        async with asyncio.timeout(CLEAN_S):
            await context.close()
    except (Error, TimeoutError):
        return False
    return True


async def _end(browser: Browser) -> None:
    with contextlib.suppress(Error):
        await browser.close()


def first_line(error: BaseException) -> str:
    """What an error of Playwright's says, without its log of calls."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]
