"""Whether a person's wishes cost the answers their language: how likely these are to the base model, beside its own.

An answer in the manner that was wished for is unlikely to a model that does not know the wish, and a plain one to one
that does, so that the smaller loss of the two counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from turnwise.bench.personalization.persons import Person
from turnwise.demo.coherence import ScoredText, mean_nll, with_wish
from turnwise.models import resolve_model

UNASKED, TOLD = "unasked", "told"
"""Who said an answer of an examination: the policy, without the wishes in its prompt, or the base model with them."""
PLAIN, WISH = "plain", "with the wish"
LONGEST_S = 7200.0
"""A course of 48 examinations has thousands of answers, which a slow machine reads for an hour."""


def _nll(groups: dict[str, Sequence[ScoredText]], model: str) -> dict[str, float]:
    return mean_nll(groups, model, timeout_s=LONGEST_S)


def language_losses(
    answers: Path,
    person: Person,
    model: str,
    nll: Callable[[dict[str, Sequence[ScoredText]], str], dict[str, float]] = _nll,
) -> dict[int, float]:
    """Nats per token by which the answers of each examination are less likely to the base model than its own ones.

    ``answers`` is the file of a course, of which the first examination is of the base model. ``nll`` gives the mean
    negative log-likelihood of each group of texts. Raises CoherenceError.
    """
    given: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
    for line in answers.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["answer"]:
            given[one["conversations"], one["said"]].append((one["question"], one["answer"]))

    def texts(of: list[tuple[str, str]], wish: str) -> list[ScoredText]:
        return [ScoredText(with_wish(q, wish) if wish else q, answer, ended=False) for q, answer in of]

    groups: dict[str, Sequence[ScoredText]] = {}
    for (at, said), of in given.items():
        wish = " ".join(w.told for w in person.wishes_at(max(0, at - 1)))
        groups[f"{at} {said} {WISH}"] = texts(of, wish)
        if said == UNASKED:
            groups[f"{at} {said} {PLAIN}"] = texts(of, "")
    found = nll(groups, str(resolve_model(model))) if groups else {}
    losses: dict[int, float] = {}
    told = float("-inf")  # where nobody was told, the wish allows nothing
    base = found.get(f"0 {UNASKED} {PLAIN}", float("-inf"))
    for at in sorted({at for at, said in given if said == UNASKED}):
        told = found.get(f"{at} {TOLD} {WISH}", told)  # asked for anew where the wishes are others
        bare = found[f"{at} {UNASKED} {PLAIN}"] - base
        losses[at] = min(bare, found[f"{at} {UNASKED} {WISH}"] - told)
    return losses
