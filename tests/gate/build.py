"""Updates of the real model: regressions by supervised steps on planted answers, honest ones by the real trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.gate.cases import HONEST, PLANTED, SET_ASIDE, TRAINED, WISHED
from turnwise.config import GateConfig, TrainConfig
from turnwise.messages import saying
from turnwise.tokens.rendering import load_renderer
from turnwise.training.batching import row_of
from turnwise.training.gate.figures import FIGURES
from turnwise.training.gate.gate import Gate
from turnwise.training.lessons.wished import NOTHING, Wished
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step, plan
from turnwise.types import Batch, Sample

CONFIG = TrainConfig(device="cpu", dtype="float32", lr=3e-4, epochs=3, minibatch=6, microbatch_tokens=512)
BATCH = 4
"""Turns of an honest update."""
PLANTING_STEPS = 5
PLANTING_LR = 1.5e-3


def no_tick(phase: str, done: int, total: int) -> None:
    """Never stops anything."""


class Workshop:
    """The model, the questions as prompts, and what the base model answered to them (`recorded.json`)."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self.policy = Policy(model, CONFIG)
        self._renderer = load_renderer(model)
        self.end = self.policy.ends[0]
        self.answers: dict[str, list[int]] = json.loads((Path(__file__).parent / "recorded.json").read_text())

    def prompt(self, question: str) -> tuple[list[int], int | None]:
        rendered = self._renderer.render([saying("user", question)], None)
        return list(rendered.ids), rendered.hint_at

    def encode(self, text: str) -> list[int]:
        return self.policy.tokenizer.encode(text, add_special_tokens=False).ids

    def sample(self, question: str, reward: float = 1.0, hint: str | None = None) -> Sample:
        ids, hint_at = self.prompt(question)
        return Sample(
            turn_id=question,
            session_id=question,
            prompt_ids=ids,
            response_ids=self.answers[question],
            logprobs=None,
            temperature=0.6,
            version=0,
            reward=reward,
            hint=hint,
            hint_at=hint_at,
        )

    def probes(self) -> list[Sample]:
        return [self.sample(q) for q in SET_ASIDE]

    def batch(self, name: str) -> Batch:
        """The turns of an honest update; a planted one pretends to be of scores alone."""
        wishes = HONEST.get(name, ())
        reward = -1.0 if wishes or name == "scolded" else 1.0
        return Batch(
            1,
            "token",
            0,
            [
                self.sample(q, reward, wishes[i % len(wishes)] if wishes else None)
                for i, q in enumerate(TRAINED[:BATCH])
            ],
        )

    def planted(self, name: str) -> dict[str, Tensor]:
        """Supervised steps on the planted answers, from the base model."""
        policy, ends = self.policy, not name.startswith("runaway")
        policy.load(None)
        rows = []
        for i, answer in enumerate(PLANTED[name]):
            ids = self.encode(answer) + ([self.end] if ends else [])
            rows.append(row_of(i, self.prompt(TRAINED[i])[0], ids))
        tokens = torch.tensor([t for row in rows for span in row.spans for t in row.ids[span.start : span.end]])
        optimizer = torch.optim.AdamW(policy.parameters(), lr=PLANTING_LR, betas=(0.9, 0.98))
        for _ in range(PLANTING_STEPS):
            optimizer.zero_grad()
            hidden = policy.hidden(rows)
            logp = policy.log_softmax(hidden, torch.ones(len(hidden)))
            loss = -logp.gather(-1, tokens.unsqueeze(-1)).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        print(name, "loss", round(loss.item(), 3), flush=True)
        return policy.state()

    def honest(self, name: str) -> dict[str, Tensor]:
        """The trainer's own update, from the base model."""
        policy, batch = self.policy, self.batch(name)
        policy.load(None)
        signals = compute_signals(policy, batch, CONFIG, no_tick)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=CONFIG.lr, betas=(0.9, 0.98))
        for chosen in plan(batch, CONFIG):
            metrics = optimiser_step(policy, optimizer, batch, signals, chosen, CONFIG, no_tick)
        print(name, {k: round(v, 3) for k, v in metrics.items()}, flush=True)
        return policy.state()

    def build(self, name: str) -> dict[str, Tensor]:
        return self.planted(name) if name in PLANTED else self.honest(name)

    def gate(self) -> Gate:
        """The gate as it ships."""
        return Gate(self.policy, self._model, CONFIG, GateConfig())

    def examine(self, gate: Gate, name: str, weights: dict[str, Tensor]) -> dict[str, Any]:
        """What the gate says of an update: ``alpha`` is the part of it that is published, 0 for none."""
        self.policy.load(weights)
        said, wished = Standing(), NOTHING
        if name in WISHED:
            wish, words = WISHED[name]
            shown = frozenset({*self.encode(words), *self.encode(f" {words}")})
            said, wished = Standing([wish]), Wished(shown)
        return gate.examine(None, self.batch(name), self.probes(), said, no_tick, wished)


def told(name: str, result: dict[str, Any]) -> str:
    """One line of the report: the part that passes, the figures, and what stood in the way."""
    figures = ", ".join(f"{f.name} {result[f.name]:.2f}" for f in FIGURES if result[f.name] is not None)
    why = (result.get("whole") or result)["reasons"]
    return f"{name}: alpha {result['alpha']:g}; {figures}" + "".join(f"\n    {reason}" for reason in why)
