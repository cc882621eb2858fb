"""The gate on weights at a server, from log-probs of given answers and from answers that it samples.

What needs whole distributions (the distances ``step_kl`` and ``drift_kl``) is not measured, and named so. Nor can a
part of a step be tried: the API sets no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from turnwise.config import GateConfig
from turnwise.training.asking import GivenAnswer
from turnwise.training.gate.answers import RIGHT_TOKENS, OwnAnswers, behind_first, known_rises, rises
from turnwise.training.gate.figures import Measurements
from turnwise.training.gate.material import Material
from turnwise.training.gate.probes import Probe
from turnwise.training.hosted.folding import Targets
from turnwise.training.hosted.server import HostedAdapter, TinkerServer
from turnwise.training.weights.base import Whose


class HostedExamination(OwnAnswers):
    """Takes the figures of ``candidate``. ``parent`` is the path of the version it began at; None: the base model."""

    def __init__(
        self,
        server: TinkerServer,
        candidate: HostedAdapter,
        parent: str | None,
        material: Material,
        gate: GateConfig,
        tokenizer: Tokenizer,
        ends: Sequence[int],
        seed: int,
    ) -> None:
        super().__init__(material, gate, tokenizer, ends, parent is None)
        self._server, self._candidate, self._parent_path, self._seed = server, candidate, parent, seed

    @cached_property
    def _parent(self) -> HostedAdapter:
        """The parent beside the candidate, loaded where it is first asked."""
        assert self._parent_path is not None
        return self._server.beside(self._parent_path, with_optimizer=False)

    def at_known_answers(self) -> Measurements:
        """How likely good answers still are."""
        known = self._material.known
        if not known:
            return Measurements()
        bases = [_behind_first(self._server.base_logprobs(_texts(probes))) for probes in self._told(known)]
        parents = bases[0] if self._of_base else _behind_first(self._parent.logprobs(_texts(known)))
        lost = rises(_behind_first(self._candidate.logprobs(_texts(known))), parents, bases)
        nll_rise, general_rise = known_rises(lost, len(self._material.general))
        return Measurements(nll_rise=nll_rise, general_rise=general_rise)

    def _sample_each(
        self, groups: Sequence[Sequence[Probe]], whose: Whose, *, greedy: bool = False
    ) -> list[list[GivenAnswer] | None]:
        """In one request."""
        prompts = [p.prompt_ids for probes in groups for p in probes]
        how: dict[str, Any] = {"seed": self._seed, "ends": self._ends, "temperature": 0.0 if greedy else 1.0}
        how["most"] = RIGHT_TOKENS if greedy else self._gate.answer_tokens
        if whose == "base":
            found = self._server.base_answers(prompts, **how)
        else:
            found = (self._candidate if whose == "policy" else self._parent).answers(prompts, **how)
        given = iter(found)
        each = [[*islice(given, len(probes))] for probes in groups]
        return [some if all(a.ids and len(a.ids) == len(a.logprobs) for a in some) else None for some in each]

    def _to_base(self, probes: Sequence[Probe]) -> list[Tensor]:
        return self._server.base_logprobs(_texts(probes))


def _texts(probes: Sequence[Probe]) -> list[Targets]:
    return [Targets.of(p.prompt_ids, p.answer_ids) for p in probes]


def _behind_first(said: Sequence[Tensor]) -> list[float]:
    return [behind_first(one).mean().item() for one in said]
