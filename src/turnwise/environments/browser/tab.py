"""The browser of one episode: its tabs, what they say while something is done, and scripts in a world of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from playwright.async_api import BrowserContext, CDPSession, Dialog, Download, Error, Page, Request, Response

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.browser.chromium import first_line
from turnwise.environments.browser.feedback import Happened, PageState, Unopened
from turnwise.environments.browser.page_scripts import SEEN, STATE, TARGET, with_arguments

WORLD = "turnwise"
SCRIPT_S = 5.0
"""Longest wait for a page to answer a script; one that is busy for longer hangs."""
PICTURE_S = 10.0
"""Longest wait for a picture of the window."""
PAINTED_S = 0.2
"""Until a page that could not be pictured is asked again."""
MOST_TABS = 10
MOST_EVENTS = 5
"""Dialogs, and downloads, that are told of one call."""
MOST_LINES = 120
MOST_OF_A_TEXT = 120
"""Characters of an element's words."""
ABORTED = "ERR_ABORTED"
"""A page that did not come because a file came in its place, or another page."""


class PageHangs(Exception):
    """The page does not answer, or cannot be read: a fault of the site."""


class Tabs:
    """The tabs of a context. ``front`` is the page that is acted on."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self.front: Page
        self._dialogs: list[str] = []
        self._downloads: list[str] = []
        self._status: int | None = None
        self._unopened: dict[Page, Unopened] = {}
        self._commits: Counter[Page] = Counter()
        self._crashed = False
        self._sessions: dict[Page, CDPSession] = {}
        self._hanging: set[Page] = set()
        self._leaving: set[Page] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        context.on("page", self._watch)

    async def open(self) -> None:
        """Open an empty tab and go to it."""
        if len(self.pages) >= MOST_TABS:
            raise ValueError(f"there are {MOST_TABS} tabs; close one first")
        self.front = await self._context.new_page()

    @property
    def pages(self) -> list[Page]:
        """Those that are shown: ones that a page opens beyond them are closed."""
        return [page for page in self._context.pages if not page.is_closed()][:MOST_TABS]

    def happened(self, loading: bool) -> Happened:
        """What was said since the last call of this."""
        lost = self._unopened.pop(self.front, None)
        found = Happened(tuple(self._dialogs), tuple(self._downloads), self._status, loading, lost)
        self._dialogs, self._downloads, self._status = [], [], None
        return found

    def is_leaving(self) -> bool:
        """Whether the page in front has asked for another one that has not begun to come."""
        return self.front in self._leaving

    @property
    def commits(self) -> int:
        """How many pages have begun to come in the tab in front, Chromium's own word of a failure among them."""
        return self._commits[self.front]

    def check_alive(self) -> None:
        """Raises InfrastructureFailure where a page, or the whole browser, has crashed."""
        browser = self._context.browser
        if self._crashed or browser is None or not browser.is_connected():
            raise InfrastructureFailure("the browser crashed")

    async def state(self) -> PageState:
        """Raises PageHangs, and InfrastructureFailure where the browser crashed."""
        self.check_alive()
        pages = self.pages
        if not pages:
            await self.open()
            pages = self.pages
        if self.front not in pages:
            self.front = pages[-1]
        seen = _fields(await self.ask(with_arguments(STATE)))
        return PageState(
            url=self.front.url,
            tabs=tuple(page.url for page in pages),
            tab=pages.index(self.front),
            scroll=(_number(seen.get("x")), _number(seen.get("y")), _number(seen.get("inner"))),
            content=(_number(seen.get("size")), _number(seen.get("text")), _number(seen.get("fields"))),
            focus=_text(seen.get("focus")),
            editable=seen.get("editable") is True,
            value=_text(seen.get("value")),
            title=_text(seen.get("title")) or "",
        )

    async def target(self, x: int, y: int) -> str | None:
        """What is at a place, in a few words."""
        return _text(await self.ask(with_arguments(TARGET, x, y)))

    async def seen(self) -> dict[str, Any]:
        """What stands in the window, in frames of the same site as well: `lines`, one an element, `boxes`, where each
        is, and how much is above, below and left out."""
        return _fields(await self.ask(with_arguments(SEEN, MOST_LINES, MOST_OF_A_TEXT)))

    async def picture(self) -> bytes:
        """The window of the page in front, as PNG. A page that was not painted yet is asked again. Raises PageHangs,
        and InfrastructureFailure where the browser crashed."""
        why = ""
        try:
            async with asyncio.timeout(PICTURE_S):
                while True:
                    try:
                        session = self._sessions.get(self.front) or await self._session()
                        found = await session.send("Page.captureScreenshot", {"format": "png"})
                        return base64.b64decode(found["data"])
                    except Error as e:
                        self.check_alive()
                        why = f" ({first_line(e)})"
                    await asyncio.sleep(PAINTED_S)
        except TimeoutError:
            raise PageHangs(f"the page makes no picture within {PICTURE_S:g} s{why}") from None

    async def ask(self, expression: str) -> Any:
        """The value of a script in the page in front; None where it has no document yet. Raises PageHangs."""
        try:
            async with asyncio.timeout(SCRIPT_S):
                session = self._sessions.get(self.front) or await self._session()
                tree = await session.send("Page.getFrameTree")
                world = await session.send(
                    "Page.createIsolatedWorld", {"frameId": tree["frameTree"]["frame"]["id"], "worldName": WORLD}
                )
                found = await session.send(
                    "Runtime.evaluate",
                    {"expression": expression, "contextId": world["executionContextId"], "returnByValue": True},
                )
        except TimeoutError:
            self._hanging.add(self.front)
            raise PageHangs(f"the page does not answer within {SCRIPT_S:g} s") from None
        except Error as e:
            self.check_alive()
            if "closed" in first_line(e) or "context" in first_line(e).lower():  # it went elsewhere in between
                return None
            raise InfrastructureFailure(f"the browser cannot be asked: {first_line(e)}") from e
        if "exceptionDetails" in found:
            raise PageHangs("the page cannot be read")
        return clean(found.get("result", {}).get("value"))

    async def leave_if_it_hangs(self) -> None:
        """Put an empty tab in the place of a page that does not answer: it would not let itself be left."""
        hanging = self.front
        if hanging not in self._hanging:
            return
        await self.open()
        self._later(hanging.close())

    async def _session(self) -> CDPSession:
        session = self._sessions[self.front] = await self._context.new_cdp_session(self.front)
        return session

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""

        async def quietly() -> None:
            with contextlib.suppress(Error):
                await work

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _watch(self, page: Page) -> None:
        if page not in self.pages:
            self._later(page.close())
            return
        page.on("dialog", self._close)
        page.on("download", self._refused)
        page.on("crash", self._crash)
        page.on("response", self._answered)
        page.on("request", self._goes)
        page.on("framenavigated", lambda frame: self._arrived(page) if frame == page.main_frame else None)
        page.on("requestfailed", self._failed)
        page.on("requestfinished", self._stays)

    def _close(self, dialog: Dialog) -> None:
        if len(self._dialogs) < MOST_EVENTS:
            self._dialogs.append(clean(dialog.message))

        self._later(dialog.dismiss())

    def _refused(self, download: Download) -> None:
        if len(self._downloads) < MOST_EVENTS:
            self._downloads.append(clean(download.suggested_filename))

    def _crash(self, _page: Page) -> None:
        self._crashed = True

    def _goes(self, request: Request) -> None:
        if (page := _page_left(request)) is not None:
            self._leaving.add(page)
            self._unopened.pop(page, None)

    def _arrived(self, page: Page) -> None:
        self._leaving.discard(page)
        self._commits[page] += 1

    def _failed(self, request: Request) -> None:
        page, why = _page_left(request), request.failure
        if page in self._leaving and page is not None and why and ABORTED not in why:  # else it had begun to come
            self._unopened[page] = Unopened(request.url, why)
        self._stays(request)

    def _stays(self, request: Request) -> None:
        if (page := _page_left(request)) is not None:
            self._leaving.discard(page)

    def _answered(self, response: Response) -> None:
        with contextlib.suppress(Error):  # of a frame that is gone
            request = response.request
            if request.is_navigation_request() and response.frame == self.front.main_frame:
                self._status = response.status


def _page_left(request: Request) -> Page | None:
    """The page that a request is to take the place of; None where it is for something on a page."""
    with contextlib.suppress(Error):  # of a frame that is gone
        if request.is_navigation_request() and request.frame.parent_frame is None:
            return request.frame.page
    return None


def clean(value: Any) -> Any:
    """What a page gave, with no text in it that cannot be written down (half a pair of UTF-16)."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {clean(key): clean(each) for key, each in value.items()}
    return value


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    """0 for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0
    return int(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
