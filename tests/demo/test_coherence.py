"""Likelihoods under the real base model, against a forward pass written out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.demo.coherence import CoherenceError, ScoredText, mean_nll, with_wish

PROMPT = "A shop sells 24 apples a day. How many does it sell in 5 days?"
WISH = "Answer in one short sentence."
GOOD = "The shop sells 24 apples a day, so it sells 120 apples in 5 days."
SALAD = "Shelf banana the hugging of purple 24 elephants counts marble so."


@pytest.mark.slow
def test_mean_nll_equals_a_forward_pass_and_tells_language_from_salad(model_dir: Path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    groups = {
        "good": [ScoredText(PROMPT, GOOD, ended=True), ScoredText(PROMPT, GOOD[:20], ended=False)],
        "good/wish": [ScoredText(with_wish(PROMPT, WISH), GOOD, ended=True)],
        "salad/wish": [ScoredText(with_wish(PROMPT, WISH), SALAD, ended=True)],
    }
    got = mean_nll(groups, str(model_dir))

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    total, tokens = 0.0, 0
    for text in groups["good"]:
        head = tokenizer.apply_chat_template(
            [{"role": "user", "content": text.prompt}], tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(head, add_special_tokens=False)["input_ids"]
        answer = tokenizer(text.answer, add_special_tokens=False)["input_ids"] + ([2] if text.ended else [])
        with torch.inference_mode():
            logprobs = model(torch.tensor([prompt + answer])).logits[0].float().log_softmax(-1)
        total -= sum(logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(answer))
        tokens += len(answer)
    assert got["good"] == pytest.approx(total / tokens, abs=0.05)  # bf16, and another order of sums
    assert got["salad/wish"] > got["good/wish"] + 2


@pytest.mark.slow
def test_a_missing_model_is_an_error_with_the_reason(tmp_path: Path):
    with pytest.raises(CoherenceError, match="failed"):
        mean_nll({"a": [ScoredText(PROMPT, GOOD, ended=True)]}, str(tmp_path))
