"""What an algorithm is: four hooks that an update calls. Each algorithm is the file of its name in this folder.

The trainer knows no algorithm. It runs the model, sums the terms of the loss, each over its own token count
(``turnwise.training.step``), and asks here what a score and a hint mean for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.training.scores import ScoreHistory
from turnwise.types import Sample


@dataclass(frozen=True, slots=True)
class Seen:
    """A sample at the weights that the update starts from; R response tokens.

    ``old`` [R] is ``log π_old`` of its tokens. ``teacher`` gives ``log π_T`` [R] of the same tokens, computed when it
    is asked; None where no teacher reads a hint. Both are of the turn's sampling temperature.
    """

    sample: Sample
    old: Tensor
    teacher: Callable[[], Tensor] | None


@dataclass(frozen=True, slots=True)
class ExtraLoss:
    """A term beside the policy gradient, averaged over the samples whose hint a teacher read.

    ``per_position``: log-probs over the vocabulary of student and teacher, both at temperature 1, [N, V] and [N, V]
    -> [N].
    """

    weight: float
    per_position: Callable[[Tensor, Tensor], Tensor]


class Algorithm:
    """The hooks. One that an algorithm leaves out adds nothing. None of them runs a model or holds state.

    ``history``: the scores that the weights were trained on before.
    """

    def __init__(self, config: TrainConfig, history: ScoreHistory | None = None) -> None:
        self.config = config
        self.history = history or ScoreHistory()

    def advantage(self, seen: Seen) -> Tensor:
        """What a sample says by itself: A [R] of its response tokens, without gradient."""
        return torch.zeros_like(seen.old)

    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """What the samples of a batch say only beside each other: their advantages, each [R], as they are used."""
        return advantages

    def takes_part(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[bool]:
        """Which samples the policy gradient is averaged over; ``advantages`` are those that `group` gave."""
        return [bool(a.any()) for a in advantages]

    def extra_loss(self) -> ExtraLoss | None:
        """A loss of its own on the hinted turns, or None."""
        return None


def algorithm_of(config: TrainConfig, history: ScoreHistory | None = None, method: str | None = None) -> Algorithm:
    """The algorithm of this name, or that `train.method` names: ``ALGORITHM`` of the file with that name."""
    return import_module(f"{__package__}.{method or config.method}").ALGORITHM(config, history)
