"""The same promises on SmolLM2: its log-probs, and that a hint moves its answers the right way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from turnwise.config import TrainConfig
from turnwise.messages import saying
from turnwise.tokens.rendering import load_renderer
from turnwise.training.batching import row_of
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.types import Batch, Sample

pytestmark = pytest.mark.slow

QUESTION = "Mia has 3 bags with 4 apples each and eats 2 apples. How many apples are left?"
ANSWER = "There are 7 apples."


def turn(model_dir: Path, tokenizer: Tokenizer, answer: str, **changes: object) -> Sample:
    prompt = load_renderer(model_dir).render([saying("user", QUESTION)], None)
    ids = tokenizer.encode(answer, add_special_tokens=False).ids
    fields = {"turn_id": answer, "session_id": answer, "logprobs": None, "temperature": 0.7, "version": 0}
    fields |= {"prompt_ids": prompt.ids, "response_ids": ids, "reward": 0.0, "hint": None, "hint_at": prompt.hint_at}
    return Sample(**(fields | changes))


def test_logprobs_equal_the_plain_models(model_dir: Path, tokenizer: Tokenizer) -> None:
    one = turn(model_dir, tokenizer, ANSWER)
    policy = Policy(model_dir, TrainConfig(device="cpu", dtype="float32"))
    with torch.no_grad():
        hidden = policy.hidden([row_of(0, one.prompt_ids, one.response_ids)])
        plain = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
        logits = plain(input_ids=torch.tensor([one.prompt_ids + one.response_ids])).logits[0]
    tokens = torch.tensor(one.response_ids)
    got = policy.token_logprobs(hidden, torch.full(tokens.shape, 0.7), tokens)
    table = (logits / 0.7).log_softmax(-1)[len(one.prompt_ids) - 1 : -1]
    assert torch.allclose(got, table.gather(-1, tokens.unsqueeze(-1)).squeeze(-1), atol=1e-3)


@pytest.mark.parametrize("estimator", ["exact", "topk"])
@pytest.mark.parametrize(("hint", "sign"), [("There are 7 apples.", 1), ("She has 10 apples left.", -1)])
def test_a_hint_moves_the_answer_towards_what_it_asks_for(
    model_dir: Path, tokenizer: Tokenizer, estimator: str, hint: str, sign: int
) -> None:
    config = TrainConfig(
        method="opd", estimator=estimator, lr=2e-4, device="cpu", microbatch_tokens=256, dtype="float32"
    )
    policy = Policy(model_dir, config)
    one = turn(model_dir, tokenizer, ANSWER, hint=f"Say exactly this: {hint}")
    batch = Batch(1, "token", 0, [one])

    def no_tick(phase: str, done: int, total: int) -> None: ...

    (before,) = compute_signals(policy, batch, config, no_tick)
    assert before.teacher is not None
    teacher = policy.token_logprobs(before.teacher, before.temperature, before.tokens)
    assert (teacher - before.old).sum().item() * sign > 1, "the hinted model must have an opinion"
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr)
    for _ in range(3):
        optimiser_step(policy, optimizer, batch, [before], [0], config, no_tick)
    (after,) = compute_signals(policy, batch, config, no_tick)
    assert (after.old - before.old).sum().item() * sign > 0
