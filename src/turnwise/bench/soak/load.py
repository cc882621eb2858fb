"""The clients of a soak: conversations in all formats, streamed and whole, with hang-ups, retries and a person's word.

Each client is patient: what is refused is asked again after a pause. Each text carries its request's key, so that the
journal can be asked for it afterwards. Every request has a time limit; one that is reached is noted as a hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from typing import Any

import httpx

from turnwise.bench.soak.ledger import Asked, Ledger
from turnwise.bench.soak.wires import PATHS, Message, Stream, body_of, text_of

LIMIT_S = 150.0
"""Longest time of one request: what the server allows itself, and a loop that hangs in between."""
PAUSE_S = 0.4
_TRIES = 60
_OPENINGS = (
    "What is the capital of France?",
    "Write a line about the sea.",
    "How many legs has a spider?",
    "Name three fruits.",
    "Explain rain to a child.",
)
_REPLIES = (
    "no, that is wrong, please answer in one short sentence",
    "great, exactly what I needed, thank you!",
    "too long. just the answer please",
    "perfect, thank you",
    "that is not what I asked, try again without any list",
    "and what about Spain?",
)


class Load:
    """Some clients in a thread of their own until ``stop``. ``person`` is the token that feedback is given with."""

    def __init__(self, url: str, token: str, person: str, ledger: Ledger, *, clients: int, seed: int) -> None:
        self._url, self._token, self._person = url, token, person
        self._ledger, self._clients, self._seed = ledger, clients, seed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, limit_s: float = LIMIT_S + 30) -> None:
        """Let every client finish its request."""
        self._stopping.set()
        self._thread.join(limit_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as e:
            self.failure = e

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._live(number))

    async def _live(self, number: int) -> None:
        rng = random.Random(f"{self._seed}/{number}")
        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": f"soak-{number}"}
        timeout = httpx.Timeout(LIMIT_S, connect=20.0)
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=timeout, trust_env=False) as http:
            conversation = 0
            while not self._stopping.is_set():
                await _Conversation(self, http, rng, f"c{number}-{conversation}").hold()
                conversation += 1

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    async def side(self, http: httpx.AsyncClient, what: str, path: str, body: dict[str, Any]) -> None:
        """A closing or feedback: as the person."""
        began = self._ledger.now()
        status = None
        with contextlib.suppress(httpx.HTTPError):
            answer = await http.post(path, json=body, headers={"Authorization": f"Bearer {self._person}"})
            status = answer.status_code
        self._ledger.side.append((began, what, status))


class _Conversation:
    """One conversation of one client."""

    def __init__(self, load: Load, http: httpx.AsyncClient, rng: random.Random, name: str) -> None:
        self._load, self._http, self._rng, self._name = load, http, rng, name
        self._wire = rng.choice(list(PATHS))
        self._tools = rng.random() < 0.25
        self._headers = {"X-Session-Id": name} if rng.random() < 0.5 else {}
        self._session: str | None = None

    async def hold(self) -> None:
        rng = self._rng
        messages: list[Message] = [{"role": "user", "content": f"{rng.choice(_OPENINGS)} ({self._name}-0.)"}]
        if self._tools and rng.random() < 0.5:
            messages.append({"role": "assistant", "call": "sea", "content": "sea: a large body of salt water"})
        for turn in range(rng.choice((1, 2, 3, 4))):
            answer = await self._answered(f"{self._name}-{turn}.", messages)
            if answer is None:
                return
            if rng.random() < 0.08:
                body: dict[str, Any] = {"score": rng.choice((-1, 1))}
                body |= {"text": "Answer in one short sentence."} if rng.random() < 0.5 else {}
                await self._load.side(self._http, "feedback", f"/v1/turns/{answer.turn_id}/feedback", body)
            reply = f"{rng.choice(_REPLIES)} ({self._name}-{turn + 1}.)"
            messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": reply}]
        if self._session and rng.random() < 0.3:
            await self._load.side(self._http, "close", f"/v1/sessions/{self._session}/close", {})

    async def _answered(self, key: str, messages: list[Message]) -> Asked | None:
        """The answer of a patient client; None where it went away, or where the soak ends."""
        retry_key = f"{self._name}/{key}" if self._rng.random() < 0.5 else None
        streamed = self._rng.random() < 0.6
        limit = self._rng.choice((4, 8, 16))
        body = body_of(self._wire, messages, limit, streamed, self._tools)
        for attempt in range(_TRIES):
            if self._load.stopping:
                return None
            headers = self._headers | ({"Idempotency-Key": retry_key} if retry_key else {})
            if attempt:
                headers |= {"X-Stainless-Retry-Count": str(attempt)}
            leaves = self._rng.random() < 0.08
            asked = await self._ask(key, body, headers, attempt > 0, leaves)
            if leaves and not asked.whole:
                if self._rng.random() < 0.5:
                    return None
            elif asked.whole:
                if self._rng.random() < 0.05:  # its client did not get it, and asks again
                    again = headers | {"X-Stainless-Retry-Count": str(attempt + 1)}
                    repeated = await self._ask(key, body, again, True, False)
                    return repeated if repeated.whole else asked
                return asked
            elif asked.status is not None and 400 <= asked.status < 500 and asked.status != 429:
                return None  # said once; the checks look at it
            await asyncio.sleep(PAUSE_S * (0.5 + self._rng.random()))
        return None

    async def _ask(self, key: str, body: dict[str, Any], headers: dict[str, str], retried: bool, leaves: bool) -> Asked:
        ledger = self._load.ledger
        asked = Asked(key, self._wire, bool(body["stream"]), ledger.now(), retried)
        after = self._rng.randrange(1, 12) if asked.streamed else self._rng.uniform(0.05, 1.5)
        try:
            async with asyncio.timeout(LIMIT_S):
                asking = self._send(asked, body, headers, int(after) if leaves and asked.streamed else None)
                if leaves and not asked.streamed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(asking, after)
                    asked.hung_up = not asked.whole
                else:
                    await asking
        except TimeoutError:
            asked.late = True
        except (httpx.HTTPError, json.JSONDecodeError) as e:
            asked.error = f"{type(e).__name__}: {e}"
        asked.ended_s = ledger.now()
        ledger.add(asked)
        return asked

    async def _send(self, asked: Asked, body: dict[str, Any], headers: dict[str, str], leave_at: int | None) -> None:
        async with self._http.stream("POST", PATHS[self._wire], json=body, headers=headers) as answer:
            asked.status = answer.status_code
            asked.turn_id = answer.headers.get("x-turnwise-turn-id")
            self._session = answer.headers.get("x-turnwise-session-id", self._session)
            version = answer.headers.get("x-turnwise-version")
            asked.version = None if version is None else int(version)
            if answer.status_code != 200:
                asked.error = (await answer.aread()).decode("utf-8", "replace")[:300]
            elif not asked.streamed:
                asked.text, asked.whole = text_of(self._wire, json.loads(await answer.aread())), True
            else:
                await self._read(asked, answer, leave_at)

    async def _read(self, asked: Asked, answer: httpx.Response, leave_at: int | None) -> None:
        stream = Stream(self._wire)
        async for line in answer.aiter_lines():
            stream.line(line)
            if leave_at is not None and stream.events >= leave_at and not stream.whole:
                asked.hung_up = True
                return
        asked.text, asked.whole, asked.error = stream.text, stream.whole, stream.error
        if not stream.whole and stream.error is None:
            asked.error = "the stream ended without its end"
