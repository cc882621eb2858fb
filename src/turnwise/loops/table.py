"""The loops of a home as a table: their names, how each is started, how long it may be silent, how it is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.config import Config
from turnwise.engines.choose import LOCAL_ENGINE_KEY
from turnwise.loops import watching
from turnwise.loops.process import SUPERVISOR_PID
from turnwise.loops.states import RECENT_S, LoopState, fit_words
from turnwise.loops.watching import SilenceLimits

CHILD_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    # Engine and trainer share the cores. OpenMP threads that spin while they wait take them from each other: with two
    # busy processes on two cores, decoding was measured 10 times slower than with threads that sleep. Those that sleep
    # at once wake too late for the next product: an update took 1.2 times as long. So they stay awake for a moment.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "5000",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_ARENA_MAX": "2",
}


@dataclass(frozen=True, slots=True)
class HealthAddress:
    """Where a loop that serves HTTP is asked whether it lives. Any answer will do."""

    url: str
    path: str


@dataclass
class Loop:
    """One row: a child process, what it is allowed, and how it has fared. Times are of a clock that never jumps."""

    name: str
    command: list[str]
    pass_fds: tuple[int, ...] = ()
    limits: SilenceLimits = watching.JUDGE
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: HealthAddress | None = None
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    last_lines: list[str] = field(default_factory=list)
    state: str = "starting"
    why: str | None = None
    last_words: list[str] = field(default_factory=list)
    restarted: list[float] = field(default_factory=list)

    def ended(self, why: str) -> None:
        self.state, self.why, self.last_words = "down", why, list(self.last_lines)

    def begins(self, now: float) -> None:
        self.starts += 1
        self.state = "starting"
        if self.starts > 1:
            self.restarted = [*(t for t in self.restarted if now - t < RECENT_S), now]

    def told(self, now: float, secrets: list[str]) -> LoopState:
        """What others may know of it."""
        recent = sum(1 for t in self.restarted if now - t < RECENT_S)
        return LoopState(self.state, max(0, self.starts - 1), recent, self.why, fit_words(self.last_words, secrets))


@dataclass(frozen=True)
class Places:
    """What the loops of one start are given: the gateway's socket and address, and the local engine's."""

    gateway_fd: int
    gateway_url: str
    port: int
    engine_fd: int | None
    engine_urls: tuple[str, ...]
    engine_key: str | None


def loop_table(config: Config, model: Path | str, places: Places, common: list[str]) -> list[Loop]:
    """The loops that this configuration wants, in the order of their start. `common` are the arguments all but the
    engine get.
    """
    python = [sys.executable, "-P", "-m"]
    common = [*common, "--set", f"server.port={places.port}"]  # the real one, where 0 was asked for
    key = {LOCAL_ENGINE_KEY: places.engine_key} if places.engine_key is not None else {}
    rows = []
    if places.engine_fd is not None:
        rows.append(
            Loop(
                "engine",
                engine_command(config, model, places.engine_fd, LOCAL_ENGINE_KEY),
                pass_fds=(places.engine_fd,),
                limits=watching.ENGINE,
                environment=key,
                asked=HealthAddress(places.engine_urls[0], "/health"),
            )
        )
    engines = [arg for url in places.engine_urls for arg in ("--engine-url", url)]
    rows.append(
        Loop(
            "gateway",
            [*python, "turnwise.gateway", *engines, "--fd", str(places.gateway_fd), *common],
            pass_fds=(places.gateway_fd,),
            limits=watching.GATEWAY,
            environment=key,
            asked=HealthAddress(places.gateway_url, "/healthz"),
        )
    )
    if config.judge.enabled:
        asked = engines if places.engine_fd is not None else []
        command = [*python, "turnwise.judges", *asked, *common]
        rows.append(Loop("judge", command, limits=watching.JUDGE, environment=key))
    if (config.skills.enabled and config.skills.evolve) or config.compress.url is not None:
        asked = engines if config.skills.replay and places.engine_fd is not None else []
        command = [*python, "turnwise.evolving", *asked, *common]
        rows.append(Loop("evolver", command, limits=watching.EVOLVER, environment=key if asked else {}))
    if config.trains:
        rows.append(Loop("trainer", [*python, "turnwise.training", *common], limits=watching.TRAINER))
    return rows


def engine_command(
    config: Config, model: Path | str, fd: int, key_variable: str | None = None, adapters_dir: Path | None = None
) -> list[str]:
    """The command that starts the local engine as this configuration wants it, on a listening socket it inherits.

    Adapters come from the home's versions, or from `adapters_dir`.
    """
    engine = config.engine
    return [
        *(sys.executable, "-P", "-m", "turnwise.local_engine"),
        *("--model", str(model), "--fd", str(fd), "--adapters-dir", str(adapters_dir or config.versions_dir)),
        *(("--api-key-env", key_variable) if key_variable is not None else ()),
        *("--dtype", engine.dtype, "--threads", str(engine.threads)),
        *("--max-num-seqs", str(engine.max_num_seqs), "--max-queue", str(engine.max_queue)),
        *("--max-model-len", str(engine.max_model_len)),
        *(("--kv-cache-mb", str(engine.kv_cache_mb)) if engine.kv_cache_mb is not None else ()),
    ]


def child_environment() -> dict[str, str]:
    """The environment of a loop: ours, with what makes it share the machine and die with this process."""
    return os.environ | CHILD_ENVIRONMENT | {SUPERVISOR_PID: str(os.getpid())}
