"""`python -m turnwise.evolving`: the evolver's loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.evolving.worker import run
from turnwise.loops.process import loop_main


async def evolve(config: Config, args: argparse.Namespace, stop: asyncio.Event) -> None:
    await run(config, stop, args.engine_url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the evolver loop of turnwise, alone")
    parser.add_argument(
        "--engine-url", help="the local engine, which is asked failing turns again before a skill of them is used"
    )
    loop_main("evolver", parser, evolve)
