"""Measures an engine from outside: streamed tokens per second at several numbers of concurrent requests.

Works against anything that speaks vLLM's completions API with token-id prompts; starts no server itself.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass
from itertools import pairwise

import httpx

LONG_PROMPT = 1200
"""Tokens of the prompt by which reading is measured."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement, in seconds. ``longest_gap``: the worst wait between two tokens of an answer; 0 without two."""

    concurrency: int
    tokens_per_second: float
    first_token: float
    longest_gap: float


async def measure(
    url: str,
    concurrency: int,
    *,
    model: str = "base",
    prompt_tokens: int = 120,
    new_tokens: int = 96,
    vocab_size: int = 32_000,
    seed: int = 0,
) -> Speed:
    """Run ``concurrency`` random prompts at once, each to exactly ``new_tokens``, and time them together."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(100, vocab_size) for _ in range(prompt_tokens)] for _ in range(concurrency)]
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        started = time.perf_counter()
        arrivals = await asyncio.gather(*(_stream(client, model, p, new_tokens) for p in prompts))
        seconds = time.perf_counter() - started
    return Speed(
        concurrency=concurrency,
        tokens_per_second=sum(map(len, arrivals)) / seconds,
        first_token=max(times[0] for times in arrivals) - started,
        longest_gap=max((b - a for times in arrivals for a, b in pairwise(times)), default=0.0),
    )


async def _stream(client: httpx.AsyncClient, model: str, prompt: list[int], new_tokens: int) -> list[float]:
    """The arrival time of every token of one answer."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": new_tokens,
        "temperature": 1.0,
        "ignore_eos": True,
        "stream": True,
        "logprobs": 0,
        "return_token_ids": True,
    }
    times: list[float] = []
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            await response.aread()
            response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                now = time.perf_counter()
                for choice in json.loads(line[6:])["choices"]:
                    times += [now] * len(choice["token_ids"])
    return times
