"""`turnwise doctor` takes settings like every other command, and asks the server that runs how it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

from filelock import FileLock
from typer.testing import CliRunner

from tests.conftest import GatewayThread, Running
from tests.support.servers import wait_until
from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.doctor.checks import examine
from turnwise.loops.states import LOCK, LoopState, write_states


def said_of_the_server(home: Path) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in examine(None, home) if f.check == "server"]


def test_settings_are_taken(tmp_path: Path) -> None:
    def told(*sets: str) -> dict[str, tuple[str, str]]:
        given = [arg for pair in sets for arg in ("--set", pair)]
        done = CliRunner().invoke(app, ["doctor", "--json", "--home", str(tmp_path), *given])
        return {f["check"]: (f["level"], f["text"]) for f in json.loads(done.stdout)}

    assert "no-such-folder" in told("model.path=/no-such-folder")["model"][1]
    for wrong in ("nonsense", "server.nonsense=1"):
        level, text = told(wrong)["configuration"]
        assert (level, wrong.partition("=")[0] in text) == ("fault", True)


def test_no_server_is_no_finding(tmp_path: Path) -> None:
    assert said_of_the_server(tmp_path) == []


def test_the_server_says_how_it_is(gateway: Running) -> None:
    home = gateway.config.home
    wait_until(lambda: said_of_the_server(home) == [("ok", f"{gateway.url} is ready, version 0 serves")])
    with FileLock(home / LOCK):  # the test stands in for the supervisor
        write_states(home, os.getpid(), {"judge": LoopState("hung", restarts=2, recent=2, why="silent")})
        [(level, text)] = said_of_the_server(home)
    assert (level, text) == (
        "note",
        f"{gateway.url} is ready, version 0 serves, but these are in trouble: judge",
    )


def test_a_server_without_its_engine_says_so(config: Config) -> None:
    thread = GatewayThread(config, "http://127.0.0.1:9")  # where nothing listens
    thread.start(config)
    said = said_of_the_server(config.home)
    thread.stop()
    assert said == [("fault", f"{thread.url} is not ready: the engine does not answer yet")]
