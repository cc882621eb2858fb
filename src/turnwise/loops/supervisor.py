"""Starts the loops as processes, restarts one that is dead or hangs, forwards their logs, and stops them cleanly.

The supervisor binds the listening sockets itself and hands them down, so that a taken port is noticed before anything
starts, and requests that come while the gateway or the engine is being restarted wait in a queue instead of failing. It
never looks into the journal to learn whether a loop lives: a locked one must not end them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from filelock import FileLock, Timeout

from turnwise.access_tokens import load_tokens
from turnwise.config import Config
from turnwise.engines.http import engine_client
from turnwise.engines.private_socket import private_socket
from turnwise.errors import ConfigError, JournalFull
from turnwise.journal import Journal
from turnwise.loops import lifeline
from turnwise.loops.states import LOCK, LoopState, forget_states, write_states
from turnwise.loops.table import HealthAddress, Loop, Places, child_environment, loop_table
from turnwise.loops.watching import ANSWER, HEARTBEAT, Watch
from turnwise.models import resolve_model
from turnwise.models.architectures import supported_model
from turnwise.net import bind, url_of

log = logging.getLogger("supervisor")

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
STEADY_S = 5.0  # a loop that ran this long has started well: it begins again at the first back-off
STOP_LIMIT_S = 9.0
KILL_LIMIT_S = 1.0  # what is killed is gone at once, unless it hangs in the kernel or left its output to a child
READY_LIMIT_S = 300.0
WATCH_S = 1.0
HELD_UP_S = 5.0  # between two looks, where one second was meant: the machine slept, and no loop is to blame
ASK_EVERY_S = 5.0
ASK_LIMIT_S = 10.0
SHOW_S = 0.3
TERM_LIMIT_S = 5.0  # what hangs in one thread may still stop by itself in another
LAST_LINES_S = 1.0
KEPT_LINES = 12
EXIT_POLL_S = 0.05


async def exit_code(process: asyncio.subprocess.Process) -> int:
    """Waits for the process alone: asyncio's own wait also waits for whoever inherited its output."""
    while process.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(EXIT_POLL_S)
    return process.returncode


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
        self._open = contextlib.ExitStack()
        self._secrets: list[str] = []

    async def run(self, on_ready: Callable[[Address], Awaitable[None]], stop: asyncio.Event) -> None:
        """Start everything, call `on_ready` once answers can be given, and stop everything when `stop` is set.

        Raises ConfigError for a taken port, a second server on the same home, or loops that never get ready.
        """
        home = self.config.home
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(home / LOCK)
            lock.acquire(timeout=1)  # who reads what the loops do may hold it for a moment
        except Timeout:
            raise ConfigError(f"turnwise already serves the home {home}; stop it, or choose another --home") from None
        except OSError as e:
            raise ConfigError(f"the home folder {home} cannot be used: {e.strerror or e}; see --home") from e
        try:
            with bind(self.config.server.host, self.config.server.port) as sock:
                address = self._prepare(sock)
                for loop in self._loops:
                    self._tasks.append(asyncio.create_task(self._keep_running(loop)))
                self._tasks.append(asyncio.create_task(self._report()))
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
                    forget_states(home)
        finally:
            self._open.close()
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
        ours = config.engine.kind == "local" or config.train.enabled
        model = (supported_model if ours else resolve_model)(config.model.path)
        journal = Journal.open(config)
        try:
            journal.store.end_leases()  # serve.lock is ours: no judge and no trainer of this home lives
        except JournalFull as e:
            log.warning("leases from before this start stand until they run out: %s", e)
        finally:
            journal.close()
        tokens = load_tokens(config)
        port = sock.getsockname()[1]
        url = url_of(config, port)
        engine_urls, engine_fd, key = config.engine.addresses, None, None
        if not engine_urls:
            engine = self._open.enter_context(private_socket(config.home))
            engine_urls, engine_fd = (f"unix:{engine.getsockname()}",), engine.fileno()
            key = secrets.token_urlsafe(32)
        places = Places(sock.fileno(), url, port, engine_fd, engine_urls, key)
        self._loops += loop_table(config, model, places, self.common)
        skills = config.skills
        named = (
            config.engine.api_key_env,
            config.judge.api_key_env,
            skills.evolver_api_key_env,
            skills.embedding_api_key_env,
        )
        keys = (os.environ.get(name, "") for name in named)
        self._secrets = [secret.strip() for secret in (tokens.agent, tokens.person, tokens.admin, key, *keys) if secret]
        return Address(url, tokens.agent if config.server.auth else None)

    async def _keep_running(self, loop: Loop) -> None:
        """Start a loop again whenever it ends, each time after a longer pause, until everything stops."""
        backoff = FIRST_BACKOFF_S
        while not self.stopping.is_set():
            started = time.monotonic()
            loop.begins(started)
            ended = await self._run_once(loop)
            if self.stopping.is_set():
                return
            loop.ended(ended)
            if time.monotonic() - started > STEADY_S:
                backoff = FIRST_BACKOFF_S
            log.warning("the %s %s; it starts again in %.1f s", loop.name, ended, backoff)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_S)

    async def _run_once(self, loop: Loop) -> str:
        """One process of a loop, from its start to its end. Gives why it ended."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    loop.process = process = await self._start(loop, theirs)
            except OSError as e:  # no memory, no process to be had
                return f"cannot be started: {e.strerror or e}"
            if self.stopping.is_set():  # whoever asked to stop could not see this process yet
                self._send(process, signal.SIGKILL if self._killing else signal.SIGTERM)
            forwarding = asyncio.create_task(self._forward(loop, process))
            watching = asyncio.create_task(self._watch(loop, process, ours))
            exited = asyncio.create_task(exit_code(process))
            try:
                await self._until_exit(exited, forwarding, watching)
                code = await exited
                # What is left in its pipe is read; a child of its own that holds the pipe open is not waited for.
                await asyncio.wait({forwarding}, timeout=LAST_LINES_S)
                process._transport.close()  # pyright: ignore  # our end of that pipe; asyncio has no other word for it
            finally:
                for task in (forwarding, watching, exited):
                    task.cancel()
                await asyncio.gather(forwarding, watching, exited, return_exceptions=True)
        return f"{loop.why}, so it was ended" if loop.state == "hung" else f"ended with code {code}"

    @staticmethod
    async def _until_exit(exited: asyncio.Task[int], *beside: asyncio.Task[Any]) -> None:
        """Wait for the process. A fault of ours in what goes on beside it is raised."""
        running = {exited, *beside}
        while not exited.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _start(self, loop: Loop, line: socket.socket) -> asyncio.subprocess.Process:
        own = {lifeline.LIFELINE: str(line.fileno())}
        return await asyncio.create_subprocess_exec(
            *loop.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(*loop.pass_fds, line.fileno()),
            env=child_environment() | dict(loop.environment) | own,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the loops in order
            limit=1 << 20,
        )

    async def _watch(self, loop: Loop, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        """Listen for signs of life. When they fail to come, note why and end the process."""
        events, last = asyncio.get_running_loop(), time.monotonic()
        watch = Watch(loop.limits, (HEARTBEAT, ANSWER) if loop.asked else (HEARTBEAT,), last)

        def heard() -> None:
            try:
                signs = line.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                signs = b""
            if signs:
                watch.sign(HEARTBEAT, time.monotonic())
            else:
                events.remove_reader(line)

        line.setblocking(False)
        events.add_reader(line, heard)
        asking = asyncio.create_task(self._ask(loop.asked, watch)) if loop.asked else None
        try:
            while True:
                await asyncio.sleep(WATCH_S)
                if asking is not None and asking.done():
                    asking.result()  # a fault of ours, else it asks for ever: the loop is not to blame for its silence
                now = time.monotonic()
                if now - last > HELD_UP_S or self.stopping.is_set():
                    watch.excuse(now - last)
                last = now
                if loop.state == "starting" and watch.living:
                    loop.state = "running"
                if fault := watch.fault(now):
                    loop.state, loop.why = "hung", fault
                    log.warning("the %s hangs: it %s; it is ended", loop.name, fault)
                    await self._end(process, shows_stacks=HEARTBEAT in watch.seen)
                    return
        finally:
            events.remove_reader(line)
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, asked: HealthAddress, watch: Watch) -> None:
        """Ask a loop that serves HTTP, again and again; each answer, and each connection that it closes, is a sign."""
        async with engine_client(asked.url, ASK_LIMIT_S) as client:
            while True:
                try:
                    await client.get(asked.path)
                except (httpx.TimeoutException, httpx.ConnectError, OSError):
                    pass  # silence
                except httpx.HTTPError:
                    watch.sign(ANSWER, time.monotonic())
                else:
                    watch.sign(ANSWER, time.monotonic())
                await asyncio.sleep(ASK_EVERY_S)

    async def _end(self, process: asyncio.subprocess.Process, shows_stacks: bool) -> None:
        """End a process that hangs: it shows where it stands, is asked to stop, and is then made to."""
        if shows_stacks:
            self._send(process, lifeline.SHOW_STACKS)
            await asyncio.sleep(SHOW_S)
        self._send(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(exit_code(process), TERM_LIMIT_S)
        if process.returncode is None:
            self._send(process, signal.SIGKILL)

    async def _report(self) -> None:
        """Keep the file that says how the loops are (`loop_states`)."""
        written: dict[str, LoopState] | None = None
        while not self.stopping.is_set():
            now = time.monotonic()
            states = {loop.name: loop.told(now, self._secrets) for loop in self._loops}
            if states != written:
                try:
                    await asyncio.to_thread(write_states, self.config.home, os.getpid(), states)
                    written = states
                except OSError as e:  # a full disk; tried again
                    log.debug("what the loops do could not be written down: %s", e)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), WATCH_S)

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
            loop.last_lines = [*loop.last_lines[1 - KEPT_LINES :], text]
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
        waits = [asyncio.create_task(exit_code(process)) for process in alive]
        if waits:
            await asyncio.wait(waits, timeout=max(0.1, deadline - time.monotonic()))
        for wait in waits:
            wait.cancel()
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
