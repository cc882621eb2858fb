"""`turnwise serve` as a person meets it: starts, answers, learns, stops; says plainly what keeps it from starting."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.models import make_tiny_model
from tests.support.processes import serving
from tests.support.servers import wait_until

pytestmark = pytest.mark.slow
FAST = {"engine__threads": 1, "train__threads": 1, "train__lora_rank": 2}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), model_dir)


def run(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "turnwise", *args, "--home", str(home)], capture_output=True, text=True, timeout=120
    )


def test_the_whole_loop_learns_from_a_conversation(tmp_path: Path, tiny: Path) -> None:
    settings = FAST | {"train__min_batch": 2, "gate__enabled": False}
    with serving(tmp_path / "home", tiny, **settings) as server:
        client = server.client()
        for i in range(3):
            messages = [{"role": "user", "content": f"question {i}"}]
            answer = client.chat.completions.create(model="turnwise", messages=messages, max_tokens=8)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
            messages.append({"role": "user", "content": "That's wrong. Please answer in one short sentence."})
            client.chat.completions.create(model="turnwise", messages=messages, max_tokens=8)
        wait_until(lambda: server.status()["version"]["number"] >= 1, 120)
        raw = client.chat.completions.with_raw_response.create(
            model="turnwise", messages=[{"role": "user", "content": "next"}], max_tokens=4
        )
        assert int(raw.headers["x-turnwise-version"]) >= 1
        home = server.config.home
        status = run("status", home=home)
        assert "trained" in status.stdout, status.stdout + status.stderr
        assert "serving" in run("versions", "list", home=home).stdout
        assert "question 1" in run("sessions", "list", home=home).stdout, "what it is about"
        shown = subprocess.run(
            [sys.executable, "-m", "turnwise", "versions", "show", "1", "--home", str(home)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert '"turn_ids"' in shown.stdout
        assert server.stop() < 10


def test_a_stop_lets_answers_finish_and_leaves_no_process(tmp_path: Path, tiny: Path) -> None:
    with serving(tmp_path / "home", tiny, **FAST) as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        assert len(children) >= 4
        text: list[str] = []

        def ask() -> None:
            stream = server.client().chat.completions.create(
                model="turnwise", messages=[{"role": "user", "content": "go"}], max_tokens=200, stream=True, seed=1
            )
            for chunk in stream:
                text.append(chunk.choices[0].finish_reason or "")

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: len(text) > 3)
        assert server.stop() < 10
        thread.join(timeout=10)
        assert text[-1] in ("stop", "length"), "the answer in flight finished"
        assert psutil.wait_procs(children, timeout=5)[1] == []
        server_lock = server.config.home / "serve.lock"
        assert server_lock.exists()


def test_killing_the_supervisor_ends_its_loops(tmp_path: Path, tiny: Path) -> None:
    with serving(tmp_path / "home", tiny, **FAST) as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(timeout=5)
        assert psutil.wait_procs(children, timeout=15)[1] == []


def test_a_second_server_on_the_same_home_is_refused(tmp_path: Path, tiny: Path) -> None:
    with serving(tmp_path / "home", tiny, **FAST) as server:
        second = run("serve", "--port", "0", "--set", f"model.path={tiny}", home=server.config.home)
        assert second.returncode == 1
        assert "already serves" in second.stderr
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_port_in_use(tmp_path: Path, tiny: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        refused = run("serve", "--port", port, "--set", f"model.path={tiny}", home=tmp_path / "home")
    assert refused.returncode == 1
    assert port in refused.stderr
    assert "--port" in refused.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "train.lr=-1"], "train.lr"),
        (["--set", "train.made_up=1"], "no such key"),
        (["--host", "0.0.0.0", "--set", "server.auth=false"], "loopback"),
        (["--set", "model.path=/nowhere/at/all"], "/nowhere/at/all"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, args: list[str], words: str) -> None:
    refused = run("serve", "--port", "0", *args, home=tmp_path / "home")
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_model_of_an_architecture_that_is_not_supported_is_refused_by_its_name(tmp_path: Path, tiny: Path) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(tiny, folder)
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    refused = run("serve", "--port", "0", "--set", f"model.path={folder}", home=tmp_path / "home")
    assert refused.returncode == 1
    [sentence] = refused.stderr.splitlines()  # before any loop was started
    assert sentence.startswith(f"error: the model in {folder} is not supported: BertModel")
    assert "supported are llama, mistral, qwen2, qwen3" in sentence


def test_a_corrupt_config_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[server\nport = 1")
    refused = run("serve", home=tmp_path)
    assert refused.returncode == 1
    assert "not valid TOML" in refused.stderr
    doctor = run("doctor", home=tmp_path)
    assert doctor.returncode == 1


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("serve", "--port", "0", home=tmp_path / "file" / "home")
    assert refused.returncode == 1
    assert "cannot be used" in refused.stderr
