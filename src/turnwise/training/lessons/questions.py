"""What the base model is asked for lessons: the person's own questions, and a fixed set of everyday ones.

A wish that is learned on eight questions alone is learned of those eight. Many of the everyday ones have short answers:
one that is cut before its end shows nothing that belongs at the end.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from tokenizers import Tokenizer

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.policy import hinted_prompt
from turnwise.types import Sample

LONGEST_QUESTION = 200
"""Tokens of a question that is answered and rewritten; a pasted page is neither."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A context that ends where an answer begins, and its last question as text. ``hint_at``: where a hint would go."""

    ids: list[int]
    text: str
    hint_at: int


def told(question: OpenQuestion, wish: str, tokenizer: Tokenizer) -> OpenQuestion:
    """The question as it is asked of somebody who knows the wish."""
    return replace(question, ids=hinted_prompt(question.ids, wish, question.hint_at, tokenizer))


@cache
def everyday_questions() -> list[str]:
    """The questions that ship with the package, one a line."""
    text = (files("turnwise.training.lessons") / "questions.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line]


def questions_of(
    samples: Sequence[Sample], renderer: PromptRenderer, count: int, longest_prompt: int, seed: str, spare: int = 0
) -> list[OpenQuestion]:
    """About ``count`` questions: those of the samples that are short enough, one a session, and everyday ones.

    Behind them stand ``spare`` more everyday ones.
    """
    own: dict[str, OpenQuestion] = {}
    for sample in samples:
        question = _own_question(sample, renderer) if len(sample.prompt_ids) <= longest_prompt else None
        if question is not None:
            own.setdefault(sample.session_id, question)
    asked = list(own.values())[: count // 2]
    order = list(everyday_questions())
    random.Random(hashlib.sha256(seed.encode()).digest()).shuffle(order)
    for text in order[: count + spare - len(asked)]:
        prompt = renderer.render([saying("user", text)], None)
        if prompt.hint_at is not None:
            asked.append(OpenQuestion(prompt.ids, text, prompt.hint_at))
    return asked


def _own_question(sample: Sample, renderer: PromptRenderer) -> OpenQuestion | None:
    """The last question of a turn. Its text is what is new since the last answer began, without its markup."""
    if sample.hint_at is None or not sample.question:
        return None
    if len(renderer.encode(sample.question)) > LONGEST_QUESTION:
        return None
    return OpenQuestion(sample.prompt_ids, sample.question, sample.hint_at)
