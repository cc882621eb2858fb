"""`python -m turnwise.judges`: the judge loop, alone."""

import argparse
import asyncio

from turnwise.config import Config
from turnwise.judges.worker import run
from turnwise.loops.process import loop_main


async def judge(config: Config, args: argparse.Namespace, stop: asyncio.Event) -> None:
    await run(config, stop, args.engine_url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the judge loop of turnwise, alone")
    parser.add_argument(
        "--engine-url", help="the local engine, which gives hidden states; without it words alone judge"
    )
    loop_main("judge", parser, judge)
