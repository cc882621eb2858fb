"""Keeps one site loaded, and forks an instance of it for whoever asks: a process, a port and a copy of the data each.

It is asked over a Unix socket, a JSON object a line. An instance lives as long as the connection that asked for it, so
that nothing is left of a rollout that was killed. Runs as `keeper.py serve …` or `keeper.py make SITE FOLDER`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST_INSTANCES = 128
MOST_OF_A_LINE = 4096
LOOK_S = 0.3
"""How often it is seen whether an instance has ended by itself."""
MOST_FILE = 64 << 20
"""Bytes of a file that an instance writes."""
MOST_MEMORY = 2 << 30
"""Bytes of address space of an instance."""
BUSY = "busy"
"""A file of an instance that says how many requests it has in hand."""


@dataclass
class Forked:
    """A running instance: its process, where it listens, and its copy of the data."""

    pid: int
    port: int
    folder: Path


@dataclass
class AskedOver:
    """A connection: what was read of its next line, and its instance where it has one."""

    wire: socket.socket
    read: bytes = b""
    instance: Forked | None = None


@dataclass
class SiteKeeper:
    """The site ``module`` with its ``seed`` data. ``shown`` is the instance that people look at."""

    name: str
    module: Any
    seed: Path
    run: Path
    listener: socket.socket
    shown_port: int
    ends_with: int | None
    asking: dict[socket.socket, AskedOver] = field(default_factory=dict)
    shown: Forked | None = None
    made: int = 0

    def serve(self) -> None:
        """Answer until it is told to stop, or whoever started it is gone."""
        self.alive, self._kept = os.pipe()
        self.selector = selectors.DefaultSelector()
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        if self.ends_with is not None:
            self.selector.register(self.ends_with, selectors.EVENT_READ)
        self.show()
        print(json.dumps({"ready": True, "port": self.shown_port}), flush=True)
        self.going = True
        try:
            while self.going:
                for key, _ in self.selector.select(LOOK_S):
                    self._heard(key.fileobj)
                self._bury()
        finally:
            for each in [*(asking.instance for asking in self.asking.values()), self.shown]:
                self.end(each)
            shutil.rmtree(self.run / "instances", ignore_errors=True)

    def show(self) -> None:
        """Begin the instance for people anew, at the port that it has."""
        self.end(self.shown)
        self.shown = None
        self.shown = self.fork(None, self.shown_port)
        self.shown_port = self.shown.port

    def fork(self, address: str | None, port: int = 0) -> Forked:
        """A new instance; ``address`` is what its pages take for theirs."""
        self.made += 1
        folder = self.run / "instances" / f"{os.getpid()}-{self.made}"
        listening = socket.socket()
        try:
            return self._forked(listening, folder, address, port)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            listening.close()

    def _forked(self, listening: socket.socket, folder: Path, address: str | None, port: int) -> Forked:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(128)
        port = listening.getsockname()[1]
        shutil.copytree(self.seed, folder / "data", symlinks=True)
        (folder / BUSY).write_text("   0")
        pid = os.fork()
        if pid == 0:
            try:
                self._begin(listening, folder, address or f"http://127.0.0.1:{port}")
            finally:
                os._exit(1)
        return Forked(pid, port, folder)

    def end(self, instance: Forked | None) -> None:
        """End an instance and take its data away."""
        if instance is None:
            return
        if instance.pid:
            os.kill(instance.pid, signal.SIGKILL)
            os.waitpid(instance.pid, 0)
            instance.pid = 0
        shutil.rmtree(instance.folder, ignore_errors=True)

    def _heard(self, source: Any) -> None:
        if source is self.listener:
            wire, _ = self.listener.accept()
            wire.setblocking(False)
            self.asking[wire] = AskedOver(wire)
            self.selector.register(wire, selectors.EVENT_READ)
        elif source == self.ends_with:
            self.going = bool(os.read(source, 1))
        else:
            self._read(self.asking[source])

    def _read(self, asking: AskedOver) -> None:
        try:
            said = asking.wire.recv(MOST_OF_A_LINE)
        except OSError:
            said = b""
        asking.read += said
        if not said or len(asking.read) > MOST_OF_A_LINE:
            self._hang_up(asking)
        elif b"\n" in asking.read:
            line, _, asking.read = asking.read.partition(b"\n")
            try:
                answer = self._answer(asking, json.loads(line))
            except (ValueError, KeyError, OSError) as e:
                answer = {"fault": f"{type(e).__name__}: {e}"}
            try:
                asking.wire.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                self._hang_up(asking)

    def _answer(self, asking: AskedOver, asked: dict[str, Any]) -> dict[str, Any]:
        number = sum(each.instance is not None for each in self.asking.values())
        match asked["do"]:
            case "open":
                if number >= MOST_INSTANCES:
                    return {"fault": f"there are {MOST_INSTANCES} instances already"}
                self.end(asking.instance)
                asking.instance = self.fork(asked["address"])
                return self._said(asking.instance)
            case "status":
                return {"site": self.name, "pid": os.getpid(), "port": self.shown_port, "instances": number}
            case "reset":
                self.show()
                return {"port": self.shown_port}
            case "stop":
                self.going = False
                return {"stopped": True}
        return {"fault": "open, status, reset or stop"}

    def _said(self, instance: Forked) -> dict[str, Any]:
        of = {"folder": str(instance.folder), "seed": str(self.seed)}
        return {"pid": instance.pid, "port": instance.port, **of}

    def _hang_up(self, asking: AskedOver) -> None:
        self.selector.unregister(asking.wire)
        del self.asking[asking.wire]
        asking.wire.close()
        self.end(asking.instance)

    def _bury(self) -> None:
        """What has ended by itself: whoever has it is told by the end of the connection; people get a new one."""
        for asking in list(self.asking.values()):
            if asking.instance is not None and _has_ended(asking.instance):
                self._hang_up(asking)
        if self.shown is None or _has_ended(self.shown):
            with contextlib.suppress(OSError):  # no room, say: it is tried again at the next look
                self.show()

    def _begin(self, listening: socket.socket, folder: Path, address: str) -> None:
        """The life of an instance, in its own process. Never returns while its keeper lives."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1)  # whoever waits for it in vain asks where it stands; the log says it
        # Each is closed as the object that it is: one that is collected later would close a number that is another's.
        self.selector.close()
        self.listener.close()
        for asking in self.asking.values():
            asking.wire.close()
        os.close(self._kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        threading.Thread(target=_ends_with_keeper, args=(self.alive,), daemon=True).start()
        counted = Counted(self.module.application(folder / "data", address), folder / BUSY)
        _server(listening, counted).serve_forever()


class Counted:
    """An application that writes down how many requests it has in hand, so that one can wait until there are none."""

    def __init__(self, application: Callable[..., Iterable[bytes]], file: Path) -> None:
        self._application, self._file = application, os.open(file, os.O_WRONLY)
        self._number, self._lock = 0, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        self._add(1)
        try:
            answer = self._application(environ, start_response)
            try:
                yield from answer
            finally:
                getattr(answer, "close", lambda: None)()
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with self._lock:
            self._number += number
            os.pwrite(self._file, f"{self._number:4d}".encode(), 0)


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    timeout = 60

    def log_message(self, format: str, *_: object) -> None:
        pass


def _server(listening: socket.socket, application: Callable[..., Iterable[bytes]]) -> Threaded:
    port = listening.getsockname()[1]
    server = Threaded(("127.0.0.1", port), Quiet, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.server_name, server.server_port = "127.0.0.1", port
    server.setup_environ()
    server.set_app(application)
    return server


def _ends_with_keeper(alive: int) -> None:
    while os.read(alive, 1):
        pass
    os._exit(0)


def _has_ended(instance: Forked) -> bool:
    if instance.pid and os.waitpid(instance.pid, os.WNOHANG)[0]:
        instance.pid = 0
    return not instance.pid


def main(words: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    what, name, *rest = words
    module = importlib.import_module(name)
    if what == "make":
        module.make(Path(rest[0]))
        return
    seed, run, listener, port, ends_with = Path(rest[0]), Path(rest[1]), int(rest[2]), int(rest[3]), rest[4:]
    instances = run / "instances"
    shutil.rmtree(instances, ignore_errors=True)
    warm = instances / f"{os.getpid()}-0"
    shutil.copytree(seed, warm, symlinks=True)
    began = time.monotonic()
    module.load(warm)
    print(f"{name} loaded in {time.monotonic() - began:.2f} s", file=sys.stderr, flush=True)
    asked = socket.socket(fileno=listener)
    SiteKeeper(name, module, seed, run, asked, port, int(ends_with[0]) if ends_with else None).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
