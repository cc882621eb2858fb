"""`turnwise bench serve`: start-up, memory, the engine's tokens/s beside `generate`, the gateway's added time.

Everything is measured in one run on one machine. The gateway's own cost is taken over a stub engine that answers at
once, so that no model's time is in it: once through the gateway with token-exact capture on, once without.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import uvicorn

from turnwise.bench import engine_speed
from turnwise.bench.report import BenchReport, Figure
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.engines.chatml import ChatMLRenderer
from turnwise.engines.rendering import load_renderer
from turnwise.errors import TurnwiseError
from turnwise.gateway.server import bind
from turnwise.models import resolve_model
from turnwise.supervisor import CHILD_ENVIRONMENT, engine_command

START_LIMIT_S = 120.0
STUB_ANSWER = "one two three four five six seven eight"


def bench_serving(config: Config, repeats: int) -> BenchReport:
    """All serving figures. Raises TurnwiseError when a process does not start."""
    model = Path(resolve_model(config.model.path))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        peer = _peer(model, Path(scratch) / "adapter", repeats)
        figures += _engine_figures(config, model, Path(scratch) / "adapter", peer, repeats)
        figures += _gateway_figures(config, model, Path(scratch) / "home", repeats)
        figures += _serve_figures(config, Path(scratch) / "served")
    return BenchReport(
        command="turnwise bench serve",
        figures=figures,
        notes=[
            f"{engine_speed.__name__.rsplit('.', 1)[-1]}: random prompts of 120 tokens, 96 new tokens, "
            f"{config.engine.dtype}; best of {repeats}. The peer is `transformers.generate` in bfloat16, in a process "
            "of its own, just before.",
            f"Gateway: medians of {100 * repeats} streamed requests over a stub engine that answers "
            f"{len(STUB_ANSWER.split()) + 1} tokens at once; 'added' is the time through the gateway less the time "
            "straight to the stub.",
        ],
    )


def _peer(model: Path, adapter: Path, repeats: int) -> dict[int, float]:
    done = subprocess.run(
        [sys.executable, "-m", "turnwise.bench.peer", str(model), "--adapter", str(adapter), "--repeats", str(repeats)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise TurnwiseError(f"the peer did not run:\n{done.stderr[-1500:]}")
    return {int(n): speed for n, speed in json.loads(done.stdout.splitlines()[-1]).items()}


def _engine_figures(config: Config, model: Path, adapter: Path, peer: dict[int, float], repeats: int) -> list[Figure]:
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    started = time.perf_counter()
    with _process(engine_command(config, model, port), f"http://127.0.0.1:{port}/health") as process:
        ready = time.perf_counter() - started
        url = f"http://127.0.0.1:{port}"
        httpx.post(
            f"{url}/v1/load_lora_adapter", json={"lora_name": "v1", "lora_path": str(adapter)}, timeout=60
        ).raise_for_status()
        figures = [Figure("engine start-up", f"{ready:.1f} s")]
        base = {}
        for name, label in (("base", "base"), ("v1", "with an adapter")):
            for n in (1, 8):
                runs = [asyncio.run(engine_speed.measure(url, n, model=name, seed=i)) for i in range(repeats + 1)]
                best = max(runs[1:], key=lambda run: run.tokens_per_second)
                speed = best.tokens_per_second
                beside = f"generate {peer[n]:.1f}" if name == "base" else f"base {base[n]:.1f}"
                ratio = speed / (peer[n] if name == "base" else base[n])
                base.setdefault(n, speed)
                figures.append(Figure(f"engine, {label}, {n} at once", f"{speed:.1f} tokens/s", beside, f"{ratio:.2f}"))
        figures.append(Figure("engine memory", f"{psutil.Process(process.pid).memory_info().rss / 1e9:.2f} GB"))
        return figures


def _gateway_figures(config: Config, model: Path, home: Path, repeats: int) -> list[Figure]:
    renderer = load_renderer(model).renderer
    if not isinstance(renderer, ChatMLRenderer):
        raise TurnwiseError("the gateway bench needs a ChatML model, such as the embedded one")
    stub = StubEngine(renderer.tokenizer, lambda _prompt: STUB_ANSWER)
    figures: list[Figure] = []
    with _serving_app(stub) as stub_url:
        sock = bind("127.0.0.1", 0)
        port = sock.getsockname()[1]
        sock.close()
        sets = ["--set", f"server.port={port}", "--set", f"model.path={model}"]
        command = [sys.executable, "-m", "turnwise.gateway", "--engine-url", stub_url, "--home", str(home), *sets]
        with _process(command, f"http://127.0.0.1:{port}/readyz") as process:
            token = load_config(overrides={"home": home}).token_path.read_text(encoding="ascii").strip()
            direct = (f"{stub_url}/v1/completions", _direct_body(renderer), {})
            through = (
                f"http://127.0.0.1:{port}/v1/chat/completions",
                {"model": "turnwise", "stream": True, "messages": [{"role": "user", "content": "Count to eight."}]},
                {"Authorization": f"Bearer {token}"},
            )
            asyncio.run(_timed(*through, clients=1, count=20))
            for clients in (1, 8):
                count = 100 * repeats
                cpu = psutil.Process(process.pid).cpu_times()
                one = asyncio.run(_timed(*direct, clients=clients, count=count))
                two = asyncio.run(_timed(*through, clients=clients, count=count))
                after = psutil.Process(process.pid).cpu_times()
                spent = (after.user + after.system - cpu.user - cpu.system) / count
                for what, i in (("first token", 0), ("whole answer", 1)):
                    a, b = statistics.median(t[i] for t in one), statistics.median(t[i] for t in two)
                    figures.append(
                        Figure(
                            f"gateway, {clients} client{'s' * (clients > 1)}: added to the {what}",
                            f"{(b - a) * 1000:.1f} ms",
                            f"stub alone {a * 1000:.1f} ms",
                            f"{b / a:.2f}",
                        )
                    )
                figures.append(
                    Figure(f"gateway, {clients} clients: processor time a request", f"{spent * 1000:.1f} ms")
                )
    return figures


def _serve_figures(config: Config, home: Path) -> list[Figure]:
    ready = home / "ready.json"
    home.mkdir()
    command = [
        sys.executable,
        "-m",
        "turnwise",
        "serve",
        "--home",
        str(home),
        "--port",
        "0",
        "--ready-file",
        str(ready),
    ]
    started = time.perf_counter()
    with _process([*command, "--set", f"model.path={config.model.path}"], None) as process:
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - started > START_LIMIT_S:
                raise TurnwiseError("`turnwise serve` did not start; try it by hand")
            time.sleep(0.05)
        seconds = time.perf_counter() - started
        told = json.loads(ready.read_text(encoding="utf-8"))
        body = {"model": "turnwise", "max_tokens": 32, "messages": [{"role": "user", "content": "Hello"}]}
        for _ in range(3):
            httpx.post(
                f"{told['url']}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {told['token']}"},
                timeout=120,
            ).raise_for_status()
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        memory = sum(p.memory_info().rss for p in tree) / 1e9
    return [
        Figure("`turnwise serve` start-up, until it can answer", f"{seconds:.1f} s"),
        Figure("memory of all its processes, before any training step", f"{memory:.2f} GB", "limit 4 GiB (4.29 GB)"),
    ]


def _direct_body(renderer: ChatMLRenderer) -> dict[str, object]:
    ids = renderer.render_ids([{"role": "user", "content": "Count to eight."}], add_generation_prompt=True)
    return {"model": "base", "prompt": ids, "max_tokens": 64, "stream": True}


async def _timed(
    url: str, body: dict[str, object], headers: dict[str, str], *, clients: int, count: int
) -> list[tuple[float, float]]:
    """(seconds to the first token, seconds in all) of `count` streamed requests from `clients` at once."""
    times: list[tuple[float, float]] = []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async with httpx.AsyncClient(timeout=30, limits=limits, headers=headers, trust_env=False) as client:

        async def one_client(share: int) -> None:
            for _ in range(share):
                started = time.perf_counter()
                first = 0.0
                async with client.stream("POST", url, json=body) as response:
                    response.raise_for_status()
                    async for line in response.aiter_lines():
                        if not first and ("one" in line):
                            first = time.perf_counter() - started
                times.append((first, time.perf_counter() - started))

        await asyncio.gather(*(one_client(count // clients) for _ in range(clients)))
    return times


@contextlib.contextmanager
def _process(command: list[str], health: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """A child process, once its health address answers; stopped by SIGTERM at the end."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | CHILD_ENVIRONMENT,
    )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while health is not None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(health, timeout=2, trust_env=False).status_code == 200:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise TurnwiseError(f"did not start: {' '.join(command)}")
            time.sleep(0.05)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextlib.contextmanager
def _serving_app(stub: StubEngine) -> Iterator[str]:
    sock = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(stub.app(), log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        sock.close()
