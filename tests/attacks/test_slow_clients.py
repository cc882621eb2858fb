"""Clients that cost something before they show a token: slow ones, large ones, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, scripted
from tests.support.servers import running, wait_until
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import ServerConfig, load_config
from turnwise.gateway import limits as limits_module
from turnwise.gateway.limits import MAX_HEADERS, MAX_PIPELINED, Door, Limits

HEAD_S = 1.0
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Client:
    """A raw connection."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.sock = socket.create_connection((where.hostname or "", where.port or 0), timeout=20)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def rest(self) -> bytes:
        """All that comes until the server closes; fails when it does not within the socket's time limit."""
        said = b""
        try:
            while data := self.sock.recv(65536):
                said += data
        except ConnectionResetError:
            pass
        return said

    def answer(self) -> bytes:
        """One whole answer of a known length, or what there is of it when the server closes."""
        said = b""
        while b"\r\n\r\n" not in said:
            if not (data := self.sock.recv(1)):
                return said
            said += data
        lengths = [line for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].partition(b":")[2])
        body = b""
        while len(body) < length:
            body += self.sock.recv(length - len(body))
        return said + body

    def close(self) -> None:
        self.sock.close()


@contextmanager
def clients(url: str, count: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        made = [Client(url) for _ in range(count)]
        for one in made:
            stack.callback(one.close)
        yield made


@contextmanager
def client(url: str) -> Iterator[Client]:
    with clients(url, 1) as [made]:
        yield made


@pytest.fixture(scope="module")
def gateway_url(tmp_path_factory: pytest.TempPathFactory, model_dir: Path, tokenizer: Tokenizer) -> Iterator[str]:
    """The real gateway with short times and small sizes; only its engine is a stand-in, which nobody asks here."""
    config = load_config(
        overrides={
            "home": tmp_path_factory.mktemp("home"),
            "server.port": 0,
            "server.header_timeout_s": HEAD_S,
            "server.max_body_mb": 0.1,
            "server.max_connections": 60,
            "server.max_connections_per_address": 40,
        }
    )
    with running(StubEngine(tokenizer, scripted).app()) as engine:
        thread = GatewayThread(config, engine)
        thread.start(config)
        wait_until(lambda: _answers(thread.url))
        yield thread.url
        thread.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


HALVES = {
    "nothing": b"",
    "half a line": b"POST /v1/chat/comp",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x",
    "no body": b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n",
    "half a body": b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n{",
    "half a chunk": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n99\r\n{",
    "blank lines": b"\r\n\r\n",
}


@pytest.mark.parametrize("half", list(HALVES.values()), ids=list(HALVES))
def test_thirty_half_sent_requests_go_and_the_rest_are_answered_meanwhile(gateway_url: str, half: bytes) -> None:
    with clients(gateway_url, 30) as held:
        for one in held:
            one.send(half)
        for _ in range(5):
            assert httpx.get(f"{gateway_url}/healthz", timeout=10).status_code == 200
        for one in held:
            one.rest()  # the server ends it


def test_a_byte_now_and_then_does_not_prolong_it(gateway_url: str) -> None:
    for drip in (b"x", b"\r\n", b"X-A: b\r\n"):
        with client(gateway_url) as one:
            one.send(b"" if drip == b"\r\n" else b"GET /healthz HTTP/1.1\r\n")
            ended = False
            deadline = time.monotonic() + 20 * HEAD_S
            while not ended and time.monotonic() < deadline:
                try:
                    one.send(drip)
                    one.sock.settimeout(0.1)
                    ended = one.sock.recv(1000) == b"" or ended
                except TimeoutError:
                    pass
                except OSError:
                    ended = True
            assert ended, drip


def test_a_late_head_is_told_so(gateway_url: str) -> None:
    with client(gateway_url) as one:
        one.send(b"GET /healthz HTTP/1.1\r\nHost")
        said = one.rest()
    assert said.startswith(b"HTTP/1.1 408 ") and b"server.header_timeout_s" in said
    json.loads(said.partition(b"\r\n\r\n")[2])


def test_a_request_in_single_bytes_is_answered_if_it_comes_in_time(gateway_url: str) -> None:
    with client(gateway_url) as one:
        for byte in GET:
            one.send(bytes([byte]))
        assert one.answer().startswith(b"HTTP/1.1 200 ")


def test_a_connection_may_be_used_again_and_again(gateway_url: str) -> None:
    with client(gateway_url) as one:
        for _ in range(50):
            one.send(GET)
            assert one.answer().startswith(b"HTTP/1.1 200 ")


def test_requests_in_a_row_are_all_answered_in_their_order(gateway_url: str) -> None:
    missing = b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with client(gateway_url) as one:
        one.send((GET + missing) * (MAX_PIPELINED // 2))
        statuses = [one.answer()[:12] for _ in range(MAX_PIPELINED)]
    assert statuses == [b"HTTP/1.1 200", b"HTTP/1.1 401"] * (MAX_PIPELINED // 2)


def test_too_many_requests_in_a_row_end_the_connection(gateway_url: str) -> None:
    with client(gateway_url) as one:
        one.send(GET * 5000)
        assert one.rest().count(b"HTTP/1.1 200") < 5000


LARGE = {
    "a long line": b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
    "a long value": b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000,
    "a long name": b"GET / HTTP/1.1\r\n" + b"a" * 300_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 60_000,
    "a few too many": b"GET /healthz HTTP/1.1\r\n" + b"a:b\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    "just too long": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 65_536 + b"\r\n\r\n",
}


@pytest.mark.parametrize("head", list(LARGE.values()), ids=list(LARGE))
def test_a_head_that_is_too_large_is_refused(gateway_url: str, head: bytes) -> None:
    with client(gateway_url) as one:
        with contextlib.suppress(OSError):  # it is closed while we send
            one.send(head)
        said = one.rest()
    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")
    if len(head) < 100_000:
        assert b"server.max_header_kb" in said


def test_a_large_head_that_fits_is_answered(gateway_url: str) -> None:
    with client(gateway_url) as one:
        one.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 60_000 + b"\r\n\r\n")
        assert one.answer().startswith(b"HTTP/1.1 200 ")


def chunked(first: bytes, then: bytes, times: int, url: str) -> bytes:
    """What a request says that sends `then` over and over in a chunked body."""
    with client(url) as one:
        try:
            one.send(b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + first)
            for _ in range(times):
                one.send(then)
        except OSError:
            return one.rest()
        raise AssertionError("all of it was taken")


@pytest.mark.parametrize(
    ("first", "then"),
    [(b"", b"400\r\n" + b"a" * 1024 + b"\r\n"), (b"1\r\na\r\n0\r\n", b"a: b\r\n" * 100), (b"1;", b"a" * 1000)],
    ids=["a body without end", "trailers without end", "a chunk's extension without end"],
)
def test_what_never_ends_is_cut_off(gateway_url: str, first: bytes, then: bytes) -> None:
    chunked(first, then, 20_000, gateway_url)


def test_a_flood_of_half_sent_requests_keeps_nobody_out(gateway_url: str) -> None:
    """Those that have waited longest make room; only those that are not waited for keep their place."""
    with clients(gateway_url, 40) as held:
        for one in held:
            one.send(b"GET /healthz HTTP/1.1\r\n")
        answered = wait_until(lambda: _answers(gateway_url), 30.0)
    assert answered


@pytest.fixture
def patient() -> Iterator[tuple[str, list[str]]]:
    """uvicorn over our protocol and an application that answers when it is told to: a stand-in for a long answer."""
    go = asyncio.Event()
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        seen.append(scope["path"])
        if scope["path"] == "/end":
            go.set()
        if scope["path"] == "/long":
            await go.wait()
        body = b"x" * 8_000_000 if scope["path"] == "/large" else b"fine"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    limits = Limits(head_bytes=8192, head_s=0.5, body_bytes=10_000, connections=8, per_address=4)
    with running(app, http=Door(limits).protocol(), ws="none") as url:
        yield url, seen


def asked(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def test_answers_under_way_are_not_timed_out_and_more_connections_are_refused(patient: tuple[str, list[str]]) -> None:
    url, seen = patient
    with clients(url, 4) as held:
        for one in held:
            one.send(asked("/long"))
        wait_until(lambda: len(seen) == 4)
        time.sleep(4 * 0.5)  # much longer than a head may take
        with client(url) as fifth:
            fifth.send(asked("/long"))
            said = fifth.rest()
        assert said == b"" or said.startswith(b"HTTP/1.1 503 ")
        assert seen == ["/long"] * 4, "nothing of it was parsed"
        held[0].send(asked("/end"))  # it waits behind the answer
        held[1].close()
        with client(url) as another:
            another.send(asked("/end"))
            assert another.answer().startswith(b"HTTP/1.1 200 ")
        for one in (held[0], held[0], held[2], held[3]):
            assert one.answer().endswith(b"fine")


def test_a_refusal_does_not_stand_in_the_middle_of_an_answer(patient: tuple[str, list[str]]) -> None:
    url, seen = patient
    with client(url) as one:
        one.send(asked("/long") + b"GET /half HTTP/1.1\r\n")
        assert one.rest() == b""
    with client(url) as one:
        one.send(asked("/end") + b"GET /half HTTP/1.1\r\n")
        assert one.answer().endswith(b"fine")
        assert one.answer().startswith(b"HTTP/1.1 408 ")
    assert seen == ["/long", "/end"]


def test_a_client_that_does_not_read_its_answer_is_given_up(
    patient: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = patient
    monkeypatch.setattr(limits_module, "UNREAD_S", 0.5)
    monkeypatch.setattr(limits_module, "CLOSING_S", 0.5)
    with clients(url, 4) as held:
        for one in held:
            one.send(asked("/large"))
        wait_until(lambda: len(seen) == 4)
        time.sleep(2.0)
        with client(url) as another:  # there is room again
            another.send(asked("/end"))
            assert another.answer().startswith(b"HTTP/1.1 200 ")


def test_a_slow_body_at_a_fair_pace_is_waited_for(patient: tuple[str, list[str]]) -> None:
    url, _ = patient
    with client(url) as one:
        one.send(b"POST /end HTTP/1.1\r\nHost: a\r\nContent-Length: 8000\r\n\r\n")
        for _ in range(8):
            time.sleep(0.2)
            one.send(b"a" * 1000)
        assert one.answer().startswith(b"HTTP/1.1 200 ")


def test_an_upgrade_is_answered_as_the_request_it_is(patient: tuple[str, list[str]]) -> None:
    url, _ = patient
    with client(url) as one:
        one.send(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert one.rest().startswith(b"HTTP/1.1 200 ")


def test_the_limits_are_the_configured_ones() -> None:
    server = ServerConfig(max_header_kb=8, header_timeout_s=3, max_connections=9, max_connections_per_address=100)
    assert Limits.of(server) == Limits(8192, 3, 8_000_000, 9, 9)


MEGABYTES = 40
SHORT_HEADERS = b"".join(b"x%d:b\r\n" % number for number in range(1000, 2250))


def test_forty_megabytes_of_headers_cost_little_memory(tmp_path: Path, model_dir: Path, tokenizer: Tokenizer) -> None:
    """In a process of its own: eight connections that send 5 MB of headers each, as fast as they are taken."""
    home = tmp_path / "home"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "turnwise.gateway", "--engine-url", "http://127.0.0.1:9", "--home", str(home)]
    command += ["--set", f"server.port={port}", "--set", f"model.path={model_dir}"]
    with subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(url), 60.0)
            of_it = psutil.Process(process.pid)
            before = of_it.memory_info().rss
            most = before
            with clients(url, 8) as senders:
                for number in range(MEGABYTES * 1_000_000 // (8 * 10_000)):
                    for one in senders:
                        piece = b"" if number else b"GET / HTTP/1.1\r\n"
                        piece += SHORT_HEADERS
                        with contextlib.suppress(OSError):  # it was closed
                            one.send(piece)
                    most = max(most, of_it.memory_info().rss)
                assert _answers(url)
                most = max(most, of_it.memory_info().rss)
            grown = (most - before) / 1e6
        finally:
            process.terminate()
            process.wait(20)
    assert grown < 60, f"{grown:.0f} MB"
