"""The gate: whether a trained candidate may serve in place of its parent, and if not all of its step, how much of it.

A score can rise while the answers turn to gibberish, so the candidate is measured on what a score does not see. The
whole step is tried first, and then ever smaller parts of it. The gate never publishes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnwise.config import GateConfig, TrainConfig
from turnwise.training.asking import AT_ONCE
from turnwise.training.gate.answers import OwnAnswers
from turnwise.training.gate.examination import BaseReader, Examination, Weights
from turnwise.training.gate.figures import FIGURES, Measurements, decide, limit_of
from turnwise.training.gate.material import material_alone, material_of
from turnwise.training.gate.probes import KnownQuestion, Probe, general_probes, known_questions, probe_of
from turnwise.training.lessons.wished import NOTHING, Wished
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.training.step import Tick
from turnwise.types import Batch, Sample

PARTS = (1.0, 0.5, 0.25, 0.125)
"""Of a step, tried in this order until one passes."""


class Gate:
    """Examines candidates of one policy. What the base model says of the general probe is kept between them."""

    def __init__(self, policy: Policy, model: Path | str, train: TrainConfig, config: GateConfig) -> None:
        self._policy, self._model, self._train, self._config = policy, model, train, config
        self._base = BaseReader(policy, train.microbatch_tokens)
        self._at_once = AT_ONCE

    @cached_property
    def _general(self) -> list[Probe]:
        return general_probes(self._model)

    @cached_property
    def _questions(self) -> list[KnownQuestion]:
        return known_questions(self._model)

    def in_passes_of(self, tokens: int) -> None:
        """Read with so many tokens in a pass from now on, and answer half as many at once: more found no room."""
        self._train = self._train.model_copy(update={"microbatch_tokens": tokens})
        self._base.microbatch_tokens = tokens
        self._at_once = max(tokens, self._at_once // 2)

    def examine(
        self,
        parent: Weights,
        batch: Batch,
        turns: Sequence[Sample],
        said: Standing,
        tick: Tick,
        wished: Wished = NOTHING,
        praised: Sequence[Sample] = (),
    ) -> dict[str, Any]:
        """Judge the candidate whose weights are in the policy, and leave there the part of its step that passes.

        Where none passes, they are the candidate's, and also where the memory of the device is full
        (`torch.OutOfMemoryError`), so that it can be examined again. The wishes that stand in ``said`` are told, and
        the batch's own hints behind them; words of theirs that the person wants said are not to be lost. ``wished`` is
        what lessons show as wished for; ``praised`` turns of the batch have answers that were praised for following
        the wishes. Gives the result as it is recorded: that of `decide`, and ``alpha``, the part of the step (0: none).
        """
        policy = self._policy
        whole, start = policy.state(), parent if parent is not None else policy.weights.initial()
        material = material_of(self._general, self._questions, turns, batch, said.wishes, self._config.answers)
        kept = [probe_of(sample) for sample in praised]
        back = bool(said.taken_back)
        material = replace(material, wished=wished, taken_back=back, praised=kept, words=said.wanted)
        about = {"probes": len(material.turns), "general": len(material.general), "answers": len(material.asked)}
        about |= {"wished_tokens": len(wished.tokens)} if wished.tokens else {}
        about |= {"wished_runs": len(wished.runs)} if wished.runs else {}
        first: dict[str, Any] | None = None
        tried = 0

        def alive() -> None:
            tick("gate", tried, len(PARTS))

        examination = Examination(policy, self._base, parent, material, self._train, self._config, alive, self._at_once)
        for alpha in PARTS:
            try:
                policy.load(part_of(start, whole, alpha))
                result = look(examination, self._config, thorough=first is None)
            except torch.OutOfMemoryError:
                policy.load(whole)
                raise
            if result["accepted"]:
                self._base.forget_others()
                cut = {} if first is None else {"whole": first}
                return result | about | cut | {"alpha": alpha}
            first = first or result
            tried += 1
            if first["hopeless"] or first["held"]:
                break
        policy.load(whole)
        self._base.forget_others()
        assert first is not None
        return first | about | {"alpha": 0.0}

    def measure(self, parent: Weights, turns: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        """What `decide` would say of the weights that are in the policy, which stay as they are."""
        material = material_alone(self._general, self._questions, turns, self._config.answers)
        examination = Examination(
            self._policy,
            self._base,
            parent,
            material,
            self._train,
            self._config,
            lambda: tick("gate", 0, 1),
            self._at_once,
        )
        return decide(examination.at_its_answers(examination.at_known_answers()), self._config)


def look(examination: OwnAnswers, config: GateConfig, *, thorough: bool) -> dict[str, Any]:
    """The result on the candidate as it is. Answers cost most: what fails before needs none, unless ``thorough``."""
    known = examination.at_known_answers()
    result = decide(known, config)
    if result["hopeless"] or not (thorough or _passes(known, config)):
        return result
    return decide(examination.at_its_answers(known), config)


def part_of(start: dict[str, Tensor], whole: dict[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """``alpha`` of the way from one adapter to another, weight by weight."""
    if alpha == 1:
        return whole
    return {name: start[name] + alpha * (tensor - start[name]) for name, tensor in whole.items()}


def _passes(m: Measurements, config: GateConfig) -> bool:
    """Whether no figure that was taken is beyond its limit."""
    taken = [(getattr(m, f.name), limit_of(f, m, config)) for f in FIGURES]
    return all(value is None or value <= limit for value, limit in taken)
