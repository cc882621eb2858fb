"""``python -m turnwise.training [--config FILE]``: the training loop alone, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from turnwise.config import load_config
from turnwise.errors import TurnwiseError
from turnwise.training.worker import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m turnwise.training", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file (default: config.toml in the home folder)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s trainer %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(load_config(arguments.config), stop)
    except TurnwiseError as e:
        print(f"trainer: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
