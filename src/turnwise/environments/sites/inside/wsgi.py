"""What every site does with its application: its visitor is signed in, and pages are asked for before anybody waits."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Application = Callable[..., Iterable[bytes]]


def signed_in(application: Application, user: str) -> Application:
    """An application that takes every request for this user's, as behind a server that has asked for a password."""

    def asked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["REMOTE_USER"] = user
        return application(environ, start_response)

    return asked


def warm(application: Application, paths: Sequence[str]) -> None:
    """Ask for pages, so that what they load is loaded. Raises RuntimeError where one is not as it should be."""
    for path in paths:
        said: list[str] = []
        body = application(_environ(path), _started(said))
        content = b"".join(body)
        getattr(body, "close", lambda: None)()
        if not said or said[0][:3] not in ("200", "302"):
            raise RuntimeError(f"{path} gives {said[:1]}: {content[:300]!r}")


def _started(said: list[str]) -> Callable[..., Any]:
    def start_response(status: str, headers: object, error: object = None) -> Callable[[bytes], None]:
        said.append(status)
        return lambda data: None

    return start_response


def _environ(path: str) -> dict[str, Any]:
    where, _, query = path.partition("?")
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": where,
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "HTTP_HOST": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": "0",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
