"""The real program as a child process: `turnwise serve` and single loops, always stopped by pid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from openai import OpenAI

from tests.support.servers import wait_until
from turnwise.config import Config, load_config
from turnwise.journal import Journal
from turnwise.net import bind


@dataclass
class Server:
    """A running `turnwise serve`: its address, token, home and process."""

    url: str
    token: str
    config: Config
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, **options: Any) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.token, **({"max_retries": 0, "timeout": 60} | options))

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def person(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.config.home / 'token.person').read_text().strip()}"}

    def status(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/v1/status", headers=self.person, timeout=20).json()

    def loop(self, name: str) -> psutil.Process | None:
        """The process of one loop, or None while there is none."""
        module = {"engine": "local_engine", "judge": "judges", "evolver": "evolving", "trainer": "training"}.get(
            name, name
        )
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if f"turnwise.{module}" in child.cmdline():
                        return child
        return None

    def journal(self) -> Journal:
        return Journal.open(self.config)

    def stop(self, limit_s: float = 15) -> float:
        """SIGTERM; gives the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=limit_s)
        return time.monotonic() - started


@contextlib.contextmanager
def serving(
    home: Path, model: Path | str | None = None, program: str | None = None, **settings: object
) -> Iterator[Server]:
    """`turnwise serve` in this home until the block ends. Settings have two underscores for the dot.

    It trains as soon as there is a batch, unless `train__when` says otherwise: nobody is away in a test.

    `program` is Python that runs the command line after what it changes.
    """
    home.mkdir(parents=True, exist_ok=True)
    pairs = {"train.when": "always"} | {key.replace("__", "."): value for key, value in settings.items()}
    if model is not None:
        pairs["model.path"] = str(model)
    sets = [arg for key, value in pairs.items() for arg in ("--set", f"{key}={value}")]
    ready, log = home / "ready.json", home / "serve.log"
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        *(("-m", "turnwise") if program is None else ("-c", program)),
        "serve",
        "--home",
        str(home),
        "--port",
        "0",
        "--ready-file",
        str(ready),
    ]
    with log.open("ab") as out:
        process = subprocess.Popen([*command, *sets], stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 180)
        assert process.poll() is None, log.read_text()[-3000:]
        told = json.loads(ready.read_text())
        config = load_config(overrides={"home": home} | pairs)
        yield Server(told["url"], told["token"], config, process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def engine_process(model: Path, dtype: str = "bfloat16", **options: object) -> Iterator[str]:
    """The real local engine alone, on a socket that it inherits; gives its URL."""
    sock = bind("127.0.0.1", 0)
    extra = [arg for key, value in options.items() for arg in (f"--{key.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), "--fd", str(sock.fileno())]
    process = subprocess.Popen(
        [*command, "--dtype", dtype, *extra],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
        pass_fds=(sock.fileno(),),
    )
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    def healthy() -> bool:
        assert process.poll() is None, "the engine ended"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/health", timeout=2).status_code == 200
        return False

    try:
        wait_until(healthy, 120)
        yield url
    finally:
        sock.close()
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
