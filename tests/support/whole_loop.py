"""The whole loop in this process: gateway, journal, judge and trainer are the real ones, what the engine says is given.

Conversations go through the gateway by HTTP, the judge's own loop takes what came of them, and the trainer takes
batches for as long as there are any. Replies are read by the states of a real model; what is trained is a tiny model
with its tokens, so that an update with its gate takes seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, Running
from tests.support.servers import running
from tests.training.homes import NO_LIMITS
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import load_config
from turnwise.doctor.journal import examine_journal
from turnwise.journal import Journal, schema
from turnwise.judges.choice import SignalJudge
from turnwise.judges.signals.states import ReplyJudge
from turnwise.judges.worker import Worker
from turnwise.training.update import Trainer
from turnwise.training.worker import work
from turnwise.types import Batch, Exclusion

LOST = (Exclusion.NO_VALID_VOTE, Exclusion.FAILED_IN_TRAINING, Exclusion.REFUSED_BY_GATE, Exclusion.INFRASTRUCTURE)
"""What no turn may be excluded for."""
SMALL: dict[str, object] = {
    "server.port": 0,
    "train.when": "always",
    "train.device": "cpu",
    "train.dtype": "float32",
    "train.threads": 1,
    "train.min_batch": 4,
    "train.max_batch": 8,
    "train.lessons": 0,  # the tiny model cannot be asked anything
    "gate.answers": 2,
    "gate.answer_tokens": 16,
    "gate.max_off_topic": NO_LIMITS["gate.max_off_topic"],  # nothing ties its answers to their questions
}


@dataclass(frozen=True, slots=True)
class Came:
    """What came back on an answer: a person's words, or the results of the calls in it."""

    text: str
    by_tool: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge recorded of an answer, and what had come back on it."""

    came: Came
    answer: str
    score: int
    hint: str | None


@dataclass
class WholeLoop:
    """A home with its gateway. ``batches``: those that were trained on, as the trainer was given them."""

    gateway: Running
    model: Path
    reader: Path
    states_url: str
    batches: list[Batch] = field(default_factory=list)
    advantages: list[list[float]] = field(default_factory=list)
    trainer: Trainer | None = None
    _came: dict[str, tuple[Came, str]] = field(default_factory=dict)

    def converse(self, session: str, first: str, rounds: Sequence[tuple[str, Came]], **asked: Any) -> None:
        """A person's first message, and rounds of an answer and what comes back on it; one more answer ends it."""
        client = self.gateway.client(**{"X-Session-Id": session})
        messages: list[Any] = [{"role": "user", "content": first}]
        for answer, came in [*rounds, ("All right.", None)]:
            self.gateway.stub.reply = lambda _, said=answer: said
            given = client.chat.completions.create(model="turnwise", messages=messages, max_tokens=200, **asked)
            message = given.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if came is None:
                break
            self._came[given.id.removeprefix("chatcmpl-")] = came, answer
            calls = (message.tool_calls or []) if came.by_tool else []
            results = [{"role": "tool", "tool_call_id": call.id, "content": came.text} for call in calls]
            messages += results or [{"role": "user", "content": came.text}]
        closed = httpx.post(f"{self.gateway.url}/v1/sessions/{session}/close", headers=self.gateway.person)
        closed.raise_for_status()

    def judge(self) -> None:
        """Let the judge's loop run until no turn waits for it."""
        asyncio.run(self._judge())

    async def _judge(self) -> None:
        config, journal = self.gateway.config, self.gateway.journal
        read_by = config.model_copy(update={"model": config.model.model_copy(update={"path": str(self.reader)})})
        judge, stop = SignalJudge(replies=ReplyJudge(read_by, self.states_url)), asyncio.Event()
        loop = asyncio.create_task(Worker(config, journal, judge).run(stop))
        try:
            while journal.status.figures()["turns"]["judging"]:
                assert not loop.done(), loop
                await asyncio.sleep(0.1)
        finally:
            stop.set()
            await loop
            await judge.close()

    def train(self) -> int:
        """Let the trainer take batches for as long as there are any; gives their number."""
        config, journal = self.gateway.config, self.gateway.journal
        self.trainer = self.trainer or self._watched(Trainer(config, self.model))
        before = len(self.batches)
        while (batch := journal.batches.claim("trainer", 600)) is not None:
            self.batches.append(batch)
            fault = work(config, journal, self.trainer, batch, threading.Event(), time.monotonic)
            assert fault is None
            assert journal.status.figures()["refused_in_a_row"]["count"] < 3, "a wall"
            assert len(self.batches) < before + 20, "it spins"
        return len(self.batches) - before

    def _watched(self, trainer: Trainer) -> Trainer:
        """Writes down what the trainer takes each sample's score for."""
        signals = trainer.backend.signals

        def seen(batch: Batch, tick: Any) -> Any:
            found = signals(batch, tick)
            self.advantages.append([float(one.advantage[0]) for one in found])
            return found

        trainer.backend.signals = seen  # type: ignore[method-assign]
        return trainer

    def judged(self) -> list[Judgement]:
        """All verdicts of the judge, the oldest first."""
        verdicts = schema.verdicts.c
        with self.gateway.journal.store.reading() as c:
            rows = c.execute(select(verdicts.turn_id, verdicts.score, verdicts.hint).order_by(verdicts.id)).all()
        return [Judgement(*self._came[row.turn_id], row.score, row.hint) for row in rows]

    def faults(self) -> list[str]:
        """What `turnwise doctor` finds wrong, and what is left lying, or was lost."""
        figures = self.gateway.journal.status.figures()
        found = [f"{name}: {said}" for name, level, said in examine_journal(self.gateway.config) if level == "fault"]
        found += [f"{n} turns {state}" for state in ("judging", "judged", "leased") if (n := figures["turns"][state])]
        found += [f"{figures['excluded'][why]} turns: {why}" for why in LOST if figures["excluded"].get(why)]
        return found + [
            f"{loop} is blocked" for loop, said in figures["loops"].items() if said.get("state") == "blocked"
        ]


@contextmanager
def whole_loop(home: Path, model: Path, reader: Path, states_url: str, **changes: object) -> Iterator[WholeLoop]:
    """``model`` is served and trained; ``reader`` is the model at ``states_url``, by whose states replies are read."""
    config = load_config(overrides={"home": home, "model.path": str(model)} | SMALL | changes)
    stub = StubEngine(Tokenizer.from_file(str(model / "tokenizer.json")), lambda _: "", logprobs="absent")
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        try:
            with closing(Journal.open(config)) as journal:
                token = (config.home / "token").read_text().strip()
                yield WholeLoop(Running(thread.url, token, stub, journal, config), model, reader, states_url)
        finally:
            thread.stop()
