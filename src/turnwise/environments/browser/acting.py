"""Does the calls of an agent in the page in front, and says of each what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

from playwright.async_api import Error
from playwright.async_api import TimeoutError as TookTooLong

from turnwise.environments.base import Call
from turnwise.environments.browser.calls import BadCall, RefusedCall, checked
from turnwise.environments.browser.chromium import first_line
from turnwise.environments.browser.feedback import Blame, Done, PageState, Unopened
from turnwise.environments.browser.tab import PageHangs, Tabs

LOAD_S = 15.0
"""Longest wait for a page that a call opens."""
ACT_S = 10.0
"""Longest wait for mouse and keys."""
SETTLE_S = 0.06
"""What a page has to react before it is looked at."""
STYLES_S = 6.0
"""Longest wait for styles and pictures once the words of a page are there."""
MOST_KEYED = 200
"""Characters that are typed a key each; a longer text is put in whole."""
TRIES = 2
"""To open a page, where the network, not the site, is why it did not come."""
NETWORK = ("ERR_CONNECTION", "ERR_NAME", "ERR_INTERNET", "ERR_NETWORK", "ERR_TIMED_OUT", "ERR_HTTP2", "ERR_ADDRESS")
ERROR_PAGE_S = 2.0
"""Longest wait for Chromium's own page that says what failed; it would end what is opened meanwhile."""
ASKED = ("click", "drag", "press_keys", "goto_url", "go_back")
"""Tools that may ask for another page: where it does not come, they failed."""
REFUSED = ("ERR_PROXY", "ERR_TUNNEL", "ERR_BLOCKED", "ERR_UNSAFE_PORT")
_STEPS = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}


async def do(tabs: Tabs, call: Call, width: int, height: int) -> Done:
    """Do one call in a window of this size in pixels. Raises InfrastructureFailure where the browser crashed."""
    nothing = PageState("", (), 0)
    try:
        given = checked(call, width, height)
        before = await tabs.state()
    except BadCall as e:
        return refused(call, e)
    except PageHangs as e:
        if call.name not in ("goto_url", "go_back", "close_tab", "switch_tab", "new_tab", "done"):
            return Done(call.name, {}, nothing, nothing, fault=("site", str(e)))
        given, before = checked(call, width, height), nothing
    meanwhile, commits = tabs.happened(False), tabs.commits
    target, fault, loading = None, None, False
    try:
        target = await _target(tabs, call.name, given)
        await _act(tabs, call.name, given, before, (width, height))
        loading = await _settled(tabs, before)
    except (Error, PageHangs, TimeoutError, ValueError) as e:
        tabs.check_alive()
        fault = _fault(e)
    done = await _ended(tabs, call.name, given, before, target, fault, loading)
    if done.happened.unopened is not None:
        await _came(tabs, commits)
    return replace(done, meanwhile=meanwhile)


def refused(call: Call, why: BadCall) -> Done:
    """A call of which nothing was done."""
    nothing = PageState("", (), 0)
    return Done(call.name[:40], {}, nothing, nothing, fault=("agent", str(why)), readable=isinstance(why, RefusedCall))


async def _ended(
    tabs: Tabs,
    tool: str,
    given: dict[str, Any],
    before: PageState,
    target: str | None,
    fault: tuple[Blame, str] | None,
    loading: bool,
) -> Done:
    try:
        after = await tabs.state()
    except PageHangs as e:
        after, fault = before, fault or ("site", str(e))
    happened = tabs.happened(loading)
    if fault is None and happened.unopened is not None and tool in ASKED:
        fault = _why_unopened(happened.unopened.why)
    return Done(tool, given, before, after, target, fault, happened)


async def _target(tabs: Tabs, tool: str, given: dict[str, Any]) -> str | None:
    if tool in ("click", "hover"):
        return await tabs.target(given["x"], given["y"])
    return await tabs.target(given["x1"], given["y1"]) if tool == "drag" else None


async def _act(tabs: Tabs, tool: str, given: dict[str, Any], before: PageState, size: tuple[int, int]) -> None:
    """Raises Playwright's errors, and ValueError with what the agent did wrong."""
    limit = LOAD_S * TRIES + 5 if tool in ("goto_url", "go_back") else ACT_S + given.get("seconds", 0.0)
    page = tabs.front
    async with asyncio.timeout(limit):
        match tool:
            case "click":
                count = 2 if given["click_type"] == "double" else 1
                await page.mouse.click(given["x"], given["y"], button=given["button"], click_count=count)
            case "hover":
                await page.mouse.move(given["x"], given["y"])
            case "drag":
                await page.mouse.move(given["x1"], given["y1"])
                await page.mouse.down()
                await page.mouse.move(given["x2"], given["y2"], steps=8)
                await page.mouse.up()
            case "write":
                if not before.editable:
                    raise ValueError("no field has the focus; click on one first")
                await page.keyboard.press("Control+A")
                await page.keyboard.press("Delete")
                if len(given["text"]) > MOST_KEYED:
                    await page.keyboard.insert_text(given["text"])
                else:
                    await page.keyboard.type(given["text"])
            case "press_keys":
                for key in given["keys"]:
                    await page.keyboard.press(key)
            case "scroll":
                across, down = _STEPS[given["direction"]]
                await page.mouse.wheel(across * given["amount"] * size[0], down * given["amount"] * size[1])
                await asyncio.sleep(0.1)
            case "goto_url":
                await goto(tabs, given["url"])
            case "go_back":
                left = page.url
                answer = await page.go_back(timeout=LOAD_S * 1000, wait_until="domcontentloaded")
                if answer is None and page.url == left:  # None is also what a place on the same page gives
                    raise ValueError("there is no page before this one")
            case "wait":
                await asyncio.sleep(given["seconds"])
            case "new_tab":
                await tabs.open()
            case "switch_tab":
                if not 0 <= given["index"] < len(tabs.pages):
                    raise ValueError(f"there are tabs 0 to {len(tabs.pages) - 1}")
                tabs.front = tabs.pages[given["index"]]
                await tabs.front.bring_to_front()
            case "close_tab":
                await page.close()


async def goto(tabs: Tabs, url: str) -> None:
    """Open a page; once more where the network failed. Raises Playwright's errors."""
    await tabs.leave_if_it_hangs()
    for attempt in range(TRIES):
        commits = tabs.commits
        try:
            await tabs.front.goto(url, timeout=LOAD_S * 1000, wait_until="domcontentloaded")
            await styled(tabs)
            return
        except Error as e:
            if attempt + 1 == TRIES or not any(sign in str(e) for sign in NETWORK):
                raise
            await _came(tabs, commits)


async def _came(tabs: Tabs, commits: int) -> None:
    """Wait until the page in front is another one than after so many had begun to come."""
    until = time.monotonic() + ERROR_PAGE_S
    while tabs.commits == commits:
        if time.monotonic() > until:
            return
        await asyncio.sleep(0.02)


def whose(lost: Unopened) -> Blame:
    """Whose doing it was that a page did not come that nobody had asked for: where it is none that the task allows, the
    site's that led there."""
    return "network" if any(sign in lost.why for sign in NETWORK) else "site"


async def _settled(tabs: Tabs, before: PageState) -> bool:
    """Let the page react; gives whether one that was opened is still loading when its time is over."""
    await asyncio.sleep(SETTLE_S)
    until = time.monotonic() + LOAD_S
    while not tabs.front.is_closed() and tabs.is_leaving():  # also to the same address, as a form may
        if time.monotonic() > until:
            return True
        await asyncio.sleep(0.02)
    if tabs.front.is_closed():
        return False
    if tabs.front.url != before.url:
        try:
            await tabs.front.wait_for_load_state("domcontentloaded", timeout=LOAD_S * 1000)
        except TookTooLong:
            return True
    await styled(tabs)
    return False


async def styled(tabs: Tabs) -> None:
    """Wait a while for what a page is laid out by: before its styles are there, nothing of it has a place."""
    with contextlib.suppress(TookTooLong):
        await tabs.front.wait_for_load_state("load", timeout=STYLES_S * 1000)


def _fault(error: BaseException) -> tuple[Blame, str]:
    """Whose doing an error is, and what the agent is told of it."""
    text = first_line(error)
    if isinstance(error, PageHangs):
        return "site", text
    if isinstance(error, Error):
        if isinstance(error, TookTooLong):
            return "site", "the page took too long"
        return ("agent", text) if "unknown key" in text.lower() else _why_unopened(text)
    if isinstance(error, TimeoutError):
        return "site", "the page took too long"
    return "agent", text


def _why_unopened(text: str) -> tuple[Blame, str]:
    if any(sign in text for sign in REFUSED):
        return "agent", "this address is none that the task allows"
    return ("network" if any(sign in text for sign in NETWORK) else "site"), text
