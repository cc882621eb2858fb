"""What an update is examined on: answers that are known, prompts that are answered, and what was wished for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.training.gate.probes import KnownQuestion, Probe, probe_of
from turnwise.training.lessons.wished import NOTHING, Wished
from turnwise.training.lessons.wishes import wishes_among
from turnwise.types import Batch, Sample

MOST_HINTS = 4
"""Distinct hints that the base model is told at once: a small model follows no more."""


@dataclass(frozen=True)
class Material:
    """What an update is examined on.

    ``general`` and ``turns`` have good answers; ``asked`` are the prompts that are answered; ``recorded`` are answers
    as they were given so far; ``tellings`` are the hints, in each of the ways in which the base model is told them;
    ``questions`` have answers that are right. ``wished``: what the update's lessons show as wished for;
    ``taken_back``: whether a wish was; ``praised``: answers that were praised for following the wishes that stand;
    ``words``: those that the wishes quote and the person wants said.
    """

    general: Sequence[Probe]
    turns: Sequence[Probe]
    asked: Sequence[Probe]
    recorded: Sequence[Sequence[int]]
    tellings: Sequence[Sequence[str]]
    questions: Sequence[KnownQuestion] = ()
    wished: Wished = NOTHING
    taken_back: bool = False
    praised: Sequence[Probe] = ()
    words: Sequence[str] = ()

    @property
    def known(self) -> list[Probe]:
        return [*self.general, *self.turns]


def material_of(
    general: Sequence[Probe],
    questions: Sequence[KnownQuestion],
    turns: Sequence[Sample],
    batch: Batch,
    wishes: Sequence[str],
    answers: int,
) -> Material:
    """What a batch's update is examined on; ``wishes`` stand, and the batch's own hints come behind them."""
    # A probe is asked as ids alone: turns with pictures are left to the training.
    probes, ours = ([probe_of(s) for s in some if not s.pictures] for some in (turns, batch.samples))
    own = wishes_among([s.hint for s in batch.samples if s.hint])
    told = list(dict.fromkeys([*reversed(wishes), *own]))[:MOST_HINTS]
    return Material(
        general=general,
        turns=probes,
        asked=choose_asked(probes, ours, general, answers),
        recorded=[s.response_ids for s in (*turns, *batch.samples)],
        tellings=[told, *([told[:1]] if len(told) > 1 else [])] if told else [],
        questions=questions,
    )


def material_alone(
    general: Sequence[Probe], questions: Sequence[KnownQuestion], turns: Sequence[Sample], answers: int
) -> Material:
    """What weights are measured on where no batch made them."""
    known = [probe_of(s) for s in turns if not s.pictures]
    asked, recorded = choose_asked(known, [], general, answers), [s.response_ids for s in turns]
    return Material(general, known, asked, recorded, [], questions)


def choose_asked(turns: Sequence[Probe], batch: Sequence[Probe], general: Sequence[Probe], count: int) -> list[Probe]:
    """The prompts that are answered: of set-aside turns, of the batch, and for the rest of the general probe.

    About a third of each, where there are as many; of the general ones as different ones as there are.
    """
    third = -(-count // 3)
    chosen = [*turns[:third], *batch[:third]]
    left = count - len(chosen)
    every = max(1, len(general) // left) if left > 0 else 1
    return [*chosen, *general[::every][: max(0, left)]][:count]
