"""What an agent is told of turnwise: where it listens, with which token, and how much fits into the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROVIDER = "turnwise"
"""The name of our entry in every client's configuration."""
MODEST_ANSWER = 4096
"""Tokens that a client may ask for in one answer of an upstream, whose limit on answers nobody knows."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the root, without `/v1`; `context` is the model's longest prompt and answer together, in tokens.

    It is None where nobody says, as in front of an upstream; `relayed` is whether an upstream answers.
    """

    url: str
    token: str
    model: str
    context: int | None
    relayed: bool = False
    own: bool = False
    """Whether it is this home's."""

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def longest_answer(self) -> int:
        """What clients may ask for in one answer: a quarter of the context, so that a prompt still fits."""
        if self.context is None:
            return MODEST_ANSWER
        quarter = max(self.context // 4, 1)
        return min(quarter, MODEST_ANSWER) if self.relayed else quarter


def home_of(environment: dict[str, str]) -> Path:
    """The person's home folder in this environment."""
    return Path(environment.get("HOME") or Path.home())
