"""`python -m turnwise.training`: the training loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.loops.process import loop_main
from turnwise.training.worker import run


async def train(config: Config, _args: argparse.Namespace, stop: asyncio.Event) -> None:
    await asyncio.to_thread(run, config, stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the training loop of turnwise, alone")
    loop_main("trainer", parser, train, beats_itself=True)
