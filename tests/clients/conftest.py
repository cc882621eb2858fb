"""A real gateway over a scripted engine, a tap that sees what the client sends, and a person's home for the client."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from tests.clients.install import node_path, program
from tests.conftest import GatewayThread
from tests.support.models import make_qwen3
from tests.support.scripted_agent import Script
from tests.support.servers import running
from tests.support.tap import Tap, write_recording
from turnwise.bench.stub_engine import StubEngine
from turnwise.cli.main import app
from turnwise.config import Config, cache_dir, load_config
from turnwise.journal import Journal
from turnwise.types import TurnKind

RECORD = os.environ.get("TURNWISE_RECORD_TRAFFIC")
"""A folder: what each client sends is written there."""


def need(name: str) -> str:
    """The client's program; skips the test where it is not installed, which `make test-clients` does not allow."""
    found = program(name)
    if found is None:
        pytest.skip(f"{name} is not installed; `make test-clients` does it")
    return str(found)


@dataclass
class Bench:
    """Where a client runs: its server's address and token, its home and working folder, and what was seen."""

    url: str
    token: str
    stub: StubEngine
    tap: Tap
    journal: Journal
    config: Config
    person: Path
    recorded_from: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def connect(self, client: str, *args: str) -> None:
        """Run `turnwise connect` as a person would."""
        base = ["connect", client, "--home", str(self.config.home), "--url", self.url, "--token", self.token, "--yes"]
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            said = CliRunner().invoke(app, [*base, *args])
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert said.exit_code == 0, said.output + str(said.exception)

    def run(
        self, *command: str, limit_s: float = 400, typed: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """A client's command in the working folder; its output is in the failure of an assertion."""
        environment = self.environment | more
        return subprocess.run(
            command,
            cwd=self.person / "work",
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            input=typed,
        )

    def run_script(self, package: str, script: Path, *args: str) -> subprocess.CompletedProcess[str]:
        """A script of a program that is built on a library: beside npm's libraries, or by the library's own Python."""
        if script.suffix == ".py":
            return self.run(need(package), str(script), *args)
        work = self.person / "work"
        (work / "node_modules").symlink_to(need(package))
        return self.run("node", shutil.copy(script, work), *args)

    def sessions(self) -> list[dict[str, Any]]:
        """Sessions with their turns, oldest first; the publisher's (of `publish`) is not a client's."""
        found = [self.journal.sessions.show(row["id"]) for row in reversed(self.journal.sessions.last_seen())]
        return [s for s in found if s is not None and s["client"] != "publisher"]

    def main_sessions(self) -> list[list[dict[str, Any]]]:
        """The main turns of each session that has any."""
        turns = [[t for t in s["turns"] if t["kind"] == TurnKind.MAIN] for s in self.sessions()]
        return [t for t in turns if t]

    def side_turns(self) -> list[dict[str, Any]]:
        return [t for s in self.sessions() for t in s["turns"] if t["kind"] == TurnKind.SIDE]

    def story(self) -> str:
        """Sessions and turns in a few lines, for a failed assertion."""
        lines = []
        for s in self.sessions():
            lines.append(f"session {s['id'][:20]} source={s['source']} parent={s['parent_id']}")
            for t in s["turns"]:
                added = [(m["role"], str(m["content"])[-60:]) for m in t["added"]][-3:]
                then = [(m["role"], str(m["content"])[:60]) for m in t["next_state"] or []]
                lines.append(f"  {t['kind']} {t['state']} bridged={t['bridged']} added={added} next={then}")
        return "\n".join(lines)

    def record(self, client: str) -> None:
        """Write what was sent as a fixture, when asked to."""
        if RECORD:
            for seen in self.tap.seen:
                turn = self.journal.turns.get(seen["turn"]) if seen.get("turn") else None
                seen["prompt_tokens"] = len(turn.prompt_ids) if turn else None
            hidden = {self.token: "TOKEN", str(self.person): "/home/person", self.tap.url: "http://gateway"}
            hidden |= {self.url: "http://gateway", str(cache_dir()): "/cache", platform.release(): "6.1.0"}
            hidden[re.sub(r"[^A-Za-z0-9]", "-", str(self.person))] = "-home-person"  # as a folder's name
            hidden[f"host={platform.node()}"] = "host=machine"
            write_recording(Path(RECORD) / f"{client}.json", client, self.tap.seen, hidden)


@contextmanager
def opened(config: Config, stub: StubEngine, tmp_path: Path) -> Iterator[Bench]:
    person = tmp_path / "person"
    (person / "work").mkdir(parents=True)
    with nullcontext(config.engine.url) if config.engine.url else running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        tap = Tap(thread.url)
        with running(tap.app()) as tap_url:
            journal = Journal.open(config)
            token = (config.home / "token").read_text().strip()
            environment = {
                "HOME": str(person),
                "PATH": node_path({"PATH": os.environ.get("PATH", "")}),
                "LANG": "C.UTF-8",
                "NO_PROXY": "127.0.0.1",
                "CI": "1",
            }
            yield Bench(tap_url, token, stub, tap, journal, config, person, environment=environment)
            journal.close()
        thread.stop()


@pytest.fixture
def bench(config: Config, tokenizer: Tokenizer, model_dir: Path, tmp_path: Path) -> Iterator[Bench]:
    """The gateway with a scripted engine whose context is large enough for any client's prompt."""
    with opened(config, StubEngine(tokenizer, Script(None), max_model_len=200_000), tmp_path) as found:
        yield found


@pytest.fixture
def holding_bench(home: Path, tokenizer: Tokenizer, model_dir: Path, tmp_path: Path) -> Iterator[Bench]:
    """The same before an engine that can hold a model to a form or to a call, as vLLM can."""
    stub = StubEngine(tokenizer, Script(None), max_model_len=200_000)
    with running(stub.app()) as url:
        engine = {"engine.kind": "vllm", "engine.url": url}
        config = load_config(overrides={"home": home, "server.port": 0, "model.path": str(model_dir), **engine})
        with opened(config, stub, tmp_path) as found:
            yield found


@pytest.fixture
def reasoning_bench(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The same with a model whose answers have their reasoning apart."""
    model = make_qwen3(tmp_path_factory.mktemp("qwen3"))
    config = load_config(overrides={"home": tmp_path / "home", "server.port": 0, "model.path": str(model)})
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    assert end is not None
    with opened(config, StubEngine(tokenizer, Script(None), max_model_len=200_000, end_token=end), tmp_path) as found:
        yield found


def shown(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.args}\nexit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
