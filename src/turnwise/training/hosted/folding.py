"""What a server with losses of its own is told of an optimiser step: one advantage for each token.

The Tinker API has `−min(ρ a, clip(ρ) a)` with `ρ = exp(log π_θ − log π_old)` and no other term, so all terms of our
loss are folded into `a`: what they weigh, the importance weight of the sampler, and the KL to the base model from the
log-probs of the sampled tokens. Pure functions; log-probs are at temperature 1, the only one that the API knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["sum", "mean"]


def folded_advantage(
    advantage: Tensor, weight: Tensor, old: Tensor, ref: Tensor, c_pg: float, c_kl: float, beta_kl: float
) -> Tensor:
    """``a = w · (c_pg A − β c_kl (log π_old − log π_ref))`` of a sample, all [R].

    ``c_pg`` and ``c_kl`` are the weights of one of its tokens in both terms (`TermWeights`), so that `Σ −ρ a` over the
    samples of a step has the gradient of our loss: of the surrogate for these very tokens, and of `KL(π_θ ‖ π_ref)` in
    the mean over what π_old samples, where π_θ is π_old.
    """
    return weight * (c_pg * advantage - beta_kl * c_kl * (old - ref))


def undone(advantages: Sequence[Tensor], lengths: Sequence[int], reduction: Reduction) -> list[Tensor]:
    """The same advantages for a server that reduces: multiplied by what it divides by.

    ``lengths``: the target tokens of each text. With "mean" it takes the mean over all texts of an optimiser step of
    the means over their tokens, in place of the sum.
    """
    if reduction == "sum":
        return list(advantages)
    return [a * (len(advantages) * n) for a, n in zip(advantages, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class Targets:
    """A text for a server: each of ``targets`` [T] is predicted from the ids up to the one beside it in ``inputs`` [T].

    The response is the last ``length`` of them.
    """

    inputs: list[int]
    targets: list[int]
    length: int

    @classmethod
    def of(cls, prompt: Sequence[int], response: Sequence[int]) -> Targets:
        """Both id lists joined as ids, never as text."""
        ids = [*prompt, *response]
        return cls(ids[:-1], ids[1:], len(response))

    def spread(self, values: Tensor) -> list[float]:
        """What is said of the response's tokens [R], as T numbers: 0 at those of the prompt."""
        return [0.0] * (len(self.targets) - self.length) + values.tolist()

    def of_response(self, values: Sequence[float | None]) -> Tensor:
        """The numbers of the response [R] among those of all tokens, whether the first token has one or not.

        One that is missing is not a number.
        """
        if len(values) < self.length:
            raise ValueError(f"{len(values)} numbers for {self.length} tokens")
        return torch.tensor([float("nan") if v is None else v for v in values[len(values) - self.length :]])
