"""The questions that versions are compared on: none of them was ever trained on, and each has an answer that is good.

Two kinds, as at the gate: turns of sessions that are set aside, and the general probe that ships with the package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer

from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.training.gate.probes import general_probes, probe_of
from turnwise.types import Sample

SET_ASIDE = "set aside"
MOST_OF_A_PROMPT = 1200
"""Characters that are shown of a prompt whose question is not known by itself: its end."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A question, as ids [P] and as text, with its good answer. ``about``: SET_ASIDE, or what the general one is of."""

    prompt_ids: list[int]
    question: str
    good: str
    about: str


def held_out(journal: Journal, model: Path | str, tokenizer: Tokenizer, each: int) -> tuple[list[HeldOut], list[str]]:
    """Up to ``each`` questions of either kind, and what is missing, as sentences. Raises TurnwiseError for none."""
    turns = [turn for turn in journal.batches.gate_probes(each, []) if not turn.pictures]  # asked as ids alone
    general = _general(model)
    every = max(1, len(general) // each)
    notes = []
    if not turns:
        notes.append("no session is set aside and judged well yet: the questions are those of the general probe alone")
    if not general:
        notes.append("the model takes no plain question, so the general probe is left out")
    asked = [_of_turn(turn, tokenizer) for turn in turns]
    asked += general[::every][:each]
    if not asked:
        raise TurnwiseError(
            "there is nothing to compare versions on: no session is set aside and judged well yet (gate.probe_share), "
            "and the model takes no plain question, so the general probe cannot be asked"
        )
    return asked, notes


def _of_turn(turn: Sample, tokenizer: Tokenizer) -> HeldOut:
    probe = probe_of(turn)
    question = turn.question or text_of_ids(tokenizer, probe.prompt_ids)[-MOST_OF_A_PROMPT:]
    return HeldOut(probe.prompt_ids, question, text_of_ids(tokenizer, probe.answer_ids), SET_ASIDE)


def _general(model: Path | str) -> list[HeldOut]:
    rows = json.loads(files("turnwise.training.gate").joinpath("general.json").read_text(encoding="utf-8"))
    return [
        HeldOut(probe.prompt_ids, row["question"], row["answer"], row["about"])
        for probe, row in zip(general_probes(model), rows, strict=False)
    ]


def text_of_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """What ids say, without the marks of the template."""
    return tokenizer.decode(list(ids), skip_special_tokens=True).strip()
