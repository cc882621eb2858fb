"""A real Chromium, and a site on loopback with one page for each thing that a page may do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from turnwise.bench.web.pages import cut_off
from turnwise.environments.base import Action, Call, Task
from turnwise.environments.browser.chromium import program
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.errors import TurnwiseError

try:
    program()
    HAS_BROWSER = True
except TurnwiseError:
    HAS_BROWSER = False
needs_browser = pytest.mark.skipif(not HAS_BROWSER, reason="no Chromium here (make browser)")

CORNER = "style='position:fixed;left:0;top:0;width:100px;height:50px'"
PLACE = "style='position:absolute;top:100px;width:80px;height:30px;left:"
PAGES = {
    "/": f"""<title>Start</title><a href="/second">Second</a><div {PLACE}200px'>Idle</div>
        <button {PLACE}20px' onclick="this.textContent='Pressed'">Press</button>""",
    "/second": "<title>Second</title>The second page.",
    "/field": "<title>Field</title><input id=a autofocus><script>a.focus()</script>",
    "/stubborn": "<input id=a maxlength=3><script>a.focus()</script>",
    "/long": "<div style='height:5000px'>Top</div><div>End</div>",
    "/popup": f"<button {CORNER} onclick=\"window.open('/second')\">Open",
    "/dialog": f"<button {CORNER} onclick=\"alert('Give your password')\">",
    "/later": f"<a {CORNER} href='#' onclick=\"setTimeout(() => get.click(), 2000)\">Get</a>"
    "<a id='get' href='/file.bin' download hidden>It</a>",
    "/download": f"<a {CORNER} href='/file.bin' download>Get</a>",
    "/hover": f"<div {CORNER} onmouseover=\"this.textContent='Over'\">Off",
    "/drag": "<input type=range min=0 max=100 value=0 style='position:fixed;left:0;top:0;width:300px;height:30px'>",
    "/green": """<title>Green</title><body style='background:green'><button
        style='position:fixed;left:70px;top:50px;width:80px;height:30px'>Go</button>
        <p style='position:fixed;left:100px;top:200px;width:200px;height:20px;margin:0'>words</p>""",
    "/framed": """<iframe src=/inner style='position:fixed;left:40px;top:100px;width:300px;height:150px;
        border:5px solid'></iframe>""",
    "/inner": """<input style='position:fixed;left:10px;top:10px'><button onclick="this.textContent='Done it'"
        style='position:fixed;left:0;top:98px;width:80px;height:20px'>Deep</button>""",
    "/foreign": """<script>document.write(`<iframe src="http://localhost:${location.search.slice(1)}/"
        width=200 height=100></iframe>`)</script>""",
    "/hang": f"<button {CORNER} onclick='for(;;);'>Hang</button>",
}
"""Each a page; of any other there is none."""
Step = Callable[..., str]


class _Site(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    given: ClassVar[set[str]] = set()
    """What of `/once` and `/twice` was asked for before."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path in ("/once", "/twice"):
            self._at_one_time_alone(path)
            return
        if path == "/loop":
            self.send_response(302)
            self.send_header("Location", "/loop")
            self.end_headers()
            return
        if path == "/cut":  # less than it says comes
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b"<title>Cut</title>" + b"a word " * 300)
            return
        self.asked.append(self.path)
        body = PAGES.get(path, "not here").encode()
        self.send_response(200 if path in PAGES else 404)
        self.send_header("Content-Type", "application/octet-stream" if path == "/file.bin" else "text/html")
        self.end_headers()
        self.wfile.write(body)

    def _at_one_time_alone(self, path: str) -> None:
        """`/once` comes the first time; later it is cut off, or with `?late` never there. `/twice` the second time."""
        again = self.path in self.given
        self.given.add(self.path)
        if again == (path == "/twice"):
            body = b"<title>Here</title>"
            self.send_response(200)
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)
        elif self.path.endswith("late"):
            time.sleep(3)
        else:
            cut_off(self)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def browser() -> Iterator[BrowserEnvironment]:
    made = BrowserEnvironment(most_steps=12)
    yield made
    made.close()


@pytest.fixture
def at(browser: BrowserEnvironment, site: str) -> Callable[[str], Step]:
    """Begin at a page; gives what does one call and says what the agent is told."""

    def begin(path: str) -> Step:
        browser.reset(Task("t", "web", "Do it.", {"url": site + path, "answer": "42"}))

        def step(name: str, **arguments: object) -> str:
            return browser.step(Action((Call(name, arguments),)))[0].results[0]

        return step

    return begin
