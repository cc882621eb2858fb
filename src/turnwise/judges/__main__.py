"""`python -m turnwise.judges`: the judge loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.judges.worker import run
from turnwise.loops.process import loop_main


async def judge(config: Config, _args: argparse.Namespace, stop: asyncio.Event) -> None:
    await run(config, stop)


if __name__ == "__main__":
    loop_main("judge", argparse.ArgumentParser(description="the judge loop of turnwise, alone"), judge)
