"""Two versions on the same held-out questions: their answers, and figures beside them.

Figures are of the answers as they were given, so that a reader sees what they stand for; none of them is a score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.tokens.rendering import load_renderer
from turnwise.training.asking import repetition
from turnwise.training.policy import load_tokenizer
from turnwise.versions.comparing.answering import Asking, RawAnswer, ask_all
from turnwise.versions.comparing.questions import HeldOut, held_out, text_of_ids
from turnwise.versions.known import Usable, usable


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """What a version answered. ``base``: its mean log-prob under the base model, in nats per token; None: not known."""

    text: str
    tokens: int
    ended: bool
    repetition: float | None
    base: float | None


@dataclass(frozen=True, slots=True)
class VersionSheet:
    """Figures of a version over all its answers, and what the journal has of verdicts on the turns it served.

    ``praised``, ``blamed`` and ``neutral`` are judges' verdicts; ``person_praised`` and ``person_blamed`` the person's.
    """

    number: int
    tokens: float
    ended: float
    repetition: float | None
    base: float | None
    praised: int = 0
    blamed: int = 0
    neutral: int = 0
    person_praised: int = 0
    person_blamed: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """``rows``: each question, and each version's answer to it in the order of ``sheets``."""

    sheets: list[VersionSheet]
    rows: list[tuple[HeldOut, list[ComparedAnswer]]]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        names = VersionSheet.__slots__
        return {
            "versions": [{name: getattr(sheet, name) for name in names} for sheet in self.sheets],
            "questions": [
                {
                    "about": asked.about,
                    "question": asked.question,
                    "good": asked.good,
                    "answers": [{name: getattr(a, name) for name in ComparedAnswer.__slots__} for a in answers],
                }
                for asked, answers in self.rows
            ],
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class ComparedMaterial:
    """What is compared on what, as it was found in the journal."""

    versions: list[Usable]
    asked: list[HeldOut]
    said: list[dict[str, int]]
    notes: list[str]


def gather(config: Config, journal: Journal, numbers: Sequence[int], each: int) -> ComparedMaterial:
    """The versions ``numbers``, and up to ``each`` questions of either kind. Raises TurnwiseError."""
    if len(set(numbers)) < len(numbers):
        raise TurnwiseError(f"version {numbers[0]} is compared with itself; give two versions")
    model = resolve_model(config.model.path)
    versions = [usable(journal, config, number, model) for number in numbers]
    said = [note for version in versions for note in version.notes]
    if len({version.number for version in versions}) < len(versions):
        raise TurnwiseError(f"nothing is left to compare: {'; '.join(said)}")
    asked, notes = held_out(journal, model, load_tokenizer(model), each)
    verdicts = [journal.versions.verdicts_on(version.number) for version in versions]
    return ComparedMaterial(versions, asked, verdicts, notes + said)


def compare(
    config: Config, material: ComparedMaterial, asking: Asking, told: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Ask the versions, and take their figures. Raises TurnwiseError where no engine answers."""
    model = resolve_model(config.model.path)
    tokenizer, ends = load_tokenizer(model), load_renderer(model).stop_token_ids
    notes = list(material.notes)
    found = ask_all(config, material.versions, [one.prompt_ids for one in material.asked], asking, ends, told)
    asked, raw = answered(material.asked, found)
    if left_out := len(material.asked) - len(asked):
        notes.append(f"questions left out, since they do not fit the engine's context: {left_out}")
    answers = [[_compared(answer, text_of_ids(tokenizer, answer.ids)) for answer in of] for of in raw]
    each_of = zip(material.versions, material.said, raw, answers, strict=True)
    sheets = [_sheet(*of) for of in each_of]
    if any(answer.base is None for of in answers for answer in of if answer.tokens):
        notes.append("this engine gives no log-probs of given tokens: likelihood under the base model is not known")
    return Comparison(sheets, list(zip(asked, map(list, zip(*answers, strict=True)), strict=True)), notes)


def answered(
    asked: Sequence[HeldOut], found: Sequence[Sequence[RawAnswer | None]]
) -> tuple[list[HeldOut], list[list[RawAnswer]]]:
    """The questions that have answers, and each version's to them. Raises TurnwiseError where there is none."""
    kept = [i for i in range(len(asked)) if all(of[i] is not None for of in found)]
    if not kept:
        raise TurnwiseError("no question fits the engine's context; give it a longer one (`engine.max_model_len`)")
    return [asked[i] for i in kept], [[answer for i in kept if (answer := of[i]) is not None] for of in found]


def _compared(raw: RawAnswer, text: str) -> ComparedAnswer:
    return ComparedAnswer(text, len(raw.ids), raw.ended, repetition([raw.ids]), _mean(raw.base_logprobs or []))


def _sheet(
    version: Usable, said: dict[str, int], raw: Sequence[RawAnswer], answers: Sequence[ComparedAnswer]
) -> VersionSheet:
    base = [a.base for a in answers if a.base is not None]
    return VersionSheet(
        number=version.number,
        tokens=sum(a.tokens for a in answers) / len(answers),
        ended=sum(a.ended for a in answers) / len(answers),
        repetition=repetition([one.ids for one in raw]),
        base=_mean(base),
        **said,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
