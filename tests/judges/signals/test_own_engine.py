"""An engine of one's own: a small program stands in for it, which says how it was started and answers on its socket."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.signals.own_engine import own_engine

PROGRAM = """#!{python}
import json, os, socket, sys, time
with open({said!r}, "w") as f:
    json.dump([os.getpid(), sys.argv[1:]], f)
listener = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
if {fails}:
    waiting, _ = listener.accept()  # which hears of the end at once
    print("x" * 600, flush=True)
    sys.exit("no such weights")
asked = 0
while True:
    connection, _ = listener.accept()
    asked += 1
    while True:
        if not (head := connection.recv(9999)):
            break
        known = head.startswith(b"GET /health ") and asked > 2
        status = b"200 OK" if known else b"503 Starting"
        connection.sendall(b"HTTP/1.1 " + status + b"\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
        break
    connection.close()
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts the program in the engine's place; gives the file in which it says how it was started."""

    def put(fails: bool = False) -> Path:
        said, program = tmp_path / "said", tmp_path / "engine"
        program.write_text(PROGRAM.format(python=sys.executable, said=str(said), fails=fails), encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return said

    return put


def settings(home: Path) -> Config:
    return Config.model_validate(
        {"home": home, "model": {"path": "someone/model"}, "engine": {"dtype": "float32", "threads": 3}}
    )


@pytest.mark.parametrize("adapters", [False, True])
def test_it_serves_the_model_on_a_socket_of_its_own_until_the_block_ends(
    engine: Callable[..., Path], tmp_path: Path, adapters: bool
) -> None:
    said = engine()
    with own_engine(settings(tmp_path), tmp_path / "adapters" if adapters else None) as url:
        path = url.removeprefix("unix:")
        assert path != url and Path(path).exists()
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://engine.socket") as client:
            assert client.get("/health").status_code == 200
        pid, arguments = json.loads(said.read_text())
        assert psutil.pid_exists(pid)
        ends = time.monotonic()
    assert time.monotonic() - ends < 15, "it is asked to end, and not killed after a while"
    assert not psutil.pid_exists(pid)
    assert not Path(path).exists()
    fd = arguments.pop(arguments.index("--fd") + 1)
    assert fd.isdigit()
    assert arguments == [
        *("-P", "-m", "turnwise.local_engine", "--model", "someone/model", "--fd"),
        *("--dtype", "float32", "--threads", "3"),
        *(("--adapters-dir", str(tmp_path / "adapters")) if adapters else ()),
    ]


def test_it_ends_also_where_what_is_done_with_it_fails(engine: Callable[..., Path], tmp_path: Path) -> None:
    said = engine()
    with pytest.raises(ZeroDivisionError), own_engine(settings(tmp_path)):
        _ = 1 // 0
    assert not psutil.pid_exists(json.loads(said.read_text())[0])


def test_one_that_does_not_start_says_its_last_words_at_once(engine: Callable[..., Path], tmp_path: Path) -> None:
    engine(fails=True)
    began = time.monotonic()
    with (
        pytest.raises(TurnwiseError, match=r"the engine did not start: x+\nno such weights") as caught,
        own_engine(settings(tmp_path)),
    ):
        pass
    assert len(str(caught.value)) < 540
    assert time.monotonic() - began < 60


def test_one_that_never_answers_is_given_up(
    engine: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = engine()
    monkeypatch.setattr("turnwise.judges.signals.own_engine.START_S", 0.1)
    with pytest.raises(TurnwiseError, match="did not start"), own_engine(settings(tmp_path)):
        pass
    assert not said.exists() or not psutil.pid_exists(json.loads(said.read_text() or "[0]")[0])
