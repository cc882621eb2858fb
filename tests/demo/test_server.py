"""The demo's server is `turnwise serve` in a process of its own: started, stopped, and its faults passed on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.journal.test_queue import judged
from turnwise.config import load_config
from turnwise.demo.server import Heard, ServerError, heard_in, running_server
from turnwise.journal import Journal


def test_a_server_that_cannot_start_says_why(tmp_path: Path):
    with (
        pytest.raises(ServerError, match="no_such_key"),
        running_server(tmp_path / "home", {"train": {"no_such_key": 1}}),
    ):
        pytest.fail("it must not start")


def test_termination_unwinds_like_an_exception():
    code = (
        "import os, signal\n"
        "from turnwise.demo.server import termination_unwinds\n"
        "with termination_unwinds():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('went on')\n"
        "    finally:\n"
        "        print('stopped the server')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "stopped the server\n")


def test_what_became_of_words_is_read_from_the_home(tmp_path: Path):
    config = load_config(overrides={"home": tmp_path / "home"})
    with closing(Journal.open(config)) as journal:
        judged(journal, -1, "be brief", session_id="learning-0")
    heard, unread = asyncio.run(heard_in(config.home, ["learning-0", "learning-1"]))
    assert heard == [Heard("the reply", -1, "be brief", "ready")]
    assert unread == ["learning-1"]


@pytest.mark.slow
def test_a_server_serves_and_is_gone_afterwards(tmp_path: Path, model_dir: Path):
    home = tmp_path / "home"
    with running_server(home, {"train": {"enabled": False}, "model": {"path": str(model_dir)}}) as server:
        answer = httpx.get(
            f"{server.url}/v1/status", headers={"Authorization": f"Bearer {server.person_token}"}, timeout=10
        )
        assert answer.json()["versions_published"] == 0
        pid = json.loads((home / "ready.json").read_text())["pid"]
        os.kill(pid, 0)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", timeout=10)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
