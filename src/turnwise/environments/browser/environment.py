"""A browser as an environment: an action is calls of its tools, an observation what changed and what is in the window.

Every text of a page is hostile: it is bounded, stands in quotation marks or behind its element's name, and never
decides about the outcome, which the task's own verifier does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from playwright.async_api import Error

from turnwise.environments.base import Action, Call, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.browser import miniwob
from turnwise.environments.browser.acting import LOAD_S, TRIES, do, goto, refused, whose
from turnwise.environments.browser.beside.mirror import serve_mirrors
from turnwise.environments.browser.beside.trailing import TrailKeeper
from turnwise.environments.browser.calls import RefusedCall
from turnwise.environments.browser.chromium import driver, first_line, opened
from turnwise.environments.browser.feedback import Blame, Done, told
from turnwise.environments.browser.seeing.look import PageLook, shown, taken
from turnwise.environments.browser.seeing.marks import placed
from turnwise.environments.browser.tab import Tabs
from turnwise.environments.browser.web_task import WebTask, web_task
from turnwise.environments.failing_hosts import FailingHosts
from turnwise.environments.sites.visit import SiteVisit, visit
from turnwise.errors import DataError
from turnwise.trajectories.reward import EndedSo, How, by_rule
from turnwise.trajectories.trail import ShownPage

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
    """Plays tasks of the web, each in a browser of its own. An answer that is a repeated format error ends with -1.

    ``judge_sees``: a judge gets pictures of a task that is its to decide. ``failing``: hosts that are left out.
    ``sites``: the folder in which the sites run that tasks name; without it there are none.
    """

    def __init__(
        self,
        most_steps: int = 15,
        judge_sees: bool = True,
        failing: FailingHosts | None = None,
        sites: Path | None = None,
    ) -> None:
        self._most_steps, self._judge_sees, self._failing, self._sites = most_steps, judge_sees, failing, sites
        self._site: SiteVisit | None = None
        self._task: WebTask | None = None
        self._stack = AsyncExitStack()
        self._tabs: Tabs
        self._shown = PageLook("")
        """What the agent was shown last: the numbers in its calls are of that."""
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
        if self._task.goal is not None:
            self._site = visit(self._task.goal, self._sites)
        goal = self._within(self._begin(self._task), "begin")
        self._trail = TrailKeeper("\n".join(part for part in (task.prompt, goal) if part), self._task.reference)
        return self._observation((task.prompt, goal))

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
            if self._site is not None:
                self._site.check()
            said = ""
        self._trail.did(action, results or (said,))
        if not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        return self._observation((said,), results), bool(self._ended)

    def score(self) -> TaskOutcome:
        """What came of it (OpenWebRL, A.4): -1 after repeated format errors, 1 for a task that was solved, else 0."""
        if self._task is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            said: dict[str, Any] = {"ended": self._ended or "agent", "steps": self._steps, "answer": self._answer}
            said |= {"unreadable": self._unreadable, "faults": dict(self._faults)}
            if self._site is not None:
                said["not_met"] = self._site.not_met(self._answer)
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            if self._ended:  # else the last page was seen
                with contextlib.suppress(InfrastructureFailure):  # a browser that failed since shows none
                    self._look()
            trail, asks = self._trail.trail(self._answer), self._task.judged and by_rule(self._so) is None
            self._outcome = TaskOutcome(self._reward(self._task, said.get("not_met")), said, cut_off, trail, asks)
            self._tell_of_hosts(self._task)
        return self._outcome

    def close(self) -> None:
        """End the browser, and the site that it was at."""
        self._task = None
        stack, self._stack = self._stack, AsyncExitStack()
        site, self._site = self._site, None
        try:
            driver().run(stack.aclose(), STEP_S)
        except (Error, TimeoutError) as e:
            raise InfrastructureFailure(f"the browser of an episode cannot be ended: {first_line(e)}") from e
        finally:
            if site is not None:
                site.close()

    def _reward(self, task: WebTask, not_met: Sequence[str] | None) -> float:
        if task.judged or self._ended == "format":
            return by_rule(self._so) or 0.0
        if not_met is not None:
            return float(not not_met)
        if task.miniwob is not None:
            return float(self._verdict is not None and self._verdict >= 1)
        return float(self._answer is not None and bool(self._answer.strip()) and task.is_right(self._answer))

    def _tell_of_hosts(self, task: WebTask) -> None:
        if self._failing is None or task.url is None or task.goal is not None:  # an instance is one rollout's alone
            return
        for host, why in self._failed.items():
            self._failing.failed(host, why)
        if (begun := urlsplit(task.url).netloc) not in self._failed:
            self._failing.worked(begun)

    @property
    def _so(self) -> EndedSo:
        """How it ended, as the rules of the reward want to know it."""
        hows: dict[str, How] = {"format": "format", "step limit": "steps", "page": "page", "agent": "done"}
        return EndedSo(hows.get(self._ended, "stopped"), self._unreadable == 0, self._answer)

    def _observation(self, said: tuple[str, ...], results: tuple[str, ...] = ()) -> Observation:
        """What is said, and the page as the task has it shown, unless the episode is over."""
        seen = PageLook("") if self._ended else self._look()
        return Observation("\n\n".join(part for part in (*said, seen.text) if part), results, seen.pictures)

    def _look(self) -> PageLook:
        """The page in front, as the task has it shown; what a judge would look at is kept."""
        assert self._task is not None
        page = self._within(taken(self._tabs, self._task.observe), "look")
        self._shown = shown(page, self._task.observe, self._task.window)
        picture = page.picture
        if picture is None and self._task.judged and self._judge_sees:
            picture = self._within(taken(self._tabs, "screenshot"), "look").picture
        words = shown(replace(page, picture=None), "text", self._task.window).text
        self._trail.saw(ShownPage(words, picture))
        return self._shown

    def _within(self, work: Coroutine[Any, Any, T], what: str) -> T:
        try:
            return driver().run(work, STEP_S)
        except TimeoutError:
            raise InfrastructureFailure(f"the browser took longer than {STEP_S:g} s ({what})") from None
        except Error as e:
            raise InfrastructureFailure(f"the browser failed ({what}): {first_line(e)}") from e

    async def _begin(self, task: WebTask) -> str:
        """Gives what the page itself asks for, if it does."""
        leads = {} if self._site is None else self._site.leads
        ours = task.miniwob is not None
        context = await self._stack.enter_async_context(opened(task.hosts, *task.window, ours, leads))
        self._tabs = Tabs(context)
        await self._tabs.open()
        await serve_mirrors(context, task.mirrors)
        if task.miniwob is not None:
            await miniwob.serve(context)
            goal, self._mark = await miniwob.begin(self._tabs.front, task.miniwob, task.seed)
            return goal
        assert task.url is not None
        host = urlsplit(task.url).netloc
        known = self._failing if task.goal is None else None
        if known is not None and (why := known.why_never(task.url) or known.why_left_out(host)) is not None:
            raise InfrastructureFailure(why)
        try:
            async with asyncio.timeout(LOAD_S * TRIES + 5):
                await goto(self._tabs, task.url)
        except (Error, TimeoutError) as e:
            if known is not None:
                known.failed(host, first_line(e))
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
            done = await self._done(task, call)
            readable |= done.readable
            self._blame(done)
            results.append(told(done))
            await self._after(task, done)
        self._count_unreadable(not readable)
        return results

    def _blame(self, done: Done) -> None:
        """Count whose doing it was what failed, and which host did."""
        lost = done.happened.unopened
        faults: list[tuple[Blame, str, str]] = []
        if done.fault is not None:
            asked = str(done.arguments.get("url") or self._tabs.front.url)
            faults.append((*done.fault, asked if lost is None else lost.url))
        elif lost is not None:
            faults.append((whose(lost), lost.why, lost.url))
        if (before := done.meanwhile.unopened) is not None:
            faults.append((whose(before), before.why, before.url))
        for blame, why, url in faults:
            self._faults[blame] += 1
            if blame != "agent" and (host := urlsplit(url).netloc):
                self._failed[host] = why

    async def _done(self, task: WebTask, call: Call) -> Done:
        if task.observe == "marks":
            try:
                call = placed(call, self._shown.marks)
            except RefusedCall as e:
                return refused(call, e)
        return await do(self._tabs, call, *task.window)

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
