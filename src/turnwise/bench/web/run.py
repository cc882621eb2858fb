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
from typing import Any

from playwright.async_api import Page

from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.bench.web.bare import Browsers, bare_crowd
from turnwise.bench.web.processes import browser_memory
from turnwise.environments.base import Action, Call
from turnwise.environments.browser import miniwob
from turnwise.environments.browser.acting import SETTLE_S
from turnwise.environments.browser.chromium import driver, opened, program
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.miniwob_tasks import miniwob_task
from turnwise.environments.browser.tab import Tabs
from turnwise.errors import TurnwiseError

PAGE, SEED = "click-checkboxes-large", 1
"""A page with some thirty elements. The click is into a corner of it, where nothing is, so that the episode goes on."""
CORNER = (490, 310)
CLICK = Action((Call("click", {"x": CORNER[0], "y": CORNER[1]}),))
ALONE = 30
"""Times that each way to look is measured, one after the other."""
LIMIT_S = 600.0


def bench_web(numbers: Sequence[int], steps: int, say: Callable[[str], None]) -> BenchReport:
    """Raises TurnwiseError where there is no browser, InfrastructureFailure where one fails."""
    program()
    driver().run(_started(), LIMIT_S)
    crowds = []
    for number in numbers:
        ours = _crowd(number, steps)
        driver().run(driver().end_idle(), LIMIT_S)  # they are not to be counted with those of the peer
        bare = driver().run(bare_crowd(number, steps, PAGE, SEED, CORNER), LIMIT_S)
        crowds.append((ours, bare))
        say(f"{number} at once: {ours.steps_per_s:.1f} steps/s; bare Playwright: {bare.steps_per_s:.1f}")
    figures = driver().run(_alone(), LIMIT_S)
    driver().run(driver().end_idle(), LIMIT_S)
    header = ["at once", "", "begun/s", "steps/s", "step p50 · p95 (ms)", "memory each"]
    return BenchReport(
        "turnwise bench web",
        figures,
        [
            f"Each browser is a Chromium of its own at `{PAGE}`; a step is a click, what the agent is told of it, and "
            f"the text of the page; {steps} in each.",
            "Bare Playwright clicks and reads `aria_snapshot` of the page; it does not wait "
            f"{SETTLE_S * 1000:.0f} ms for the page to react, asks not what changed, and its pages may go anywhere.",
            "Memory is the proportional share (PSS) of all processes of the browsers, divided by their number; the "
            "driver's own process is not in it.",
            f"A look and a screenshot are medians of {ALONE}, one after the other, in one browser and on one page.",
        ],
        [Grid("Browsers at once", header, [row for ours, bare in crowds for row in _rows(ours, bare)])],
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
            memory = browser_memory()
            play_s = _timed(lambda: list(pool.map(play, made)))
    finally:
        for one in made:
            one.close()
    return Browsers(number, begin_s, play_s, steps, tuple(sorted(times)), memory / number)


async def _started() -> None:
    """Have Playwright's own process before the first browser is timed, as its peer has it."""
    async with opened((miniwob.HOST,), *miniwob.MINIWOB_WINDOW):
        pass


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
            ("screenshot", tabs.picture, "page.screenshot", page.screenshot),
        ]
        figures = []
        for what, one, peer, other in ours:
            mine, bare = await _medians(one, other)
            beside = f"{peer}: {bare * 1000:.1f} ms"
            figures.append(Figure(f"{what}, p50", f"{mine * 1000:.1f} ms", beside, f"{mine / bare:.2f}"))
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


def _rows(ours: Browsers, bare: Browsers) -> list[list[str]]:
    """Both, and the one in parts of the other."""
    rows = [_row("turnwise", ours), _row("bare Playwright", bare)]
    pairs = [(_p(ours, at), _p(bare, at)) for at in (0.5, 0.95)]
    ratios = [bare.begin_s / ours.begin_s, ours.steps_per_s / bare.steps_per_s, ours.memory / bare.memory]
    begun, steps, memory = (f"{ratio:.2f}" for ratio in ratios)
    return [*rows, [str(ours.number), "ratio", begun, steps, " · ".join(f"{a / b:.2f}" for a, b in pairs), memory]]


def _row(who: str, crowd: Browsers) -> list[str]:
    return [
        str(crowd.number),
        who,
        f"{crowd.number / crowd.begin_s:.1f}",
        f"{crowd.steps_per_s:.1f}",
        f"{_p(crowd, 0.5) * 1000:.0f} · {_p(crowd, 0.95) * 1000:.0f}",
        f"{crowd.memory / 1e6:.0f} MB",
    ]


def _p(crowd: Browsers, share: float) -> float:
    return crowd.times[int(len(crowd.times) * share)]
