"""The examination of one update: its candidate, and parts of its step, beside parent, base and told base.

What belongs to others than the candidate is taken once, and only where it is asked for. The weights that are in the
policy when figures are taken are the candidate's, and they are left there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from itertools import chain, islice
from statistics import median

from torch import Tensor

from turnwise.config import GateConfig, TrainConfig
from turnwise.training.asking import AT_ONCE, GivenAnswer, sample_answers
from turnwise.training.gate.answers import (
    RIGHT_TOKENS,
    OwnAnswers,
    behind_first,
    known_rises,
    mean_of,
    mean_or_none,
    rises,
)
from turnwise.training.gate.figures import Measurements
from turnwise.training.gate.material import Material
from turnwise.training.gate.probes import Probe
from turnwise.training.gate.reading import Alive, distances, log_likelihoods, read
from turnwise.training.policy import Policy
from turnwise.training.weights.base import Whose

Weights = dict[str, Tensor] | None
_States = tuple[Whose, Sequence[Tensor]]
_Key = tuple[tuple[int, ...], tuple[int, ...]]
LIKELY = math.log(0.1)
"""Log-prob of a token from which the parent says it."""
SEVERAL = 2
"""Praised answers from which it is told whether they are lost: one may have been praised for something else."""


class BaseReader:
    """What the base model makes of probes: it never changes, so it is kept while each update asks for it."""

    def __init__(self, policy: Policy, microbatch_tokens: int) -> None:
        self._policy = policy
        self.microbatch_tokens = microbatch_tokens
        self._kept: dict[_Key, Tensor] = {}
        self._asked: set[_Key] = set()
        self.right: int | None = None
        """How many of the known questions it answers right, once it was asked."""

    def read(self, probes: Sequence[Probe], alive: Alive) -> list[Tensor]:
        """Hidden states [R, H] of each probe's answer."""
        missing = [p for p in probes if _key(p) not in self._kept]
        with self._policy.reference():
            found = read(self._policy, missing, self.microbatch_tokens, alive) if missing else []
        self._kept |= {_key(p): hidden for p, hidden in zip(missing, found, strict=True)}
        self._asked |= {_key(p) for p in probes}
        return [self._kept[_key(p)] for p in probes]

    def forget_others(self) -> None:
        """Forget what was not asked for since the last call of this: most is asked for at each update."""
        self._kept = {key: hidden for key, hidden in self._kept.items() if key in self._asked}
        self._asked = set()


class Examination(OwnAnswers):
    """Takes the figures of a candidate, and of parts of its step."""

    def __init__(
        self,
        policy: Policy,
        base: BaseReader,
        parent: Weights,
        material: Material,
        train: TrainConfig,
        gate: GateConfig,
        alive: Alive,
        at_once: int = AT_ONCE,
    ) -> None:
        super().__init__(material, gate, policy.tokenizer, policy.ends, parent is None)
        self._policy, self._reader, self._parent = policy, base, parent
        self._train, self._alive, self._at_once = train, alive, at_once

    def at_known_answers(self) -> Measurements:
        """Distances, and how likely good answers still are: a forward pass over each probe."""
        known = self._material.known
        if not known:
            return Measurements()
        policy = self._policy
        ours = read(policy, known, self._train.microbatch_tokens, self._alive)
        # A step towards what the hints ask of the base model is what was wished for, however far from the parent it is.
        # So is one towards the base model as it is, where a wish was taken back.
        wanted = self._as_bases if self._material.taken_back else self._as_bases[1:]
        step = [min(d) for d in self._distances(("policy", ours), [self._parents, *wanted])]
        drift = [min(d) for d in self._distances(("policy", ours), self._as_bases)]
        said = self._means("policy", ours)
        lost = rises(said, self._parents_said, self._bases_said)
        nll_rise, general_rise = known_rises(lost, len(self._material.general))
        return Measurements(
            step_kl=mean_or_none(step),
            drift_kl=mean_or_none(drift),
            parents_drift_kl=self._parents_drift,
            nll_rise=nll_rise,
            general_rise=general_rise,
            praise_lost=self._praise_lost(),
        )

    def _praise_lost(self) -> float | None:
        """What the worst token of an answer lost that was praised, first tokens included: how it begins was praised,
        too. A phrase at one end of an answer that moves to the other is no longer said where the person wants it.

        A token that the parent would hardly say is none that it could lose.
        """
        if len(self._material.praised) < SEVERAL:
            return None
        pairs = zip(self._parents_praise, self._praise(), strict=True)
        lost = [(before - now).masked_fill(before < LIKELY, 0.0) for before, now in pairs]
        return median(max(0.0, float(one.max())) for one in lost)

    def _praise(self) -> list[Tensor]:
        """Log-probs of the praised answers' tokens, under the weights now in the policy."""
        hidden = read(self._policy, self._material.praised, self._train.microbatch_tokens, self._alive)
        return log_likelihoods(self._policy, hidden, self._material.praised)

    @cached_property
    def _parents_praise(self) -> list[Tensor]:
        with self._as_parent():
            return self._praise()

    def _distances(self, ours: _States, others: Sequence[_States]) -> list[list[float]]:
        return distances(self._policy, ours, others, self._material.wished.tokens)

    def _means(self, whose: Whose, hidden: Sequence[Tensor]) -> list[float]:
        """How likely each good answer is, per token behind its first one."""
        found = log_likelihoods(self._policy, hidden, self._material.known, whose)
        return [behind_first(said).mean().item() for said in found]

    @cached_property
    def _bases(self) -> list[list[Tensor]]:
        """The base model's hidden states, and under each telling the told base model's."""
        return [self._reader.read(probes, self._alive) for probes in self._told(self._material.known)]

    @property
    def _as_bases(self) -> list[tuple[Whose, list[Tensor]]]:
        return [("base", hidden) for hidden in self._bases]

    @cached_property
    def _bases_said(self) -> list[list[float]]:
        return [self._means("base", hidden) for hidden in self._bases]

    @cached_property
    def _parents(self) -> tuple[Whose, list[Tensor]]:
        if self._parent is None:
            return "base", self._bases[0]
        with self._as_parent():
            known = read(self._policy, self._material.known, self._train.microbatch_tokens, self._alive)
        return "parent", known

    @cached_property
    def _parents_said(self) -> list[float]:
        return self._means(*self._parents)

    @cached_property
    def _parents_drift(self) -> float:
        """How far the parent is from the base already."""
        if self._parent is None:
            return 0.0
        return mean_of([min(d) for d in self._distances(self._parents, self._as_bases)])

    @contextmanager
    def _as_parent(self) -> Iterator[None]:
        """Inside of this the policy is the parent."""
        candidate = self._policy.state()
        self._policy.load(self._parent)
        try:
            yield
        finally:
            self._policy.load(candidate)

    def _bases_right(self) -> int | None:
        if self._reader.right is None:
            self._reader.right = super()._bases_right()
        return self._reader.right

    def _sample_each(
        self, groups: Sequence[Sequence[Probe]], whose: Whose, *, greedy: bool = False
    ) -> list[list[GivenAnswer] | None]:
        """All at once, in the time that there is for each: with few answers a token of all takes little longer than of
        some. The n-th of each group draws the same numbers."""
        probes = [*chain(*groups)]
        with self._as(whose):
            answers = sample_answers(
                self._policy,
                [p.prompt_ids for p in probes],
                RIGHT_TOKENS if greedy else self._gate.answer_tokens,
                self._train.seed,
                temperature=0.0 if greedy else 1.0,
                time_s=len(groups) * self._gate.answers_s,
                alive=self._alive,
                at_once=self._at_once,
                places=[place for group in groups for place in range(len(group))],
            )
        if answers is None:
            return [None] * len(groups)
        given = iter(answers)
        return [[*islice(given, len(group))] for group in groups]

    def _as(self, whose: Whose) -> AbstractContextManager[None]:
        """Inside of this the policy is what is named."""
        return {"policy": nullcontext, "base": self._policy.reference, "parent": self._as_parent}[whose]()

    def _to_base(self, probes: Sequence[Probe]) -> list[Tensor]:
        with self._policy.reference():
            hidden = read(self._policy, probes, self._train.microbatch_tokens, self._alive)
            return log_likelihoods(self._policy, hidden, probes)

    def _known_to_base(self, probes: Sequence[Probe]) -> list[Tensor]:
        return log_likelihoods(self._policy, self._reader.read(probes, self._alive), probes, "base")


def _key(probe: Probe) -> _Key:
    return tuple(probe.prompt_ids), tuple(probe.answer_ids)
