"""A web page of another origin in a real browser: it may talk to the gateway where the configuration names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from tests.clients.checks import STEPS, assert_one_session_of_steps
from tests.clients.conftest import Bench, need, opened, shown
from tests.support.scripted_agent import Script, message
from tests.support.servers import running
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config

pytestmark = pytest.mark.clients

LIBRARIES = Path(__file__).parent / "libraries"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""What is looked for on the PATH; no browser is installed from here, since only a system's packages have one."""


def need_browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on the PATH ({', '.join(BROWSERS)}); Debian: apt install chromium-headless-shell")
    return found


@pytest.fixture
def page() -> Iterator[str]:
    """The origin of a page that knows how to ask a model."""
    served = Starlette(routes=[Route("/", lambda _: FileResponse(LIBRARIES / "page.html"))])
    with running(served) as url:
        yield url


def talk(bench: Bench, page: str, steps: int) -> dict[str, Any]:
    """What the page saw. It asks the gateway itself: nothing stands between the two that could answer for it."""
    said = json.dumps([message(step) for step in range(1, steps + 1)])
    script = str(LIBRARIES / "browser_page.py")
    done = bench.run(need("playwright"), script, need_browser(), page, bench.tap.url, bench.token, said)
    assert done.returncode == 0, shown(done)
    return json.loads(done.stdout)


def bench_for(origins: list[str], tokenizer: Tokenizer, tmp_path: Path) -> Any:
    config = load_config(overrides={"home": tmp_path / "home", "server.port": 0, "server.cors_origins": origins})
    reply = Script(lambda step: ("run", {"command": f"echo result-{step}"}))
    return opened(config, StubEngine(tokenizer, reply), tmp_path)


@pytest.mark.usefixtures("model_dir")
def test_a_page_that_may_ask_holds_a_session(page: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with bench_for([page], tokenizer, tmp_path) as bench:
        told = talk(bench, page, STEPS)
        assert told["console"] == []
        assert told["seen"]["answer"] == {"role": "assistant", "content": f"Step {STEPS} is done."}
        assert told["seen"]["status"] == 200
        assert told["seen"]["pieces"] > 1, "the answer was read as it came"
        turns = assert_one_session_of_steps(bench, "result-{}")
        assert told["seen"]["turn"] == turns[-1]["id"], "a page may read which turn it was"


@pytest.mark.usefixtures("model_dir")
@pytest.mark.parametrize("others", [[], ["https://chat.example.com"]])
def test_a_page_that_may_not_is_refused(page: str, tokenizer: Tokenizer, tmp_path: Path, others: list[str]) -> None:
    with bench_for(others, tokenizer, tmp_path) as bench:
        told = talk(bench, page, 1)
        assert told["seen"] == {"refused": "TypeError: Failed to fetch"}
        assert any("CORS policy" in line for line in told["console"]), told
        assert bench.sessions() == []
        assert bench.stub.sampled == []
