"""What is attacked: the real gateway as a process of its own, over a stand-in for the engine that answers at once.

The engine is the one of the latency bench: it always says the same words, thinking and a tool call among them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from tokenizers import Tokenizer

from tests.support.servers import wait_until
from turnwise.bench.latency.arms import Said, instant_engine
from turnwise.config import Config, load_config
from turnwise.loops.table import child_environment
from turnwise.net import bind

WORDS = (
    *("<think>\nhm,", " let", " me\n</think>", "\n\nAdding", ".\n"),
    *('<tool_call>\n{"name": "add", "argu', 'ments": {"a": ', '1, "b": "two"', "}}\n</tool", "_call>"),
)


@dataclass
class Target:
    """A gateway under attack. The token is the admin's, which every route takes."""

    port: int
    token: str
    config: Config
    process: subprocess.Popen[bytes]
    log: Path

    def memory_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def connections(self) -> int:
        """Open connections of clients; the listening socket is none."""
        return sum(
            1
            for c in psutil.Process(self.process.pid).net_connections("tcp")
            if c.status == psutil.CONN_ESTABLISHED and c.laddr.port == self.port
        )

    def answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=20, trust_env=False).status_code == 200
        return False

    def logged(self, word: str) -> list[str]:
        """What the log has from each line with this word on, for a reader of a failure."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return ["\n".join(lines[i : i + 40]) for i, line in enumerate(lines) if word in line]


@contextlib.contextmanager
def target(home: Path, model: Path, **settings: object) -> Iterator[Target]:
    """A gateway until the block ends; SIGTERM must end it. Settings have two underscores for the dot."""
    home.mkdir(parents=True)
    log = home / "gateway.log"
    end = Tokenizer.from_file(str(model / "tokenizer.json")).token_to_id("<|im_end|>")
    assert end is not None
    pieces = [*((i + 1, word) for i, word in enumerate(WORDS)), (end, "")]
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    with instant_engine(Said(pieces)) as engine, bind("127.0.0.1", 0) as sock, log.open("wb") as out:
        port, fd = sock.getsockname()[1], sock.fileno()
        changed |= {"server.port": port, "model.path": str(model)}
        command = [sys.executable, "-m", "turnwise.gateway", "--engine-url", f"http://127.0.0.1:{engine}"]
        command += [
            "--fd",
            str(fd),
            "--home",
            str(home),
            *(arg for k, v in changed.items() for arg in ("--set", f"{k}={v}")),
        ]
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=child_environment(), pass_fds=(fd,)
        )
        try:
            config = load_config(overrides={"home": home} | changed)
            attacked = Target(port, "", config, process, log)
            wait_until(lambda: process.poll() is not None or attacked.answers(), 180)
            assert process.poll() is None, log.read_text()[-3000:]
            attacked.token = (home / "token.admin").read_text(encoding="ascii").strip()
            yield attacked
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
