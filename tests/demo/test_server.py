"""The demo's server is `turnwise serve` in a process of its own: started, stopped, and its faults passed on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from turnwise.demo.server import ServerError, running_server


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
