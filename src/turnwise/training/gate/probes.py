"""Probes: prompts with an answer that is known to be good, on which the gate compares weights.

Two kinds: turns of sessions that are set aside for this and never trained on, and a fixed set of general ability that
ships with the package (`general.json`), written into the served model's own chat template. Ids are joined, never text.
Beside them stand questions of general knowledge (`known.json`), which the policy answers itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from turnwise.errors import EngineError, ModelError
from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.policy import hinted_prompt
from turnwise.types import Sample

log = logging.getLogger(__name__)

LONGEST_PROMPT = 1024
"""Of a longer prompt its last tokens are read: an agent's task stands before them, the state it must answer in them.
Both sides of every comparison read the same, and reading more would take longer than the rest of the gate."""
LONGEST_ANSWER = 128
"""Tokens of a recorded answer that are read."""
TURN = "turn"


@dataclass(frozen=True, slots=True)
class Probe:
    """``prompt_ids`` [P] and a good answer to it, ``answer_ids`` [R]; ``hint_at`` as in a `Sample`.

    ``about`` is TURN, or what a general one is about.
    """

    prompt_ids: list[int]
    answer_ids: list[int]
    hint_at: int | None
    about: str

    def told(self, hints: Sequence[str], tokenizer: Tokenizer) -> Probe:
        """The same with these hints in its prompt, as the teacher reads one."""
        prompt = hinted_prompt(self.prompt_ids, "\n".join(hints), self.hint_at, tokenizer)
        return replace(self, prompt_ids=prompt, hint_at=None)


def probe_of(sample: Sample) -> Probe:
    """A recorded turn as a probe: the end of what the person asked, and the beginning of the answer.

    A wish that stood behind the question is left out: a version that was taught it gets no such prompt any more.
    """
    sample = sample.as_asked()
    cut = max(0, len(sample.prompt_ids) - LONGEST_PROMPT)
    # A hint for a message that is cut off is read first of what is left.
    hint_at = None if sample.hint_at is None else max(0, sample.hint_at - cut)
    return Probe(sample.prompt_ids[cut:], sample.response_ids[:LONGEST_ANSWER], hint_at, TURN)


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question of general knowledge, as a probe without an answer, and what an answer that is right has in it."""

    probe: Probe
    right: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether one of the words, or rows of words, stands in an answer; capitals and signs do not count."""
        said = f" {_words(answer)} "
        return any(f" {_words(words)} " in said for words in self.right)


def general_probes(model: Path | str) -> list[Probe]:
    """The general probe for a model; none, with a warning, where its template does not take a plain question."""
    rows, asked = _rows("general.json"), _PlainQuestions.of(model)
    return [] if asked is None else [asked.probe(row["question"], row["about"], row["answer"]) for row in rows]


def known_questions(model: Path | str) -> list[KnownQuestion]:
    """The questions of general knowledge for a model; none where `general_probes` has none."""
    rows, asked = _rows("known.json"), _PlainQuestions.of(model)
    if asked is None:
        return []
    return [KnownQuestion(asked.probe(row["question"], "facts"), tuple(row["right"])) for row in rows]


@dataclass(frozen=True, slots=True)
class _PlainQuestions:
    """Puts plain questions into a model's template."""

    renderer: PromptRenderer

    @classmethod
    def of(cls, model: Path | str) -> _PlainQuestions | None:
        try:
            asked = cls(load_renderer(model))
            asked.probe("Who are you?", "")
        except (ModelError, EngineError) as e:
            log.warning("general ability cannot be measured: %s", e)
            return None
        return asked

    def probe(self, question: str, about: str, answer: str | None = None) -> Probe:
        prompt = self.renderer.render([saying("user", question)], None)
        good = [] if answer is None else [*self.renderer.encode(answer), *self.renderer.stop_token_ids[:1]]
        return Probe(list(prompt.ids), good, prompt.hint_at, about)


def _rows(name: str) -> list[dict[str, Any]]:
    return json.loads(files("turnwise.training.gate").joinpath(name).read_text(encoding="utf-8"))


def _words(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())
