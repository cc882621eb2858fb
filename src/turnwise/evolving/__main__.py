"""`python -m turnwise.evolving`: the evolver's loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.evolving.worker import run
from turnwise.loops.process import loop_main


async def evolve(config: Config, args: argparse.Namespace, stop: asyncio.Event) -> None:
    await run(config, stop)


if __name__ == "__main__":
    loop_main("evolver", argparse.ArgumentParser(description="the evolver loop of turnwise, alone"), evolve)
