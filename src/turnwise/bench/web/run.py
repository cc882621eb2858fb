"""Browsers of the web's environment, a number at once, and what a look and a screenshot cost beside bare Playwright.

All of a number are begun before the first plays, so that they really are there at once. A step is one click on a page
of MiniWoB++, with what the agent is told of it and the text of the page after it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psutil
from playwright.async_api import Page

from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.environments.base import Action, Call
from turnwise.environments.browser import miniwob
from turnwise.environments.browser.chromium import driver, opened, program
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.miniwob_tasks import miniwob_task
from turnwise.environments.browser.tab import Tabs
from turnwise.errors import TurnwiseError

PAGE, SEED = "click-checkboxes-large", 1
"""A page with some thirty elements. The click is into a corner of it, where nothing is, so that the episode goes on."""
CLICK = Action((Call("click", {"x": 490, "y": 310}),))
ALONE = 30
"""Times that each way to look is measured, one after the other."""
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Browsers:
    """A number of browsers at once. Times in seconds, memory in bytes of one."""

    number: int
    begin_s: float
    play_s: float
    steps: int
    step_p50: float
    step_p95: float
    memory: float


def bench_web(numbers: Sequence[int], steps: int, say: Callable[[str], None]) -> BenchReport:
    """Raises TurnwiseError where there is no browser, InfrastructureFailure where one fails."""
    program()
    crowds = []
    for number in numbers:
        crowds.append(_crowd(number, steps))
        say(f"{number} at once: {number * steps / crowds[-1].play_s:.1f} steps/s")
    figures = driver().run(_alone(), LIMIT_S)
    driver().run(driver().end_idle(), LIMIT_S)
    header = ["at once", "begun/s", "steps/s", "step p50 · p95 (ms)", "memory each"]
    return BenchReport(
        "turnwise bench web",
        figures,
        [
            f"Each browser is a Chromium of its own at `{PAGE}`; a step is a click, what the agent is told of it, and "
            f"the text of the page; {steps} in each.",
            "Memory is the proportional share (PSS) of all processes of the browsers, divided by their number; the "
            "driver's own process is not in it.",
            f"A look and a screenshot are medians of {ALONE}, one after the other, in one browser and on one page.",
        ],
        [Grid("Browsers at once", header, [_row(each) for each in crowds])],
    )


def _crowd(number: int, steps: int) -> Browsers:
    made = [BrowserEnvironment(steps + 2) for _ in range(number)]
    times: list[float] = []

    def play(one: BrowserEnvironment) -> None:
        for _ in range(steps):
            started = time.perf_counter()
            observation, over = one.step(CLICK)
            times.append(time.perf_counter() - started)
            if over or not observation.results[0].startswith("Succeeded"):
                raise TurnwiseError(f"a click said {observation.results[0][:200]!r}")

    driver().run(driver().end_idle(), LIMIT_S)  # each is begun anew
    try:
        with ThreadPoolExecutor(number) as pool:
            begin_s = _timed(lambda: list(pool.map(lambda one: one.reset(miniwob_task(PAGE, SEED)), made)))
            memory = sum(each.memory_full_info().pss for each in browser_processes())
            play_s = _timed(lambda: list(pool.map(play, made)))
    finally:
        for one in made:
            one.close()
    times.sort()
    p95 = times[int(len(times) * 0.95)]
    return Browsers(number, begin_s, play_s, steps, times[len(times) // 2], p95, memory / number)


def browser_processes() -> list[psutil.Process]:
    """Those of Chromium below us."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                found.append(process)
        except psutil.Error:  # it has just ended
            continue
    return found


async def _alone() -> list[Figure]:
    """What a look costs here, and the same work in bare Playwright on the same page."""
    async with opened((miniwob.HOST,), *miniwob.MINIWOB_WINDOW) as context:
        tabs = Tabs(context)
        await tabs.open()
        await miniwob.serve(context)
        await miniwob.begin(tabs.front, PAGE, SEED)
        page = tabs.front
        # The first of each opens what later ones use.
        ours: list[tuple[str, Callable[[], Awaitable[Any]], str, Callable[[], Awaitable[Any]]]] = [
            ("did anything change", tabs.state, "page.evaluate of an address and a count", lambda: _bare_state(page)),
            ("the text that an agent sees", tabs.seen, "page.aria_snapshot", lambda: _bare_tree(page)),
            ("screenshot", page.screenshot, "none: it is Playwright's own", page.screenshot),
        ]
        figures = []
        for what, one, peer, other in ours:
            mine, bare = await _medians(one, other)
            ratio = "" if what == "screenshot" else f"{mine / bare:.2f}"
            beside = peer if what == "screenshot" else f"{peer}: {bare * 1000:.1f} ms"
            figures.append(Figure(f"{what}, p50", f"{mine * 1000:.1f} ms", beside, ratio))
        return figures


async def _bare_state(page: Page) -> Any:
    return await page.evaluate("() => [location.href, scrollY, document.all.length]")


async def _bare_tree(page: Page) -> Any:
    return await page.locator("body").aria_snapshot()


async def _medians(one: Callable[[], Awaitable[Any]], other: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Of both in turn, so that what else the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for at in range(ALONE + 1):
        for kept, work in zip(times, (one, other), strict=True):
            started = time.perf_counter()
            await asyncio.wait_for(work(), LIMIT_S)
            if at:
                kept.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _row(crowd: Browsers) -> list[str]:
    return [
        str(crowd.number),
        f"{crowd.number / crowd.begin_s:.1f}",
        f"{crowd.number * crowd.steps / crowd.play_s:.1f}",
        f"{crowd.step_p50 * 1000:.0f} · {crowd.step_p95 * 1000:.0f}",
        f"{crowd.memory / 1e6:.0f} MB",
    ]
