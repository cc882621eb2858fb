"""The pages of MiniWoB++ (130 small tasks, MIT licence), from the installed package, each begun anew by a seed.

The browser gets them under a name of their own, without a server and without the network. The page's own script says
what is right; the agent's tools run no script, so that it can say nothing in its place.
"""

from __future__ import annotations

import mimetypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from playwright.async_api import BrowserContext, Page, Route

from turnwise.environments.base import InfrastructureFailure
from turnwise.errors import DataError

HOST = "miniwob.invalid"
MINIWOB_WINDOW = (500, 320)
READY_S = 10.0
_QUIET = "#reward-display, #click-canvas, #sync-task-cover { display: none !important }"
_BEGIN = """
seed => { core.EPISODE_MAX_TIME = 86400000; Math.seedrandom(String(seed)); core.startEpisodeReal(); }
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


async def begin(page: Page, name: str, seed: int) -> str:
    """Open a task and start it; gives what the page asks for. Raises Playwright's errors."""
    await page.goto(f"http://{HOST}/miniwob/{name}.html", wait_until="load")
    await page.wait_for_function("() => core.cover_div !== null", timeout=READY_S * 1000)
    await page.add_style_tag(content=_QUIET)
    await page.evaluate(_BEGIN, seed)
    await page.wait_for_function("() => WOB_TASK_READY", timeout=READY_S * 1000)
    return str(await page.evaluate("() => core.getUtterance()"))


async def result(page: Page) -> float | None:
    """The page's verdict, from -1 to 1; None while the task is open."""
    found = await page.evaluate("() => WOB_DONE_GLOBAL ? WOB_RAW_REWARD_GLOBAL : null")
    return None if found is None else float(found)


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
