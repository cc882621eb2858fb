"""Starts and stops the server that the demo plays against, as any user would: `turnwise serve` in a fresh home.

The demo speaks to it by HTTP. The child is stopped by SIGTERM, and by SIGKILL of its own process group only if it does
not listen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise import machine
from turnwise.errors import TurnwiseError

START_LIMIT_S = 960.0
"""Longer than the supervisor gives its slowest loop, which it starts again: a busy machine is no fault."""
STOP_LIMIT_S = 30.0
_LOG_TAIL = 2000


class ServerError(TurnwiseError):
    """The server did not start, or ended before the demo did."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a running server is reached. ``url`` has no trailing slash and no ``/v1``."""

    url: str
    token: str
    person_token: str
    """Reads the status; the agents' token does not."""


@contextlib.contextmanager
def running_server(
    home: Path, settings: Mapping[str, Mapping[str, object]], environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server in the folder ``home`` with ``settings`` (sections of config.toml); stop it at the end.

    It trains as soon as there is a batch, on all cores, unless the settings say otherwise.

    ``environment`` has variables beside this process's own. Raises ServerError with the end of the server's log when it
    is not ready within START_LIMIT_S.
    """
    home.mkdir(parents=True, exist_ok=True)
    # Who plays a person waits for what is learned of it, and never goes away: the cores are the trainer's meanwhile.
    waited_for = {"when": "always", "threads": machine.cores()}
    settings = {**settings, "train": {**waited_for, **settings.get("train", {})}}
    (home / "config.toml").write_text(_toml(settings), encoding="utf-8")
    ready, log = home / "ready.json", home / "serve.log"
    ready.unlink(missing_ok=True)  # of a server that was here before
    command = [sys.executable, "-P", "-m", "turnwise", "serve", "--port", "0", "--ready-file", str(ready)]
    with log.open("ab") as out:
        # Its own session, so that a Ctrl-C in the terminal reaches the demo alone, which then stops the server.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TURNWISE_HOME": str(home), "PYTHONUNBUFFERED": "1", **(environment or {})},
            start_new_session=True,
        )
        try:
            yield _wait_until_ready(child, ready, log)
        finally:
            _stop(child)


@contextlib.contextmanager
def termination_unwinds() -> Iterator[None]:
    """Within this, SIGTERM ends the program as an exception does, so that a server it started is stopped, too.

    Signals belong to the main thread; in any other one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait_until_ready(child: subprocess.Popen[bytes], ready: Path, log: Path) -> Server:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise ServerError(f"`turnwise serve` ended with {child.returncode} before it was ready:\n{_tail(log)}")
        if ready.exists():
            told = json.loads(ready.read_text(encoding="utf-8"))
            return Server(told["url"].rstrip("/"), told["token"], (ready.parent / "token.person").read_text().strip())
        time.sleep(0.2)
    raise ServerError(f"`turnwise serve` was not ready after {START_LIMIT_S:.0f} s:\n{_tail(log)}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(STOP_LIMIT_S)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:].strip() or "(its log is empty)"


def _toml(settings: Mapping[str, Mapping[str, object]]) -> str:
    """TOML of flat sections. JSON's spelling of strings, numbers and booleans is TOML's, too."""
    lines: list[str] = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items())
        lines.append("")
    return "\n".join(lines)
