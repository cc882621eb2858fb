"""Honest updates as `turnwise serve` makes them: shipped settings, lessons and gate, on the model's own answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.gate.build import no_tick
from tests.gate.cases import HONEST, SET_ASIDE, TRAINED
from turnwise.config import Config
from turnwise.messages import saying
from turnwise.tokens.rendering import load_renderer
from turnwise.training.asking import sample_answers
from turnwise.training.policy import Policy
from turnwise.training.update import Candidate, Trainer
from turnwise.types import Batch, Sample

TEMPERATURE = 0.6
LONGEST = 128


class Shipped:
    """A trainer whose settings are the defaults, and turns of the base model: what was sampled, with its log-probs."""

    def __init__(self, model: Path, home: Path) -> None:
        self.config = Config(home=home, model={"path": str(model)})  # type: ignore[arg-type]
        self.trainer = Trainer(self.config, model)
        policy: Policy = self.trainer.backend.policy  # type: ignore[attr-defined]
        renderer, questions = load_renderer(model), (*TRAINED, *SET_ASIDE)
        prompts = [renderer.render([saying("user", question)], None) for question in questions]
        given = sample_answers(policy, [p.ids for p in prompts], LONGEST, 0, temperature=TEMPERATURE)
        assert given is not None
        self.turns = {
            question: Sample(
                turn_id=question,
                session_id=question,
                prompt_ids=list(prompt.ids),
                response_ids=answer.ids,
                logprobs=answer.logprobs,
                temperature=TEMPERATURE,
                version=0,
                reward=1.0,
                hint=None,
                hint_at=prompt.hint_at,
                question=question,
            )
            for question, prompt, answer in zip(questions, prompts, given, strict=True)
        }

    def batch(self, name: str) -> Batch:
        """The six turns of an honest update, each with one of its wishes, which a batch comes with once more."""
        wishes, turns = HONEST[name], [self.turns[question] for question in TRAINED]
        reward = -1.0 if wishes or name == "scolded" else 1.0
        hints = [wishes[i % len(wishes)] for i in range(len(turns))] if wishes else []
        samples = [
            replace(turn, reward=reward, hint=hint)
            for turn, hint in zip(turns, hints or [None] * len(turns), strict=True)
        ]
        return Batch(1, "token", 0, samples, hints, [s.turn_id for s in samples if hints], samples if hints else [])

    def update(self, name: str) -> Candidate:
        return self.trainer.train(self.batch(name), [self.turns[question] for question in SET_ASIDE], no_tick)
