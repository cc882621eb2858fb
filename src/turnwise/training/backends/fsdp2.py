"""The weights cut over several processes (FSDP2). The first one owns the journal and says what is done next.

Every call of the trainer is told to the other ranks, which do the same with it. So is each tick: what stops the first
rank stops all of them between the same two micro-batches. What the first rank waits for (a person, the journal) the
others wait for as long as it takes; a pass that one of them does not come to ends within `train.rank_timeout_s`.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from turnwise.config import Config
from turnwise.errors import ConfigError, ModelError, TurnwiseError
from turnwise.loops.process import SUPERVISOR_PID
from turnwise.training.backends.local import LocalBackend
from turnwise.training.step import BadBatch, Tick
from turnwise.training.terms import WholeSignals
from turnwise.training.weights.base import State
from turnwise.training.weights.ranks import ManyRanks
from turnwise.types import Batch, Sample

log = logging.getLogger(__name__)

FOREVER = timedelta(days=365)
"""How long a rank waits to be told something: the first one may stand still for as long as a person is there."""
START = timedelta(minutes=10)
"""How long ranks wait for each other at the start, while models are loaded."""
MEETING = "TURNWISE_RANKS_MEETING"
"""Environment variable with the file in which ranks that were started here find each other."""
LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
SIGNALS = "the signals that were made last"
END = "end"


class RankLost(TurnwiseError):
    """Another process of the trainer has ended, or hangs."""


class _Left(Exception):
    """The first rank left what is done here."""


class FsdpBackend(LocalBackend):
    """A `Backend` on the first rank of torch's process group."""

    def __init__(self, config: Config, model: Path | str, children: Sequence[subprocess.Popen[bytes]] = ()) -> None:
        self._many, self._children = join(config), children
        super().__init__(config.model_copy(update={"train": _of_this_rank(config)}), model, self._many)
        self._signals: Sequence[WholeSignals] = []

    @property
    def device(self) -> str:
        return f"{self.policy.device} in {self._many.size} processes"

    def _together(self, name: str, *args: Any, tick: Tick | None = None) -> Any:
        """Have all ranks do it. Raises RankLost where one of them does not come along."""
        told = [SIGNALS if arg is self._signals and arg else arg for arg in args]
        try:
            self._many.told((name, told, tick is not None))
            ours = () if tick is None else (self._telling(tick),)
            return getattr(LocalBackend, name)(self, *args, *ours)
        except RuntimeError as e:
            if isinstance(e, torch.OutOfMemoryError):
                raise ModelError(
                    f"the memory of {self.policy.device} does not hold a pass; lower train.microbatch_tokens"
                ) from e
            if isinstance(e, (dist.DistError, dist.DistBackendError)) or _of_the_line(e):
                raise RankLost(self._who_is_lost(e)) from e
            raise

    def _telling(self, tick: Tick) -> Tick:
        def told(phase: str, done: int, total: int) -> None:
            try:
                tick(phase, done, total)
            except BaseException:
                self._many.told(False)
                raise
            self._many.told(True)

        return told

    def _who_is_lost(self, error: Exception) -> str:
        ended = [f"rank {n} ended with {c.poll()}" for n, c in enumerate(self._children, 1) if c.poll() is not None]
        why = ", ".join(ended) or str(error).splitlines()[0]
        return (
            f"a process of the trainer was lost ({why}). Nothing of the batch is lost or done twice: it is taken up "
            "again when the trainer starts again"
        )

    def prepare(self, version: int, fresh: bool = False) -> dict[str, Any]:
        return self._together("prepare", version, fresh)

    def signals(self, batch: Batch, tick: Tick) -> Sequence[WholeSignals]:
        self._signals = self._together("signals", batch, tick=tick)
        return self._signals

    def step(self, batch: Batch, signals: Sequence[WholeSignals], chosen: Sequence[int], tick: Tick) -> Any:
        return self._together("step", batch, signals, chosen, tick=tick)

    def lessons(self, batch: Batch, tick: Tick) -> Any:
        return self._together("lessons", batch, tick=tick)

    def learn(self, lessons: Any, tick: Tick) -> float:
        return self._together("learn", lessons, tick=tick)

    def lesson_loss(self, lessons: Any, tick: Tick) -> float:
        return self._together("lesson_loss", lessons, tick=tick)

    def imitate(self, texts: Any, lr: float, tick: Tick) -> dict[str, float]:
        return self._together("imitate", texts, lr, tick=tick)

    def imitation_loss(self, texts: Any, tick: Tick) -> float:
        return self._together("imitation_loss", texts, tick=tick)

    def figures(self, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        return self._together("figures", probes, tick=tick)

    def examine(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        return self._together("examine", batch, probes, tick=tick)

    def wishes_kept(self, batch: Batch, tick: Tick) -> list[dict[str, Any]]:
        return self._together("wishes_kept", batch, tick=tick)

    def snapshot(self) -> tuple[State, State]:
        return self._together("snapshot")

    def restore(self, weights: State, moments: State) -> None:
        return self._together("restore", weights, moments)

    def _within_memory(self, work: Callable[[int], Any]) -> Any:
        """Passes are of one size on all ranks, so that none of them alone can make its own smaller."""
        return work(self._room)

    def close(self) -> None:
        """End the other ranks."""
        with suppress(RuntimeError):
            self._many.told((END, [], False))
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
        dist.destroy_process_group()
        if meeting := os.environ.get(MEETING):  # another one may be started in this process
            shutil.rmtree(Path(meeting).parent, ignore_errors=True)
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", MEETING):
                os.environ.pop(name, None)


class _Follower(FsdpBackend):
    """Any rank but the first: it does as it is told."""

    def follow(self) -> None:
        last: Sequence[WholeSignals] = []

        def tick(_phase: str, _done: int, _total: int) -> None:
            if not self._many.told(None):
                raise _Left

        while True:
            name, args, ticks = self._many.told(None)
            if name == END:
                return
            given = [last if isinstance(arg, str) and arg == SIGNALS else arg for arg in args]
            # What the data are to blame for is raised on all ranks alike; the first one sees to it.
            with suppress(_Left, BadBatch, TurnwiseError):
                found = getattr(LocalBackend, name)(self, *given, *((tick,) if ticks else ()))
                last = found if name == "signals" else last


def follow(config: Config, model: Path | str) -> None:
    """Be a rank until the first one ends it. Raises RankLost when that one was lost."""
    follower = _Follower(config, model)
    try:
        follower.follow()
    except RuntimeError as e:
        raise RankLost(f"the first process of the trainer was lost ({str(e).splitlines()[0]})") from e


def is_follower() -> bool:
    """Whether torchrun, or the first rank, started this process as another one than the first."""
    return int(os.environ.get("RANK", "0")) > 0


def join(config: Config) -> ManyRanks:
    """Become one of torch's process group. Raises ConfigError where there is none to join."""
    limit = timedelta(seconds=config.train.rank_timeout_s)
    if not dist.is_initialized():
        if "WORLD_SIZE" not in os.environ:
            raise ConfigError('train.backend = "fsdp2" needs several processes; start it with torchrun')
        if config.train.device.startswith("cuda") or (config.train.device == "auto" and torch.cuda.is_available()):
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            kind = "cpu:gloo,cuda:nccl"
        else:
            kind = "gloo"
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = _store(rank, size)
        store.set(f"here-{rank}", "")
        store.wait([f"here-{other}" for other in range(size)], START)
        dist.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=limit)
    return ManyRanks(dist.new_group(backend="gloo", timeout=limit if dist.get_rank() == 0 else FOREVER))


def _store(rank: int, size: int) -> Any:
    """Where the ranks find each other: a file of ours, or torchrun's server."""
    if file := os.environ.get(MEETING):
        return dist.FileStore(file, size)  # pyright: ignore[reportPrivateImportUsage]
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    first = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    server = dist.TCPStore(address, port, size, first, timeout=START)  # pyright: ignore[reportPrivateImportUsage]
    return dist.PrefixStore("turnwise", server)  # pyright: ignore[reportPrivateImportUsage]


def started(config: Config, model: Path | str) -> FsdpBackend:
    """The backend on this process as the first rank: of torchrun's processes, or of others that are started here."""
    if "WORLD_SIZE" in os.environ:
        return FsdpBackend(config, model)
    count = config.train.processes
    # A file, because torch's own server would listen on every address of the machine.
    meeting = Path(tempfile.mkdtemp(prefix="turnwise-ranks-")) / "meeting"
    shared = {MEETING: str(meeting), "WORLD_SIZE": str(count)}
    if LOOPBACK_INTERFACE in {name for _, name in socket.if_nameindex()}:
        shared["GLOO_SOCKET_IFNAME"] = LOOPBACK_INTERFACE
    children = []
    for rank in range(1, count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), SUPERVISOR_PID: str(os.getpid())}
        command = [sys.executable, "-P", "-m", "turnwise.training.backends.rank"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | shared | own)
        assert child.stdin is not None
        child.stdin.write(config.model_dump_json().encode())
        child.stdin.close()
        children.append(child)
    os.environ |= shared | {"RANK": "0", "LOCAL_RANK": "0"}
    return FsdpBackend(config, model, children)


def _of_this_rank(config: Config) -> Any:
    """The settings with the device of this rank."""
    if config.train.device in ("auto", "cuda") and torch.cuda.is_available():
        return config.train.model_copy(update={"device": f"cuda:{torch.cuda.current_device()}"})
    return config.train


def _of_the_line(error: RuntimeError) -> bool:
    """Whether gloo says that another process is gone. It says so in words alone."""
    said = str(error).lower()
    return any(word in said for word in ("connection", "timed out", "timeout", "peer", "socket", "broken pipe"))
