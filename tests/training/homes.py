"""A home with a real journal and a trainer for it, at the size of `tiny`."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch
from torch import Tensor

from tests.support.versions import new_turn, set_aside
from tests.training.tiny import DEVICE, sample
from turnwise.config import Config, load_config
from turnwise.journal import Answer, Journal
from turnwise.messages import saying
from turnwise.training.gate.figures import FIGURES
from turnwise.training.publish import version_dir
from turnwise.training.update import Trainer
from turnwise.training.weights.files import load_version_dir
from turnwise.training.worker import work
from turnwise.types import FinishReason

NO_LIMITS = dict.fromkeys((f"gate.{f.limit}" for f in FIGURES), 1e6) | {
    "gate.max_repetition": 1.0,
    "gate.max_echo": 1.0,
    "gate.max_lost_right": 1.0,
    "gate.max_lost_words": 1.0,
    "gate.max_unended": 1.0,
}
"""Of a gate that everything passes."""


class Clock:
    def __init__(self) -> None:
        self.now = min(1000.0, time.monotonic())  # a loop with the clock of this boot may read what was written

    def __call__(self) -> float:
        return self.now


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program handles it."""


def settings(home: Path, model: Path, **changes: object) -> Config:
    overrides: dict[str, object] = {
        "home": home,
        "model.path": str(model),
        "train.when": "always",  # the window has its own tests
        "train.lr": 3e-3,
        "train.lora_rank": 4,
        "train.min_batch": 4,
        "train.max_batch": 4,
        "train.minibatch": 2,
        "train.microbatch_tokens": 64,
        "train.device": DEVICE,
        "train.dtype": "float32",
        "train.threads": 1,
        "train.teacher": "policy",
        "train.lessons": 0,  # the tiny model cannot be asked anything
        "gate.answers": 0,
        "gate.probe_share": 0.0,
        **NO_LIMITS,
    }
    return load_config(overrides=overrides | changes)


def feed(journal: Journal, numbers: range) -> None:
    """Record judged turns, each a session of its own."""
    for n in numbers:
        one = sample(n)
        turn = new_turn(
            one.turn_id,
            session_id=one.session_id,
            prompt_ids=one.prompt_ids,
            prompt_tokens=len(one.prompt_ids),
            hint_at=one.hint_at,
            temperature=one.temperature,
        )
        journal.turns.begin(turn)
        message = saying("assistant", "…")
        logprobs = [-4.0] * len(one.response_ids)
        journal.turns.finish(turn.id, Answer(message, None, FinishReason.STOP, one.response_ids, logprobs))
        journal.verdicts.feedback(turn.id, int(one.reward), one.hint)


def feed_probes(journal: Journal) -> None:
    """Well-judged turns of sessions that are set aside."""
    numbers = range(91, 97, 2)
    feed(journal, numbers)
    for n in numbers:
        set_aside(journal, f"turn-{n}")


class Bench:
    """A home with a journal and as many trainers, one after the other, as a test kills."""

    def __init__(self, config: Config) -> None:
        self.config, self.clock = config, Clock()
        self.journal = Journal.open(config, self.clock)
        self.stop = threading.Event()

    def claim_and_work(self) -> bool:
        """What a trainer process does once: False when there is nothing to do."""
        trainer = Trainer(self.config, Path(self.config.model.path))
        batch = self.journal.batches.claim("trainer", self.config.train.lease_s)
        if batch is None:
            return False
        work(self.config, self.journal, trainer, batch, self.stop, self.clock)
        return True

    def expire_lease(self) -> None:
        self.clock.now += self.config.train.lease_s + 1

    def weights(self, number: int) -> dict[str, Tensor]:
        return load_version_dir(version_dir(self.config.versions_dir, number)).weights

    def turns(self) -> dict[str, int]:
        return {state: n for state, n in self.journal.status.figures()["turns"].items() if n}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
