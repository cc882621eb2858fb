"""The program under soak, from outside: its address, its loops as processes, and what its health routes say."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from turnwise.demo.server import Server

LOOPS = {
    "engine": "turnwise.local_engine",
    "gateway": "turnwise.gateway",
    "judge": "turnwise.judges",
    "trainer": "turnwise.training",
}


class Program:
    """A running `turnwise serve` with its home."""

    def __init__(self, server: Server, home: Path, environment: Mapping[str, str]) -> None:
        self.server, self.home, self._environment = server, home, environment
        told = json.loads((home / "ready.json").read_text(encoding="utf-8"))
        self.supervisor = psutil.Process(told["pid"])

    @property
    def person(self) -> str:
        """The person's token, for feedback and figures; agents have another."""
        return (self.home / "token.person").read_text(encoding="ascii").strip()

    def processes(self) -> dict[str, psutil.Process]:
        """The supervisor and each loop that runs, by name."""
        found = {"supervisor": self.supervisor}
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in self.supervisor.children():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    words = child.cmdline()
                    name = next((name for name, module in LOOPS.items() if module in words), None)
                    if name is not None:
                        found[name] = child
        return found

    def loop(self, name: str) -> psutil.Process | None:
        return self.processes().get(name)

    def ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.server.url}/readyz", timeout=5, trust_env=False).status_code == 200
        return False

    def status(self) -> dict[str, Any] | None:
        """What `/v1/status` says; None while it says nothing."""
        return self._get("/v1/status", self.person)

    def _get(self, path: str, token: str) -> dict[str, Any] | None:
        with contextlib.suppress(httpx.HTTPError, ValueError):
            answer = httpx.get(
                f"{self.server.url}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=20, trust_env=False
            )
            if answer.status_code == 200:
                return answer.json()
        return None

    def command(self, *words: str, limit_s: float = 60) -> subprocess.CompletedProcess[str] | None:
        """Run a command of turnwise on this home, with this program's clock; None when it takes too long."""
        command = [sys.executable, "-P", "-m", "turnwise", *words, "--home", str(self.home)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=dict(self._environment))
        except subprocess.TimeoutExpired:
            return None

    def versions(self) -> list[int]:
        """The numbers that may be asked for by name; empty while the server says nothing."""
        models = self._get("/v1/models", self.server.token) or {"data": []}
        versions = [name.removeprefix("turnwise@v") for name in (model["id"] for model in models["data"])]
        return sorted(int(version) for version in versions if version.isdecimal())


def wait_for(condition: Any, limit_s: float, every_s: float = 0.5) -> bool:
    """Whether it came true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
