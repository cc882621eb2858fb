"""``python -m turnwise.local_engine``: loads a model and serves it until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

import torch
import uvicorn

from turnwise import machine
from turnwise.config import LOOPBACK
from turnwise.errors import ModelError, TurnwiseError
from turnwise.local_engine.access import key_in
from turnwise.local_engine.model.kv import rounded
from turnwise.local_engine.model.load import load
from turnwise.local_engine.registry import WeightsRegistry
from turnwise.local_engine.scheduler import Scheduler
from turnwise.local_engine.server import EngineApp, make_app
from turnwise.loops.process import die_with_parent
from turnwise.models.number_format import processor_format

KV_CACHE_MB = 192
"""Memory for keys and values in bfloat16, where nobody says how much; in float32 as many tokens take twice that."""


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        key = key_in(os.environ, args.api_key_env) if args.api_key_env else None
        listener = _inherited(args.fd) if args.fd is not None else _listen(args.host, args.port)
        _refuse_open(listener, key)
        engine = build(args)
    except TurnwiseError as e:
        print(f"turnwise engine: {e}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        make_app(engine, key),
        log_level="warning",
        # A little longer than the grace, so that aborted answers still get their last event out.
        timeout_graceful_shutdown=int(args.grace) + 2,
    )
    _EngineProcess(config, engine.scheduler, args.grace).run(sockets=[listener])
    return 0


def build(args: argparse.Namespace) -> EngineApp:
    """Load the model and start the compute thread. Raises ModelError."""
    threads = args.threads or min(torch.get_num_threads(), machine.cores())
    torch.set_num_threads(threads)
    dtype = processor_format(args.dtype)
    model = load(args.model, dtype, args.max_model_len)
    runner, kv_cache_mb = model.runner, args.kv_cache_mb
    if kv_cache_mb is None:
        kv_cache_mb = KV_CACHE_MB * dtype.itemsize // torch.bfloat16.itemsize
    max_model_len = min(args.max_model_len, runner.max_positions)
    need = rounded(max_model_len + 1) * runner.kv_shape.bytes_per_token
    if need > kv_cache_mb * 2**20:
        raise ModelError(
            f"--kv-cache-mb {kv_cache_mb} does not hold one request of {max_model_len} tokens; "
            f"give at least {-(-need // 2**20)}, or a smaller --max-model-len"
        )
    scheduler = Scheduler(
        runner,
        eos_ids=model.eos_ids,
        max_num_seqs=args.max_num_seqs,
        max_queue=args.max_queue,
        max_model_len=max_model_len,
        kv_bytes=kv_cache_mb * 2**20,
        threads=threads,
    )
    registry = WeightsRegistry(runner, scheduler.forget, adapters_dir=args.adapters_dir)
    scheduler.start()
    return EngineApp(
        scheduler=scheduler,
        registry=registry,
        decoder=model,
        model_path=str(model.folder),
        max_model_len=max_model_len,
        vocab_size=runner.vocab_size,
        layers=runner.kv_shape.layers,
        started=int(time.time()),
        eyes=model.eyes,
    )


class _EngineProcess(uvicorn.Server):
    """uvicorn, saying when it is ready, and giving answers in flight their time at the end."""

    def __init__(self, config: uvicorn.Config, scheduler: Scheduler, grace_s: float) -> None:
        super().__init__(config)
        self._scheduler = scheduler
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            print(f"turnwise engine ready on {_shown(listener)}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn's own handler would raise the signal again at the end, and a clean stop would look like a crash.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._scheduler.stop(0 if self.force_exit else self._grace_s)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as e:
        raise TurnwiseError(f"cannot listen on {host}:{port}: {e.strerror}; choose another --port") from e
    return listener


def _inherited(descriptor: int) -> socket.socket:
    """A listening socket that whoever started us has made. It goes on listening when we end."""
    try:
        return socket.socket(fileno=descriptor)
    except OSError as e:
        raise TurnwiseError(f"--fd {descriptor} is no socket: {e.strerror}") from e


def _refuse_open(listener: socket.socket, key: str | None) -> None:
    if key is None and listener.family != socket.AF_UNIX and listener.getsockname()[0] not in LOOPBACK:
        raise TurnwiseError(
            f"anyone could use the engine on {_shown(listener)}: give it a key with --api-key-env NAME, "
            "or listen on 127.0.0.1"
        )


def _shown(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    return f"http://[{name[0]}]:{name[1]}" if ":" in name[0] else f"http://{name[0]}:{name[1]}"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m turnwise.local_engine", description=__doc__)
    parser.add_argument("--model", required=True, help="folder, hub id or name of the embedded model")
    parser.add_argument("--host", default="127.0.0.1")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--port", type=int, help="0 takes a free one")
    place.add_argument("--fd", type=int, help="a listening socket that is inherited, in place of an address")
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="environment variable with the key that requests must carry; needed to listen beyond loopback",
    )
    parser.add_argument("--adapters-dir", type=Path, help="adapters are loaded from below this folder alone")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--threads", type=int, default=0, help="most CPU threads of a step; 0: all we may use")
    parser.add_argument("--max-num-seqs", type=int, default=16, help="requests computed together")
    parser.add_argument("--max-queue", type=int, default=64, help="requests that may wait; more get a 429")
    parser.add_argument("--max-model-len", type=int, default=4096, help="longest prompt plus answer, in tokens")
    parser.add_argument(
        "--kv-cache-mb", type=int, help=f"memory for keys and values; unset: {KV_CACHE_MB}, in float32 twice that"
    )
    parser.add_argument("--grace", type=float, default=5.0, help="seconds that answers in flight get at the end")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
