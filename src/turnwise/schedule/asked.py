"""`turnwise train now`: a person's request to train at once, from whoever asks to the trainer and back.

It stands in the journal, as all that loops tell each other. One is open at a time; who asks meanwhile waits for it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.journal.journal import Journal

STATUS_KEY = "train now"
HOLDS_S = 600.0
"""A request that no trainer has taken up, or gone on with, for so long is void: the person has not waited for it."""
REFRESHED_S = 60.0

Step = Literal["asked", "training", "done"]


@dataclass(frozen=True)
class TrainRequest:
    """What was asked and what came of it: `said` is a sentence once it is done."""

    id: str
    step: Step
    seconds_ago: float
    said: str = ""

    @property
    def open(self) -> bool:
        return self.step != "done" and self.seconds_ago < HOLDS_S


def train_request(journal: Journal) -> TrainRequest | None:
    """The last request; None where there was none."""
    noted = journal.status.last(STATUS_KEY)
    if noted is None:
        return None
    return _read(*noted)


def _read(data: dict[str, Any], ago: float) -> TrainRequest:
    return TrainRequest(str(data["id"]), data["step"], ago, str(data.get("said", "")))


def ask_to_train(journal: Journal) -> str:
    """Ask, or join a request that is open; gives its id. Of several who ask at once all get the same one."""
    mine = {"id": uuid.uuid4().hex, "step": "asked"}
    said, _ = journal.status.say_unless(STATUS_KEY, mine, lambda last, ago: _read(last, ago).open)
    return str(said["id"])


def take_up(journal: Journal, request: TrainRequest) -> None:
    """The trainer is at it."""
    journal.status.say(STATUS_KEY, {"id": request.id, "step": "training"})


def answer(journal: Journal, request: TrainRequest, said: str) -> None:
    """The trainer has done what was asked."""
    journal.status.say(STATUS_KEY, {"id": request.id, "step": "done", "said": said})
