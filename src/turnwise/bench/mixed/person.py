"""A person who asks, reads, says what was wrong, and waits for each answer: how long is what is measured."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import openai

from turnwise.demo.server import Server
from turnwise.types import MODEL_NAME

QUESTIONS = (
    "What is a good name for a grey cat?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "What should I take along to a picnic?",
    "How does a bicycle stay upright?",
    "What is the use of a library card?",
)
REPLIES = ("Too long. One short sentence, please.", "No, that is wrong. Answer in one word.", "Thank you, just right!")
MOST_TOKENS = 48
THINKS_S = (0.5, 3.0)
"""Between an answer and what the person says next."""
REQUEST_S = 300.0


@dataclass(slots=True)
class Waits:
    """Seconds of each answer: to its first token, and to its end. Failed ones are counted."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    failed: int = 0


def talk(server: Server, seconds: float, rng: random.Random, waits: Waits) -> None:
    """Hold conversations of two questions for so long; what was waited is added to ``waits``."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0, timeout=REQUEST_S)
    until, pause = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < until:
        said: list[Any] = []
        session = f"person-{rng.getrandbits(48):x}"
        for text in (rng.choice(QUESTIONS), rng.choice(REPLIES)):
            said.append({"role": "user", "content": text})
            answer = _ask(client, session, said, waits)
            said.append({"role": "assistant", "content": answer or "(nothing)"})
            pause.wait(rng.uniform(*THINKS_S))


def _ask(client: openai.OpenAI, session: str, said: list[Any], waits: Waits) -> str:
    begun, first, parts = time.monotonic(), None, []
    try:
        stream = client.chat.completions.create(
            model=MODEL_NAME,
            messages=said,
            stream=True,
            max_tokens=MOST_TOKENS,
            extra_headers={"X-Session-Id": session},
        )
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or time.monotonic() - begun
                parts.append(chunk.choices[0].delta.content)
    except openai.OpenAIError:
        waits.failed += 1
        return ""
    whole = time.monotonic() - begun
    waits.first.append(first if first is not None else whole)
    waits.whole.append(whole)
    return "".join(parts)
