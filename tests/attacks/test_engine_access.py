"""Other users of the machine at the local engine: the real engine on its real socket, and adapters that are planted."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.models import write_random_adapter
from tests.training.tiny import make_model
from turnwise.engines.base import SamplingParams
from turnwise.engines.choose import LOCAL_ENGINE_KEY
from turnwise.engines.private_socket import LONGEST, private_socket
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import AdapterError, ConfigError, EngineError
from turnwise.local_engine.access import key_in
from turnwise.local_engine.folders import adapter_folder, read_files

SMALL = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-mb", "16", "--threads", "1")


@dataclass(frozen=True)
class Guarded:
    """An engine as the supervisor starts it."""

    path: str
    key: str
    process: subprocess.Popen[bytes]
    versions: Path
    model: Path

    def ask(self, method: str, route: str, body: Any = None, **headers: str) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=self.path), base_url="http://engine", timeout=60) as client:
            return client.request(method, route, json=body, headers=headers)

    def load(self, path: Path | str, name: str = "v1", **headers: str) -> httpx.Response:
        headers = headers or {"Authorization": f"Bearer {self.key}"}
        return self.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)}, **headers)

    def loaded(self) -> list[str]:
        cards = self.ask("GET", "/v1/models", Authorization=f"Bearer {self.key}").json()["data"]
        return [card["id"] for card in cards]


@contextmanager
def guarded(folder: Path) -> Iterator[Guarded]:
    model, home, key = make_model(folder / "model"), folder / "home", secrets.token_urlsafe(32)
    (home / "versions").mkdir(parents=True)
    with private_socket(home) as sock:
        command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), "--fd", str(sock.fileno())]
        command += ["--api-key-env", LOCAL_ENGINE_KEY, "--adapters-dir", str(home / "versions"), *SMALL]
        process = subprocess.Popen(
            command, env=os.environ | {LOCAL_ENGINE_KEY: key}, pass_fds=(sock.fileno(),), stdout=subprocess.DEVNULL
        )
        try:
            yield Guarded(sock.getsockname(), key, process, home / "versions", model)
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as engine:
        write_random_adapter(engine.versions / "v1", engine.model, scale=0.5, seed=1)
        yield engine


ROUTES = [
    ("GET", "/v1/models", None),
    ("GET", "/load", None),
    ("GET", "/docs", None),
    ("GET", "/nothing/there", None),
    ("POST", "/v1/completions", {"model": "base", "prompt": [1], "max_tokens": 1}),
    ("POST", "/v1/unload_lora_adapter", {"lora_name": "v1"}),
]


@pytest.mark.parametrize(("method", "route", "body"), ROUTES)
def test_without_the_key_every_route_is_a_401(engine: Guarded, method: str, route: str, body: Any) -> None:
    wrong = ["", "Bearer", "Bearer wrong", f"Bearer {engine.key}x", f"Basic {engine.key}", f"bearer  {engine.key[:-1]}"]
    for header in wrong:
        answer = engine.ask(method, route, body, **({"Authorization": header} if header else {}))
        assert (answer.status_code, "Bearer KEY" in answer.text) == (401, True), header
        assert engine.key not in answer.text


def test_without_the_key_no_adapter_is_loaded(engine: Guarded) -> None:
    assert engine.load(engine.versions / "v1", **{"X-Nothing": "1"}).status_code == 401
    assert engine.loaded() == ["base"]


def test_without_the_key_there_is_a_bare_sign_of_life(engine: Guarded) -> None:
    answer = engine.ask("GET", "/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_the_socket_is_its_owners_alone(engine: Guarded) -> None:
    assert stat.S_IMODE(Path(engine.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(engine.path).parent.stat().st_mode) == 0o700


def test_the_key_is_in_no_command_line(engine: Guarded) -> None:
    engine.ask("GET", "/health")  # it runs
    assert engine.key not in " ".join(psutil.Process(engine.process.pid).cmdline())


async def test_the_gateways_client_uses_the_socket_and_the_key(engine: Guarded) -> None:
    client = VllmEngine(f"unix:{engine.path}", 60, engine.key)
    assert await client.healthy()
    assert await client.max_model_len() == 512
    params = SamplingParams(4, 1.0, 1.0, -1, None, (), ())
    tokens = [token async for chunk in client.generate("base", [1, 2], params) for token in chunk.token_ids]
    assert tokens
    await client.load_adapter("mine", engine.versions / "v1")
    await client.load_adapter("mine", engine.versions / "v1")  # there already: nothing to do
    await client.unload_adapter("mine")
    await client.close()
    stranger = VllmEngine(f"unix:{engine.path}", 60)
    with pytest.raises(EngineError, match="401"):
        await stranger.load_adapter("theirs", engine.versions / "v1")
    await stranger.close()


def test_adapters_come_from_the_versions_folder_alone(engine: Guarded, tmp_path: Path) -> None:
    theirs = write_random_adapter(tmp_path / "theirs", engine.model, scale=0.5, seed=2)
    (engine.versions / "linked").symlink_to(theirs)
    (engine.versions / "deep").mkdir()
    (engine.versions / "deep" / "linked").symlink_to(theirs.parent)
    half = Path(shutil.copytree(engine.versions / "v1", engine.versions / "half"))
    (half / "adapter_model.safetensors").unlink()
    (half / "adapter_model.safetensors").symlink_to(theirs / "adapter_model.safetensors")
    pipe = Path(shutil.copytree(engine.versions / "v1", engine.versions / "pipe"))
    (pipe / "adapter_config.json").unlink()
    os.mkfifo(pipe / "adapter_config.json")
    outside = [
        theirs,
        engine.versions / "linked",
        engine.versions / "deep" / "linked" / "theirs",
        f"{engine.versions}/v1/../../../{theirs.name}",
        f"{engine.versions}/../versions/v1",
        os.path.relpath(engine.versions / "v1"),
        "v1",
        engine.versions,
        "/",
        f"{engine.versions}-beside",
        half,
        pipe,
        f"{engine.versions}/v1\0x",
    ]
    (engine.versions.parent / "versions-beside").mkdir()
    for path in outside:
        answer = engine.load(path, "theirs")
        assert answer.status_code == 400, (path, answer.text)
        assert len(answer.json()["error"]["message"]) > 20, "a sentence"
    assert "theirs" not in engine.loaded()
    assert engine.load(engine.versions / "v1", "ours").status_code == 200
    assert engine.ask(
        "POST", "/v1/unload_lora_adapter", {"lora_name": "ours"}, Authorization=f"Bearer {engine.key}"
    ).is_success


def test_without_a_folder_for_them_no_adapter_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="--adapters-dir") as refused:
        adapter_folder(str(tmp_path), None)
    assert refused.value.status == 403


def test_a_versions_folder_that_is_a_link_itself_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "v1").mkdir(parents=True)
    (tmp_path / "versions").symlink_to(tmp_path / "disk")
    assert adapter_folder(str(tmp_path / "versions" / "v1"), tmp_path / "versions") == tmp_path / "disk" / "v1"


def test_a_device_is_no_adapter_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "adapter_config.json").mkdir()
    with pytest.raises(AdapterError, match="plain file"):
        read_files(tmp_path / "a", ("adapter_config.json",))


def engine_by_hand(model: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), *options, *SMALL]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)


def test_by_hand_it_listens_beyond_loopback_only_with_a_key(tmp_path: Path) -> None:
    everywhere = ("--host", "0.0.0.0", "--port", "0")
    refused = engine_by_hand(tmp_path, *everywhere)
    assert (refused.returncode, "--api-key-env" in refused.stderr) == (1, True)
    assert "Traceback" not in refused.stderr
    unset = engine_by_hand(tmp_path, *everywhere, "--api-key-env", "NO_SUCH_KEY")
    assert (unset.returncode, "NO_SUCH_KEY" in unset.stderr) == (1, True)


@pytest.mark.parametrize("key", ["", "short", "with a space in it, long", "umlaut-ä-and-long-enough"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="KEY_NAME"):
        key_in({"KEY_NAME": key}, "KEY_NAME")


def test_a_dead_supervisors_socket_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with private_socket(home) as first:
        path = Path(first.getsockname())
        left = path.with_name("left")
        path.rename(left)  # what a supervisor that was killed leaves behind
    left.rename(path)
    with private_socket(home) as second:
        assert Path(second.getsockname()) == path
    assert not path.exists()
    path.write_text("a file of somebody's")
    with pytest.raises(ConfigError, match="in the way"), private_socket(home):
        pass
    assert path.read_text() == "a file of somebody's"


def test_a_socket_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not a folder of yours"), private_socket(tmp_path / "home"):
        pass


def test_a_socket_folder_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o777)
    with private_socket(tmp_path):
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_home_with_a_long_path_gets_a_short_private_folder(tmp_path: Path) -> None:
    home = tmp_path / ("long-" * 20) / ("longer-" * 10)
    home.mkdir(parents=True)
    with private_socket(home) as sock:
        path = Path(sock.getsockname())
        assert len(os.fsencode(path)) <= LONGEST
        assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
        left = json.dumps(str(path.parent))
    assert not path.parent.exists()
    assert list((home / "run").iterdir()) == []
    # A supervisor that was killed leaves its folder; the next start clears it away.
    Path(json.loads(left)).mkdir(mode=0o700)
    (home / "run" / "engine.elsewhere").write_text(json.loads(left))
    with private_socket(home) as sock:
        assert not path.parent.exists() or Path(sock.getsockname()).parent == path.parent


async def test_requests_wait_in_the_sockets_queue_while_no_engine_runs(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with private_socket(tmp_path / "home") as sock:
        client = VllmEngine(f"unix:{sock.getsockname()}", stall_s=0.5)
        with pytest.raises(EngineError, match="starting again") as away:
            await client.max_model_len()
        assert away.value.status == 504
        params = SamplingParams(4, 1.0, 1.0, -1, None, (), ())
        with pytest.raises(EngineError, match="starting again"):
            async for _ in client.generate("base", [1], params):
                pass
        await client.close()


def test_nothing_chooses_a_port_and_binds_to_it_later() -> None:
    source = Path(__file__).parents[2] / "src" / "turnwise"
    found = [str(p.relative_to(source)) for p in source.rglob("*.py") if "free_port" in p.read_text(encoding="utf-8")]
    assert found == []
