"""On-policy distillation from hints: the policy is pulled towards itself as it reads the hint (OpenClaw-RL §4.2).

With the sampled estimator that is an advantage, with the others a divergence over the vocabulary at each position.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from turnwise.training import losses
from turnwise.training.algorithms.base import Algorithm, ExtraLoss, Seen


class Opd(Algorithm):
    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """With the sampled estimator, ``w_opd`` times the distillation advantage on top."""
        if self.config.estimator != "sampled":
            return advantages
        raw = {i: distillation(seen.teacher(), seen.old) for i, seen in enumerate(batch) if seen.teacher is not None}
        terms = dict(zip(raw, less_others(list(raw.values()), self.config.advantage_clip), strict=True))
        return [a + self.config.w_opd * terms[i] if i in terms else a for i, a in enumerate(advantages)]

    def extra_loss(self) -> ExtraLoss | None:
        return None if self.config.estimator == "sampled" else ExtraLoss(self.config.w_opd, self._divergence)

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        if self.config.estimator == "topk":
            ids = losses.top_tokens(teacher, self.config.top_k)
            student, teacher = losses.fold_tail(student, ids), losses.fold_tail(teacher, ids)
        return losses.divergence(student, teacher, self.config.divergence)


def distillation(teacher: Tensor, old: Tensor) -> Tensor:
    """``log π_T − log π_old`` of the sampled tokens, without gradient (Algorithm 2). [R] and [R].

    Both must come from the same weights at the same temperature: then an empty hint gives 0.
    """
    return (teacher - old).detach()


def less_others(advantages: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Take the mean over all tokens of the *other* turns off each distillation advantage, and cut it at ± ``limit``.

    The expectation of ``log π_T − log π_old`` over the policy's own tokens is −KL ≤ 0. With a few dozen samples, the
    raw advantage therefore pushes down whatever was sampled, and entropy grows until the answers are no language. A
    baseline that does not depend on the turn leaves the gradient's expectation unchanged and removes that drift; one
    with the turn's own tokens in it would take away from what they say. A turn alone has no baseline. Pass the hinted
    turns only.
    """
    total = sum((float(a.sum()) for a in advantages), 0.0)
    tokens = sum(len(a) for a in advantages)

    def baseline(own: Tensor) -> float:
        rest = tokens - len(own)
        return (total - float(own.sum())) / rest if rest else 0.0

    return [(a - baseline(a)).clamp(-limit, limit) for a in advantages]


ALGORITHM = Opd
