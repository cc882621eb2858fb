"""`python -m turnwise.training`: the training loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.loops.process import loop_main
from turnwise.models.architectures import supported_model
from turnwise.training.backends.fsdp2 import follow, is_follower
from turnwise.training.worker import run


async def train(config: Config, _args: argparse.Namespace, stop: asyncio.Event) -> None:
    if config.train.backend == "fsdp2" and is_follower():
        await asyncio.to_thread(follow, config, supported_model(config.model.path))
        return
    await asyncio.to_thread(run, config, stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the training loop of turnwise, alone")
    loop_main("trainer", parser, train, beats_itself=True)
