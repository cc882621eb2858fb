"""The pages of MiniWoB++ (130 small tasks, MIT licence), from the installed package, each begun anew by a seed.

The browser gets them under a name of their own, without a server and without the network. The page's own script says
what is right; the agent's tools run no script, so that it can say nothing in its place.
"""

from __future__ import annotations

import asyncio
import mimetypes
import secrets
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from playwright.async_api import BrowserContext, Error, Page, Route

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.browser.tab import clean
from turnwise.errors import DataError

HOST = "miniwob.invalid"
MINIWOB_WINDOW = (500, 320)
READY_S = 10.0
RESULT_S = 5.0
"""Longest wait for a verdict."""
_QUIET = "#reward-display, #click-canvas, #sync-task-cover { display: none !important }"
_BEGIN = """
seed => { core.EPISODE_MAX_TIME = 86400000; Math.seedrandom(String(seed)); core.startEpisodeReal(); }
"""
_MARK = "token => { Object.defineProperty(window, 'turnwiseToken', { value: token }); }"
_RESULT = """
token => window.turnwiseToken === token && typeof WOB_DONE_GLOBAL !== 'undefined' && WOB_DONE_GLOBAL ?
  WOB_RAW_REWARD_GLOBAL : null
"""


@cache
def _root() -> Path | None:
    spec = find_spec("miniwob")
    places = spec.submodule_search_locations if spec is not None else None
    return (Path(next(iter(places))) / "html").resolve() if places else None


@cache
def page_names() -> tuple[str, ...]:
    """The tasks there are. Raises DataError with what to install."""
    root = _root()
    if root is None:
        raise DataError("MiniWoB++ is not here; install it: pip install --no-deps miniwob==1.1.0")
    return tuple(sorted(path.stem for path in (root / "miniwob").glob("*.html")))


async def serve(context: BrowserContext) -> None:
    """Answer what is asked of HOST from the package's files."""
    await context.route(f"http://{HOST}/**", _answer)


async def begin(page: Page, name: str, seed: int) -> tuple[str, str]:
    """Open a task and start it; gives what the page asks for, and the mark of it. Raises Playwright's errors."""
    await page.goto(f"http://{HOST}/miniwob/{name}.html", wait_until="load")
    await page.wait_for_function("() => core.cover_div !== null", timeout=READY_S * 1000)
    await page.add_style_tag(content=_QUIET)
    await page.evaluate(_BEGIN, seed)
    await page.wait_for_function("() => WOB_TASK_READY", timeout=READY_S * 1000)
    mark = secrets.token_hex(16)
    await page.evaluate(_MARK, mark)
    return clean(str(await page.evaluate("() => core.getUtterance()"))), mark


async def result(page: Page, mark: str) -> float | None:
    """The page's verdict, from -1 to 1; None while the task is open, and for good where its page was left: another
    page, or the same one opened anew, has no mark."""
    try:
        async with asyncio.timeout(RESULT_S):
            found = await page.evaluate(_RESULT, mark)
    except (Error, TimeoutError):  # it went elsewhere in between; whether the browser crashed is asked elsewhere
        return None
    return float(found) if isinstance(found, (int, float)) else None


async def _answer(route: Route) -> None:
    root = _root()
    if root is None:
        raise InfrastructureFailure("MiniWoB++ was taken away while it was played")
    path = (root / route.request.url.split(HOST, 1)[1].split("?")[0].split("#")[0].lstrip("/")).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        await route.fulfill(status=404)
        return
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    await route.fulfill(body=path.read_bytes(), content_type=kind)
