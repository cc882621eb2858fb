"""Fixtures: the real model folder, a fresh home, and a real gateway over a stub engine."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from tests.support.servers import running, wait_until
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.errors import ModelError
from turnwise.gateway.server import serve
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.net import bind

# Every HTTP client reads the machine's certificates, a thirtieth of a second each time: once is enough for thousands.
ssl.create_default_context = functools.cache(ssl.create_default_context)

# A command that a test plays in its own process would make that process, and all it starts later, nice for good.
os.nice = lambda _by: 0  # type: ignore[assignment]


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """SmolLM2-135M-Instruct, as `turnwise pull` leaves it."""
    try:
        return Path(resolve_model("smollm2-135m-instruct"))
    except ModelError as e:
        pytest.fail(f"the model is missing, `make test` fetches it: {e}")


@pytest.fixture(scope="session")
def tools_model_dir() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct; nothing that must pass needs it, so that `make test` fetches only the small one."""
    try:
        return Path(resolve_model("qwen2.5-coder-0.5b-instruct"))
    except ModelError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def config(home: Path) -> Config:
    return load_config(overrides={"home": home, "server.port": 0})


@pytest.fixture
def journal(config: Config) -> Iterator[Journal]:
    opened = Journal.open(config)
    yield opened
    opened.close()


WIDE = frozenset((Path(__file__).parent / "wide.txt").read_text(encoding="utf-8").split())
"""Files that take seconds each, with many examples, processes or waits: `make check` leaves them out, and attacks."""
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--narrow", action="store_true", help="leave out the files of tests/wide.txt, attacks, PostgreSQL")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--narrow"):
        return None
    name = collection_path.relative_to(TESTS).with_suffix("").as_posix() if TESTS in collection_path.parents else ""
    return True if name in WIDE or name == "attacks" else None


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    if config.getoption("--narrow"):
        items[:] = [item for item in items if not _is_on_postgres(item)]


def _is_on_postgres(item: pytest.Item) -> bool:
    given: Any = getattr(item, "callspec", None)
    return given is not None and given.params.get("place") == "postgres"


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Half of a character in what a test logged (hostile text is what many of them are about) ends pytest-xdist."""
    return _whole((yield))


def _whole(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(data, dict):
        return {_whole(key): _whole(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(_whole(each) for each in data)
    return data


def scripted(prompt: str) -> str:
    """The stub's answer: what the last user message asks it to say, else a number that grows with the conversation."""
    last = prompt.rsplit("<|im_start|>user\n", 1)[-1].split("<|im_end|>")[0]
    if last.startswith("say: "):
        return last[5:]
    return f"answer {prompt.count('<|im_start|>')}"


@dataclass
class Running:
    """A gateway that serves: its address, its token, its engine, and a second view of its journal."""

    url: str
    token: str
    stub: StubEngine
    journal: Journal
    config: Config

    def client(self, **headers: str) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.token, default_headers=headers, max_retries=0, timeout=30)

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def person(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.config.home / 'token.person').read_text().strip()}"}

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.config.home / 'token.admin').read_text().strip()}"}

    def turn(self, response_or_id: Any) -> Any:
        """The recorded turn of an OpenAI response."""
        turn_id = getattr(response_or_id, "id", response_or_id).removeprefix("chatcmpl-")
        return self.journal.turns.get(turn_id)


class GatewayThread:
    """The real gateway loop in a thread with an event loop of its own."""

    def __init__(self, config: Config, engine_url: str) -> None:
        self.sock: socket.socket = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(config, engine_url), daemon=True)
        self.error: BaseException | None = None

    def _run(self, config: Config, engine_url: str) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(serve(config, engine_url, self.sock, self._stop))
        except BaseException as e:
            self.error = e

    def start(self, config: Config) -> None:
        self._thread.start()
        last = config.home / "token.admin"
        wait_until(lambda: self.error or (last.exists() and last.stat().st_size))  # there, and written
        assert self.error is None, self.error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=15)
        assert not self._thread.is_alive(), "the gateway did not stop"


@pytest.fixture
def gateway(config: Config, tokenizer: Tokenizer, model_dir: Path) -> Iterator[Running]:
    """The real gateway over real HTTP and a real SQLite file.

    Only the engine is a stand-in, so that answers are known: its answers are scripted by the prompt. Tests of the real
    engine and of the whole program stand in tests/engines and tests/e2e.
    """
    stub = StubEngine(tokenizer, scripted)
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        journal = Journal.open(config)
        token = (config.home / "token").read_text().strip()
        yield Running(thread.url, token, stub, journal, config)
        journal.close()
        thread.stop()
