"""OpenClaw's own gateway process on loopback, and commands to it: it alone compacts, titles and sends heartbeats."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.conftest import Bench, shown
from tests.support.servers import wait_until

READY = re.compile(r"\[gateway\]\S*\s+\S*ready\b")


@dataclass
class OpenClawGateway:
    """A running gateway of OpenClaw's, spoken to by OpenClaw's own commands."""

    bench: Bench
    program: str

    def run(self, *args: str) -> str:
        done = self.bench.run(self.program, *args)
        assert done.returncode == 0, shown(done)
        return done.stdout

    def say(self, key: str, text: str) -> None:
        self.run("agent", "--session-key", key, "--message", text, "--json")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        said = self.run("gateway", "call", method, "--params", json.dumps(params), "--json")
        return json.loads(said[said.index("{") :])

    def wait_for(self, asked: Callable[[dict[str, Any]], bool]) -> None:
        """Until a request of that kind was answered. What OpenClaw does beside a turn comes after it."""
        wait_until(lambda: any(asked(r["body"]) for r in self.bench.tap.posts() if r.get("turn")), 120)


def end_group(group: int) -> None:
    """End a process and what it started: the program is only the launcher of the gateway, which would outlive it."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(group, signal.SIGTERM)
    with suppress(AssertionError):
        wait_until(lambda: not _is_alive(group), 30)
    if _is_alive(group):
        os.killpg(group, signal.SIGKILL)


def _is_alive(group: int) -> bool:
    states = [stat.rsplit(")", 1)[1].split() for stat in _stats()]
    return any(int(pgrp) == group and state != "Z" for state, _, pgrp, *_ in states)


def _stats() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield file.read_text()


@contextmanager
def running_gateway(bench: Bench, program: str) -> Iterator[OpenClawGateway]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    bench.environment |= {"OPENCLAW_GATEWAY_PORT": port, "OPENCLAW_SKIP_CHANNELS": "1"}
    log = bench.person / "gateway.log"
    command = [program, "gateway", "run", "--port", port, "--bind", "loopback", "--auth", "none"]
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=bench.person,
            env=bench.environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(lambda: READY.search(log.read_text()) or process.poll() is not None, 180)
            assert process.poll() is None, log.read_text()[-3000:]
            yield OpenClawGateway(bench, program)
        finally:
            end_group(process.pid)
            process.wait()
