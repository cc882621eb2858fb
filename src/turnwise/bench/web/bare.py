"""The peer of the bench of browsers: bare Playwright with as many browsers, on the same page, with the same click.

Its browsers have Playwright's own flags, and its step is what a script would do: click, and read the page as
Playwright's text of it. It does not wait for the page to react, nor ask what changed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from playwright.async_api import Page, Playwright, async_playwright

from turnwise.bench.web.processes import browser_memory
from turnwise.environments.browser import miniwob
from turnwise.environments.browser.chromium import program


@dataclass(frozen=True, slots=True)
class Browsers:
    """A number of browsers at once. Times in seconds, memory in bytes of one."""

    number: int
    begin_s: float
    play_s: float
    steps: int
    times: tuple[float, ...]
    """Of each step, in order of their length."""
    memory: float

    @property
    def steps_per_s(self) -> float:
        return self.number * self.steps / self.play_s


async def bare_crowd(number: int, steps: int, page: str, seed: int, at: tuple[int, int]) -> Browsers:
    """That many browsers of Playwright alone; each clicks so often at a place of a page of MiniWoB++."""
    times: list[float] = []

    async def begun(playwright: Playwright, stack: AsyncExitStack) -> Page:
        browser = await playwright.chromium.launch(executable_path=program(), chromium_sandbox=False)
        stack.push_async_callback(browser.close)
        width, height = miniwob.MINIWOB_WINDOW
        context = await browser.new_context(viewport={"width": width, "height": height})
        await miniwob.serve(context)
        opened = await context.new_page()
        await miniwob.begin(opened, page, seed)
        return opened

    async def play(opened: Page) -> None:
        for _ in range(steps):
            started = time.perf_counter()
            await opened.mouse.click(*at)
            await opened.locator("body").aria_snapshot()
            times.append(time.perf_counter() - started)

    async with async_playwright() as playwright, AsyncExitStack() as stack:
        started = time.perf_counter()
        pages = await asyncio.gather(*(begun(playwright, stack) for _ in range(number)))
        begin_s = time.perf_counter() - started
        memory = await asyncio.to_thread(browser_memory)
        started = time.perf_counter()
        await asyncio.gather(*map(play, pages))
        play_s = time.perf_counter() - started
    return Browsers(number, begin_s, play_s, steps, tuple(sorted(times)), memory / number)
