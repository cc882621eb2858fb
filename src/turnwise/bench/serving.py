"""`turnwise bench serve`, the engine: start-up, memory, and tokens/s beside `generate`, in one run on one machine.

The gateway's own cost is measured in `latency`, over an engine that answers at once.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil

from turnwise.bench import engine_speed
from turnwise.bench.processes import START_LIMIT_S, child
from turnwise.bench.report import BenchReport, Figure
from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.loops.table import engine_command
from turnwise.models import resolve_model
from turnwise.net import bind


def bench_engine(config: Config, repeats: int) -> BenchReport:
    """All figures of the engine. Raises TurnwiseError when a process does not start."""
    from turnwise.models.number_format import processor_format  # with torch

    model = Path(resolve_model(config.model.path))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        dtype = str(processor_format(config.engine.dtype)).removeprefix("torch.")
        peer = _peer(model, Path(scratch) / "adapter", repeats, dtype)
        figures += _engine_figures(config, model, Path(scratch) / "adapter", peer, repeats)
        figures += _serve_figures(config, Path(scratch) / "served")
    return BenchReport(
        command="turnwise bench serve --only engine",
        figures=figures,
        notes=[
            f"{engine_speed.__name__.rsplit('.', 1)[-1]}: random prompts of 120 tokens, 96 new tokens, "
            f"{dtype}; best of {repeats}. A long prompt is read behind a single answer. The peer is "
            f"`transformers.generate` in {dtype}, in a process of its own, just before.",
        ],
    )


def _peer(model: Path, adapter: Path, repeats: int, dtype: str) -> dict[str, float]:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "turnwise.bench.peer",
            str(model),
            "--adapter",
            str(adapter),
            "--repeats",
            str(repeats),
            "--dtype",
            dtype,
        ],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise TurnwiseError(f"the peer did not run:\n{done.stderr[-1500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _engine_figures(config: Config, model: Path, adapter: Path, peer: dict[str, float], repeats: int) -> list[Figure]:
    with ExitStack() as stack:
        sock = stack.enter_context(bind("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        command = engine_command(config, model, sock.fileno(), adapters_dir=adapter.parent)
        started = time.perf_counter()
        process = stack.enter_context(child(command, f"{url}/health", pass_fds=(sock.fileno(),)))
        ready = time.perf_counter() - started
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
                beside = f"generate {peer[str(n)]:.1f}" if name == "base" else f"base {base[n]:.1f}"
                ratio = speed / (peer[str(n)] if name == "base" else base[n])
                base.setdefault(n, speed)
                figures.append(Figure(f"engine, {label}, {n} at once", f"{speed:.1f} tokens/s", beside, f"{ratio:.2f}"))
        asyncio.run(engine_speed.measure(url, 1, seed=repeats))  # a prompt comes behind single answers
        runs = [
            asyncio.run(
                engine_speed.measure(url, 1, prompt_tokens=engine_speed.LONG_PROMPT, new_tokens=1, seed=1000 + i)
            )
            for i in range(repeats + 1)
        ]
        read, theirs = engine_speed.LONG_PROMPT / min(run.first_token for run in runs[1:]), peer["reading"]
        figures.append(
            Figure(
                f"engine, base, reading a prompt of {engine_speed.LONG_PROMPT:,} tokens",
                f"{read:.0f} tokens/s",
                f"generate {theirs:.0f}",
                f"{read / theirs:.2f}",
            )
        )
        figures.append(Figure("engine memory", f"{psutil.Process(process.pid).memory_info().rss / 1e9:.2f} GB"))
        return figures


def _serve_figures(config: Config, home: Path) -> list[Figure]:
    ready = home / "ready.json"
    home.mkdir()
    command = [
        sys.executable,
        "-P",
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
    with child([*command, "--set", f"model.path={config.model.path}"]) as process:
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
