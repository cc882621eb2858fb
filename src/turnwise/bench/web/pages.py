"""A site on loopback whose pages misbehave, each in one way: for browsers that must get away from them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BIG = 50 * 1000 * 1000
"""Bytes of the large page."""
_BLOCK = b"<p>" + b"a word " * 9000 + b"</p>\n"
_PLACE = "style='position:fixed;left:0;top:0;width:200px;height:60px'"
_OPEN = "window.open('/start')"
PAGES = {
    "/start": "<title>Start</title>The code is 42. <input id=a autofocus>",
    "/hangs": f"<title>Hangs</title><button {_PLACE} onclick='for(;;);'>Go",
    "/dialogs": f"<title>Dialogs</title><button {_PLACE} onclick=\"for (let i = 0; i < 20; i++) alert('No ' + i)\">Go",
    "/popups": f'<title>Popups</title><button {_PLACE} onclick="for (let i = 0; i < 30; i++) {_OPEN}">Go',
    "/downloads": f"<title>Downloads</title><a {_PLACE} href='/file.bin' download>Go</a>",
}
"""Those that are short. `/redirects` goes to itself, `/large` has BIG bytes, `/reset` closes the connection."""


def cut_off(request: BaseHTTPRequestHandler) -> None:
    """Reset the connection of a request, in place of ending it: to linger for no time sends RST."""
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    request.close_connection = True
    request.connection.close()


class _Misbehaving(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        with contextlib.suppress(ConnectionError):  # who asked is gone
            match path:
                case "/redirects":
                    self._head(302, "text/html", Location="/redirects?again")
                case "/reset":
                    cut_off(self)
                case "/large":
                    self._head(200, "text/html")
                    self.wfile.write(b"<title>Large</title>")
                    for _ in range(BIG // len(_BLOCK)):
                        self.wfile.write(_BLOCK)
                case "/file.bin":
                    self._head(200, "application/octet-stream")
                    self.wfile.write(bytes(5_000_000))
                case _:
                    self._head(200 if path in PAGES else 404, "text/html")
                    self.wfile.write(PAGES.get(path, "not here").encode())

    def _head(self, status: int, kind: str, **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was cut off, here or there: it is meant to be."""


@contextlib.contextmanager
def misbehaving_site() -> Iterator[str]:
    """The host and port of the site while the block runs."""
    server = _Quiet(("127.0.0.1", 0), _Misbehaving)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
