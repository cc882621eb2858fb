"""``python -m turnwise.engines.local``: loads a model and serves it until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
import time
from types import FrameType

import torch
import uvicorn

from turnwise.engines.local.kv import rounded
from turnwise.engines.local.load import load
from turnwise.engines.local.registry import WeightsRegistry
from turnwise.engines.local.scheduler import Scheduler
from turnwise.engines.local.server import EngineApp, make_app
from turnwise.errors import ModelError, TurnwiseError
from turnwise.loops import die_with_parent


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        listener = _listen(args.host, args.port)
        engine = build(args)
    except TurnwiseError as e:
        print(f"turnwise engine: {e}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        make_app(engine),
        log_level="warning",
        # A little longer than the grace, so that aborted answers still get their last event out.
        timeout_graceful_shutdown=int(args.grace) + 2,
    )
    _Server(config, engine.scheduler, args.grace).run(sockets=[listener])
    return 0


def build(args: argparse.Namespace) -> EngineApp:
    """Load the model and start the compute thread. Raises ModelError."""
    torch.set_num_threads(args.threads or torch.get_num_threads())
    model = load(args.model, getattr(torch, args.dtype), args.max_model_len)
    runner = model.runner
    max_model_len = min(args.max_model_len, runner.max_positions)
    need = rounded(max_model_len + 1) * runner.kv_shape.bytes_per_token
    if need > args.kv_cache_mb * 2**20:
        raise ModelError(
            f"--kv-cache-mb {args.kv_cache_mb} does not hold one request of {max_model_len} tokens; "
            f"give at least {-(-need // 2**20)}, or a smaller --max-model-len"
        )
    scheduler = Scheduler(
        runner,
        eos_ids=model.eos_ids,
        max_num_seqs=args.max_num_seqs,
        max_queue=args.max_queue,
        max_model_len=max_model_len,
        kv_bytes=args.kv_cache_mb * 2**20,
    )
    registry = WeightsRegistry(runner, scheduler.forget)
    scheduler.start()
    return EngineApp(
        scheduler=scheduler,
        registry=registry,
        decoder=model,
        model_path=str(model.folder),
        max_model_len=max_model_len,
        vocab_size=runner.vocab_size,
        started=int(time.time()),
    )


class _Server(uvicorn.Server):
    """uvicorn, saying when it is ready, and giving answers in flight their time at the end."""

    def __init__(self, config: uvicorn.Config, scheduler: Scheduler, grace_s: float) -> None:
        super().__init__(config)
        self._scheduler = scheduler
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            print(f"turnwise engine ready on http://{host}:{port}", flush=True)

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


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m turnwise.engines.local", description=__doc__)
    parser.add_argument("--model", required=True, help="folder, hub id or name of the embedded model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 takes all cores")
    parser.add_argument("--max-num-seqs", type=int, default=16, help="requests computed together")
    parser.add_argument("--max-queue", type=int, default=64, help="requests that may wait; more get a 429")
    parser.add_argument("--max-model-len", type=int, default=4096, help="longest prompt plus answer, in tokens")
    parser.add_argument("--kv-cache-mb", type=int, default=512, help="memory for keys and values")
    parser.add_argument("--grace", type=float, default=5.0, help="seconds that answers in flight get at the end")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
