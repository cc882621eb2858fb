"""A browser as an environment: an action is calls of its tools, an observation what changed and what is in the window.

Every text of a page is hostile: it is bounded, stands in quotation marks or behind its element's name, and never
decides about the outcome, which the task's own verifier does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from urllib.parse import urlsplit

from playwright.async_api import Error

from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.browser import miniwob
from turnwise.environments.browser.acting import LOAD_S, TRIES, do, goto
from turnwise.environments.browser.chromium import driver, first_line, opened
from turnwise.environments.browser.feedback import Done, told
from turnwise.environments.browser.tab import PageHangs, Tabs
from turnwise.environments.browser.web_task import WebTask, web_task
from turnwise.environments.failing_hosts import FailingHosts
from turnwise.errors import DataError

MOST_UNREADABLE = 3
"""Answers in a row without a call that can be done, after which the episode ends."""
MOST_CALLS = 10
"""Calls of one answer that are done."""
CALLS_S = 100.0
"""After this long no further call of an answer is begun: with the longest one all stays below STEP_S."""
STEP_S = 180.0
"""Longest time for all of a step; a machine that takes longer failed."""
FORMAT = "No call of a tool was found in your answer. Call one or more of your tools."
NOT_DONE = "Not done: a call before it ended the task, or there were too many."
TOO_LATE = f"Not done: the calls before it took {CALLS_S:g} s."
T = TypeVar("T")


class BrowserEnvironment:
    """Plays tasks of the web, each in a browser of its own. An answer that is a repeated format error ends with -1."""

    def __init__(self, most_steps: int = 15, failing: FailingHosts | None = None) -> None:
        self._most_steps = most_steps
        self._failing = failing
        """Hosts that are left out; None: none is."""
        self._task: WebTask | None = None
        self._stack = AsyncExitStack()
        self._tabs: Tabs
        self.details: dict[str, Any] = {}

    def reset(self, task: Task) -> Observation:
        """Start a browser at the task's page. Raises InfrastructureFailure."""
        self.close()
        try:
            self._task = web_task(task.data)
        except DataError as e:
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        self._steps = self._in_a_row = self._unreadable = 0
        self._ended, self._answer = "", None
        self._outcome: TaskOutcome | None = None
        self._faults: Counter[str] = Counter()
        self._failed: dict[str, str] = {}
        """Hosts that failed in this episode, and with what."""
        self._verdict: float | None = None
        self._mark = ""
        goal = self._within(self._begin(self._task), "begin")
        return Observation("\n\n".join(part for part in (task.prompt, goal, self._look()) if part))

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Do the calls one after the other. Raises InfrastructureFailure where the browser fails."""
        if self._task is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._steps += 1
        if not action.calls:
            self._count_unreadable(True)
            said, results = FORMAT, ()
        else:
            results = tuple(self._within(self._calls(self._task, action), "act"))
            said = ""
        if not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        seen = "" if self._ended else self._look()
        return Observation("\n\n".join(part for part in (said, seen) if part), results), bool(self._ended)

    def score(self) -> TaskOutcome:
        """What came of it (OpenWebRL, A.4): -1 after repeated format errors, 1 for a task that was solved, else 0."""
        if self._task is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            said: dict[str, Any] = {"ended": self._ended or "agent", "steps": self._steps, "answer": self._answer}
            said |= {"unreadable": self._unreadable, "faults": dict(self._faults)}
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            self._outcome = TaskOutcome(self._reward(self._task), said, cut_off)
            self._tell_of_hosts(self._task)
        return self._outcome

    def close(self) -> None:
        """End the browser."""
        self._task = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            driver().run(stack.aclose(), STEP_S)
        except (Error, TimeoutError) as e:
            raise InfrastructureFailure(f"the browser of an episode cannot be ended: {first_line(e)}") from e

    def _reward(self, task: WebTask) -> float:
        if self._ended == "format":
            return -1.0
        if task.miniwob is not None:
            return float(self._verdict is not None and self._verdict >= 1)
        return float(self._answer is not None and bool(self._answer.strip()) and task.is_right(self._answer))

    def _tell_of_hosts(self, task: WebTask) -> None:
        if self._failing is None or task.url is None:
            return
        for host, why in self._failed.items():
            self._failing.failed(host, why)
        if (begun := urlsplit(task.url).netloc) not in self._failed:
            self._failing.worked(begun)

    def _look(self) -> str:
        """The page as text."""
        assert self._task is not None
        return self._within(_page_text(self._tabs, self._task.window), "look")

    def _within(self, work: Coroutine[Any, Any, T], what: str) -> T:
        try:
            return driver().run(work, STEP_S)
        except TimeoutError:
            raise InfrastructureFailure(f"the browser took longer than {STEP_S:g} s ({what})") from None
        except Error as e:
            raise InfrastructureFailure(f"the browser failed ({what}): {first_line(e)}") from e

    async def _begin(self, task: WebTask) -> str:
        """Gives what the page itself asks for, if it does."""
        context = await self._stack.enter_async_context(opened(task.hosts, *task.window, ours=task.miniwob is not None))
        self._tabs = Tabs(context)
        await self._tabs.open()
        if task.miniwob is not None:
            await miniwob.serve(context)
            goal, self._mark = await miniwob.begin(self._tabs.front, task.miniwob, task.seed)
            return goal
        assert task.url is not None
        host = urlsplit(task.url).netloc
        if self._failing is not None and (why := self._failing.why_left_out(host)) is not None:
            raise InfrastructureFailure(why)
        try:
            async with asyncio.timeout(LOAD_S * TRIES + 5):
                await goto(self._tabs, task.url)
        except (Error, TimeoutError) as e:
            if self._failing is not None:
                self._failing.failed(host, first_line(e))
            raise InfrastructureFailure(f"the site {task.url[:200]} does not open: {first_line(e)}") from e
        return ""

    async def _calls(self, task: WebTask, action: Action) -> list[str]:
        results: list[str] = []
        readable = False
        began = time.monotonic()
        for call in action.calls:
            if self._ended or len(results) >= MOST_CALLS:
                results.append(NOT_DONE)
                continue
            if time.monotonic() - began > CALLS_S:
                results.append(TOO_LATE)
                continue
            done = await do(self._tabs, call, *task.window)
            readable |= done.readable
            if done.fault is not None:
                self._faults[done.fault[0]] += 1
                if done.fault[0] in ("site", "network"):
                    at = urlsplit(str(done.arguments.get("url") or self._tabs.front.url))
                    self._failed |= {at.netloc: done.fault[1]} if at.netloc else {}
            results.append(told(done))
            await self._after(task, done)
        self._count_unreadable(not readable)
        return results

    async def _after(self, task: WebTask, done: Done) -> None:
        """Whether the call ended the task."""
        if task.miniwob is not None:
            pages = self._tabs.pages
            self._verdict = await miniwob.result(pages[0], self._mark) if pages else None
            if self._verdict is not None:
                self._ended = "page"
        if done.tool == "done" and done.fault is None:
            self._answer, self._ended = done.arguments["answer"], self._ended or "agent"

    def _count_unreadable(self, this_one: bool) -> None:
        self._in_a_row = self._in_a_row + 1 if this_one else 0
        self._unreadable += this_one
        if self._in_a_row >= MOST_UNREADABLE and not self._ended:
            self._ended = "format"


async def _page_text(tabs: Tabs, window: tuple[int, int]) -> str:
    """Address, title, and what stands in the window, an element a line with its middle."""
    try:
        state = await tabs.state()
        seen = await tabs.seen()
    except PageHangs as e:
        return f"({e})"
    lines = [f'Page: {state.url[:300]} "{seen.get("title", "")}", window {window[0]} by {window[1]}']
    if len(state.tabs) > 1:
        lines.append(f"Tab {state.tab} of {len(state.tabs)}: " + ", ".join(url[:80] for url in state.tabs))
    if seen.get("above") or seen.get("below"):
        lines.append(f"Scrolled: {seen['above']} pixels above, {seen['below']} below")
    lines += [str(line) for line in seen.get("lines", [])]
    if seen.get("cut"):
        lines.append(f"({seen['cut']} more are left out)")
    return "\n".join(lines)
