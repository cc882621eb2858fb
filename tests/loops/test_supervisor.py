"""The supervisor over small real processes: it goes on when its own output cannot, and it always comes to an end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import httpx
import psutil
import pytest

from turnwise.config import Config
from turnwise.errors import JournalFull
from turnwise.journal import Journal
from turnwise.journal.store import Store
from turnwise.loops import supervisor as module
from turnwise.loops.supervisor import Address, Loop, Supervisor
from turnwise.loops.table import HealthAddress

SERVER = """
import http.server, socket, sys
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Ok, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.serve_forever()
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)
TALKER = "for i in range(3000): print('many words', i)"


class Small(Supervisor):
    """A supervisor whose loops are a web server and what the test gives."""

    def __init__(self, home: Path, *programs: str) -> None:
        super().__init__(Config.model_validate({"home": home, "server": {"port": 0}}), [])
        self.loops = [Loop(f"loop-{i}", [sys.executable, "-c", text]) for i, text in enumerate(programs)]

    def _prepare(self, sock: socket.socket) -> Address:
        fd = sock.fileno()
        server = Loop("gateway", [sys.executable, "-c", SERVER, str(fd)], pass_fds=(fd,))
        self._loops += [server, *self.loops]
        return Address(f"http://127.0.0.1:{sock.getsockname()[1]}", None)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.02)


async def nothing(_: Address) -> None:
    return None


def children() -> list[psutil.Process]:
    """The processes under this one that live, without the database that other tests of it may have started."""
    living = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in living if p.name() != "postgres"]


@pytest.fixture
def full_disk() -> Iterator[TextIO]:
    """A file that takes nothing."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as file:  # closing it fails like writing to it
        yield file


async def test_output_that_cannot_be_written_does_not_lose_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_disk: TextIO
) -> None:
    supervisor, stop = Small(tmp_path, TALKER), asyncio.Event()
    monkeypatch.setattr(sys, "stderr", full_disk)
    running = asyncio.create_task(supervisor.run(nothing, stop))
    await until(lambda: supervisor.loops[0].starts >= 2 or running.done())
    monkeypatch.undo()
    stop.set()
    await asyncio.wait_for(running, 30)
    assert supervisor.loops[0].starts >= 2
    assert supervisor.loops[0].last_lines[-1].startswith("many words"), "it was read to its end, and began again"


async def test_a_fault_of_the_supervisor_ends_it_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    supervisor = Small(tmp_path, TALKER)
    monkeypatch.setattr(supervisor, "_forward", broken)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(supervisor.run(nothing, asyncio.Event()), 30)
    assert children() == []


async def test_a_loop_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failed = asyncio.create_subprocess_exec, []

    async def once_out_of_processes(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if command[-1] == TALKER and not failed:
            failed.append(command)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await real(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", once_out_of_processes)
    supervisor, stop = Small(tmp_path, TALKER), asyncio.Event()
    running = asyncio.create_task(supervisor.run(nothing, stop))
    await until(lambda: supervisor.loops[0].last_lines or running.done())
    stop.set()
    await asyncio.wait_for(running, 30)
    assert supervisor.loops[0].starts >= 2


async def test_a_loop_that_is_being_started_when_the_stop_comes_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, pending, go = asyncio.create_subprocess_exec, asyncio.Event(), asyncio.Event()

    async def slow(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if command[-1] == "import time; time.sleep(600)":
            pending.set()
            await go.wait()
        return await real(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    supervisor, stop = Small(tmp_path, "import time; time.sleep(600)"), asyncio.Event()
    running = asyncio.create_task(supervisor.run(nothing, stop))
    await pending.wait()
    stop.set()
    await until(supervisor.stopping.is_set)
    go.set()
    await asyncio.wait_for(running, 30)
    assert children() == []


async def test_a_start_that_never_comes_back_does_not_hold_up_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = asyncio.create_subprocess_exec

    async def stuck(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if command[-1] == TALKER:
            await asyncio.Event().wait()
        return await real(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", stuck)
    monkeypatch.setattr(module, "STOP_LIMIT_S", 3.0)
    stop = asyncio.Event()
    running = asyncio.create_task(Small(tmp_path, TALKER).run(nothing, stop))
    await asyncio.sleep(0.2)
    stop.set()
    await asyncio.wait_for(running, 30)
    assert children() == []


async def test_asked_twice_it_kills_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_LIMIT_S", 3600.0)
    supervisor, stop = Small(tmp_path, STUBBORN), asyncio.Event()
    running = asyncio.create_task(supervisor.run(nothing, stop))
    await until(lambda: supervisor.loops[0].last_lines)
    stop.set()
    await until(supervisor.stopping.is_set)
    supervisor.kill_all()
    await asyncio.wait_for(running, 30)
    assert children() == []
    process = supervisor.loops[0].process
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_leases_that_a_full_disk_keeps_do_not_keep_the_loops_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full disk is a stand-in, and so is the model."""

    def full(_: Journal) -> None:
        raise JournalFull("the journal cannot be written: the disk is full")

    monkeypatch.setattr(Store, "end_leases", full)
    monkeypatch.setattr(module, "resolve_model", lambda _: tmp_path)
    supervisor = Supervisor(Config.model_validate({"home": tmp_path, "server": {"port": 0}}), [])
    with socket.create_server(("127.0.0.1", 0)) as sock, supervisor._open:
        supervisor._prepare(sock)
    assert {loop.name for loop in supervisor._loops} == {"engine", "gateway", "judge", "evolver", "trainer"}


async def test_asking_that_fails_for_a_fault_of_ours_ends_the_supervisor_with_its_reason(tmp_path: Path) -> None:
    """Not in silence: a loop that lives would be taken for one that hangs, again and again."""
    supervisor = Small(tmp_path)
    asked = HealthAddress("http://127.0.0.1:no-port", "/healthz")
    supervisor.loops = [Loop("asked", [sys.executable, "-c", STUBBORN], asked=asked)]
    with pytest.raises(httpx.InvalidURL):
        await asyncio.wait_for(supervisor.run(nothing, asyncio.Event()), 60)
    await until(lambda: children() == [])  # what was killed takes a moment to be gone
