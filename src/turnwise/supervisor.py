"""Starts the loops as processes, restarts a dead one, forwards their logs, and stops them cleanly.

The supervisor binds the listening socket itself and hands it down, so that a taken port is noticed before anything
starts, and requests that come while the gateway is being restarted wait in the socket's queue instead of failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from turnwise.config import Config
from turnwise.errors import ConfigError
from turnwise.gateway.auth import load_or_make_token
from turnwise.gateway.server import bind
from turnwise.journal import Journal
from turnwise.loops import SUPERVISOR_PID
from turnwise.models import resolve_model

log = logging.getLogger("supervisor")

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
STEADY_S = 5.0  # a loop that ran this long has started well: it begins again at the first back-off
STOP_LIMIT_S = 9.0
KILL_LIMIT_S = 1.0  # what is killed is gone at once, unless it hangs in the kernel or left its output to a child
READY_LIMIT_S = 300.0
CHILD_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    # Engine and trainer share the cores. OpenMP threads that spin while they wait take them from each other: with two
    # busy processes on two cores, decoding was measured 10 times slower than with threads that sleep.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    # Large blocks go back to the system when they are freed: the engine's merged weights of old versions, the trainer's
    # activations. Without this the allocator keeps them; an engine had 1.6 GB after three versions instead of 1.3 GB.
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
    "MALLOC_ARENA_MAX": "2",
}


def child_environment() -> dict[str, str]:
    """The environment of a loop: ours, with what makes it share the machine and die with this process."""
    return os.environ | CHILD_ENVIRONMENT | {SUPERVISOR_PID: str(os.getpid())}


@dataclass
class Loop:
    """One child process and how often it had to be started."""

    name: str
    command: list[str]
    pass_fds: tuple[int, ...] = ()
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    last_lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Address:
    """Where a running turnwise is reached, and with which token (None: none needed)."""

    url: str
    token: str | None


class Supervisor:
    """Runs the loops of one home until `stop` is set. `common` are the arguments every loop gets."""

    def __init__(self, config: Config, common: list[str]) -> None:
        self.config = config
        self.common = common
        self.stopping = asyncio.Event()
        self._killing = False
        self._loops: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, on_ready: Callable[[Address], Awaitable[None]], stop: asyncio.Event) -> None:
        """Start everything, call `on_ready` once answers can be given, and stop everything when `stop` is set.

        Raises ConfigError for a taken port, a second server on the same home, or loops that never get ready.
        """
        home = self.config.home
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(home / "serve.lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(f"turnwise already serves the home {home}; stop it, or choose another --home") from None
        except OSError as e:
            raise ConfigError(f"the home folder {home} cannot be used: {e.strerror or e}; see --home") from e
        try:
            with bind(self.config.server.host, self.config.server.port) as sock:
                address = self._prepare(sock)
                for loop in self._loops:
                    self._tasks.append(asyncio.create_task(self._keep_running(loop)))
                serving = asyncio.create_task(self._serve(address, on_ready, stop))
                try:
                    await asyncio.wait({serving, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                    for task in self._tasks:
                        if task.done():
                            task.result()  # a fault of ours: better an end with its reason than a loop nobody watches
                    await serving
                finally:
                    serving.cancel()
                    await self.stop_all()
        finally:
            lock.release()

    async def _serve(
        self, address: Address, on_ready: Callable[[Address], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        await self._until_ready(address, stop)
        if not stop.is_set():
            await on_ready(address)
        await stop.wait()

    def _prepare(self, sock: socket.socket) -> Address:
        """Check what every loop needs, once and before any starts, and write down the commands."""
        config = self.config
        model = resolve_model(config.model.path)
        Journal.open(config).close()
        token = load_or_make_token(config.token_path) if config.server.auth else None
        host = config.server.host
        port = sock.getsockname()[1]
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        url = f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
        engine_urls = config.engine.addresses
        if not engine_urls:
            engine_port = _free_port()
            engine_urls = (f"http://127.0.0.1:{engine_port}",)
            self._loops.append(Loop("engine", engine_command(config, model, engine_port)))
        python = [sys.executable, "-m"]
        common = [*self.common, "--set", f"server.port={port}"]  # the real one, where 0 was asked for
        engines = [arg for url in engine_urls for arg in ("--engine-url", url)]
        gateway = [*python, "turnwise.gateway", *engines, "--fd", str(sock.fileno()), *common]
        self._loops.append(Loop("gateway", gateway, pass_fds=(sock.fileno(),)))
        if config.judge.enabled:
            self._loops.append(Loop("judge", [*python, "turnwise.judges", *common]))
        if config.train.enabled:
            self._loops.append(Loop("trainer", [*python, "turnwise.training", *common]))
        return Address(url, token)

    async def _keep_running(self, loop: Loop) -> None:
        """Start a loop again whenever it ends, each time after a longer pause, until everything stops."""
        backoff = FIRST_BACKOFF_S
        while not self.stopping.is_set():
            started = time.monotonic()
            loop.starts += 1
            try:
                loop.process = await self._start(loop)
            except OSError as e:  # no memory, no process to be had
                ended = f"cannot be started: {e.strerror or e}"
            else:
                if self.stopping.is_set():  # whoever asked to stop could not see this process yet
                    self._send(loop.process, signal.SIGKILL if self._killing else signal.SIGTERM)
                await self._forward(loop, loop.process)
                ended = f"ended with code {await loop.process.wait()}"
            if self.stopping.is_set():
                return
            if time.monotonic() - started > STEADY_S:
                backoff = FIRST_BACKOFF_S
            log.warning("the %s %s; it starts again in %.1f s", loop.name, ended, backoff)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_S)

    async def _start(self, loop: Loop) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *loop.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=loop.pass_fds,
            env=child_environment(),
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the loops in order
            limit=1 << 20,
        )

    async def _forward(self, loop: Loop, process: asyncio.subprocess.Process) -> None:
        """Pass on what a loop prints, with its name in front."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # one line longer than the buffer: it was dropped, the loop goes on
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            loop.last_lines = [*loop.last_lines[-4:], text]
            with contextlib.suppress(OSError):  # a full disk or a dead reader costs the line, not the loop
                print(f"[{loop.name}] {text}", file=sys.stderr, flush=True)

    async def _until_ready(self, address: Address, stop: asyncio.Event) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        async with httpx.AsyncClient(base_url=address.url, timeout=5.0, trust_env=False) as client:
            while not stop.is_set():
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get("/readyz")).status_code == 200:
                        return
                failed = next((loop for loop in self._loops if loop.starts > 3), None)
                if failed is not None or time.monotonic() > deadline:
                    name = failed.name if failed else "server"
                    said = "\n  ".join(failed.last_lines) if failed else "no answer in time"
                    raise ConfigError(f"the {name} does not start; its last words:\n  {said}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.2)

    async def stop_all(self) -> None:
        """Ask every loop to stop, the engine last so that answers in flight finish; end by pid what does not.

        Returns within a few seconds of `STOP_LIMIT_S`, whatever the loops do.
        """
        self.stopping.set()
        deadline = time.monotonic() + STOP_LIMIT_S
        engine = [loop for loop in self._loops if loop.name == "engine"]
        rest = [loop for loop in self._loops if loop.name != "engine"]
        await self._stop(rest, deadline - 2)
        await self._stop(engine, deadline)
        # What was being started when the stop came has been asked since; what still holds out is killed.
        await self._finish(max(1.0, deadline - time.monotonic()))
        self.kill_all()
        await self._finish(KILL_LIMIT_S)
        for task in self._tasks:
            task.cancel()
        await self._finish(KILL_LIMIT_S)

    def kill_all(self) -> None:
        """End every loop at once: for who asks a second time, and for what did not stop when asked."""
        self._killing = True
        self.stopping.set()
        for process in self._alive(self._loops):
            log.warning("process %d is killed", process.pid)
            self._send(process, signal.SIGKILL)

    async def _finish(self, seconds: float) -> None:
        unfinished = [task for task in self._tasks if not task.done()]
        if unfinished:
            await asyncio.wait(unfinished, timeout=seconds)

    async def _stop(self, loops: list[Loop], deadline: float) -> None:
        alive = self._alive(loops)
        for process in alive:
            self._send(process, signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for process in alive]
        if waits:
            await asyncio.wait(waits, timeout=max(0.1, deadline - time.monotonic()))
        for process in alive:
            if process.returncode is None:
                log.warning("process %d did not stop in time; it is killed", process.pid)
                self._send(process, signal.SIGKILL)

    @staticmethod
    def _alive(loops: list[Loop]) -> list[asyncio.subprocess.Process]:
        return [loop.process for loop in loops if loop.process is not None and loop.process.returncode is None]

    @staticmethod
    def _send(process: asyncio.subprocess.Process, sig: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(sig)


def engine_command(config: Config, model: Path | str, port: int) -> list[str]:
    """The command that starts the local engine as this configuration wants it."""
    engine = config.engine
    return [
        *(sys.executable, "-m", "turnwise.engines.local"),
        *("--model", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", engine.dtype, "--threads", str(engine.threads)),
        *("--max-num-seqs", str(engine.max_num_seqs), "--max-queue", str(engine.max_queue)),
        *("--max-model-len", str(engine.max_model_len), "--kv-cache-mb", str(engine.kv_cache_mb)),
    ]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
