"""Penalties and min-p: what they do to the logits, and that recorded log-probs are of what was sampled from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.local_engine.engine_process import complete, start_engine
from tests.training.tiny import ids, make_model
from turnwise.local_engine.penalties import penalised
from turnwise.local_engine.requests import RequestParams
from turnwise.local_engine.sampling import sample

LOGITS = torch.tensor([[2.0, 1.0, -1.0, -2.0]])
PROMPT, ANSWER = [0, 2], [1, 1, 3]


def bent(**params: Any) -> list[float]:
    """The logits after an answer of 1, 1, 3 to a prompt of 0, 2."""
    return penalised(LOGITS, [RequestParams(1, **params)], [([*PROMPT, *ANSWER], len(PROMPT))])[0].tolist()


def test_the_frequency_penalty_counts_each_time_in_the_answer() -> None:
    assert bent(frequency_penalty=0.5) == [2.0, 0.0, -1.0, -2.5]


def test_the_presence_penalty_counts_once() -> None:
    assert bent(presence_penalty=0.5) == [2.0, 0.5, -1.0, -2.5]


def test_the_repetition_penalty_scales_what_stands_in_prompt_or_answer() -> None:
    assert bent(repetition_penalty=2.0) == [1.0, 0.5, -2.0, -4.0]


def test_no_penalty_that_is_taken_leaves_the_numbers() -> None:
    logits = torch.tensor([[1e5, -1e5, 0.0, 1.0]])
    bent = penalised(logits, [RequestParams(1, repetition_penalty=p) for p in (0.01,)], [([0, 1, 2, 3], 2)])
    assert torch.isfinite(torch.log_softmax(bent / 0.01, dim=-1).amax())


def test_nothing_is_penalised_before_the_first_token_of_an_answer() -> None:
    params = RequestParams(1, frequency_penalty=1.0, presence_penalty=1.0)
    assert torch.equal(penalised(LOGITS, [params], [(PROMPT, 2)]), LOGITS)


def test_the_other_rows_stay_as_they_are() -> None:
    both = LOGITS.repeat(2, 1)
    settings = [RequestParams(1), RequestParams(1, presence_penalty=1.0)]
    changed = penalised(both, settings, [([0, 1], 1)] * 2)
    assert torch.equal(changed[0], LOGITS[0])
    assert changed[1].tolist() == [2.0, 0.0, -1.0, -2.0]
    assert torch.equal(both, LOGITS.repeat(2, 1)), "the engine's own logits are not changed"


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    # The probabilities are 0.694, 0.255, 0.035, 0.013: relative to the first 1, 0.37, 0.05, 0.018.
    def chosen(**params: Any) -> set[int]:
        grid = ((i + 0.5) / 1000 for i in range(1000))
        return {sample(LOGITS, [RequestParams(1, **params)], [u])[0][0] for u in grid}

    assert chosen(min_p=0.4) == {0}
    assert chosen(min_p=0.3) == {0, 1}
    assert chosen(min_p=0.04) == {0, 1, 2}
    assert chosen(min_p=1.0) == {0}
    assert chosen(min_p=0.3, top_p=0.7) == {0}, "of what min-p leaves, 0.73 belongs to the first"
    assert chosen(min_p=0.01, top_k=3) == {0, 1, 2}


def test_min_p_leaves_the_log_prob_as_it_is_like_the_other_cuts() -> None:
    cut, whole = (sample(LOGITS, [RequestParams(1, min_p=p)], [0.1]) for p in (0.3, 0.0))
    assert cut == whole


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-mb", "16")
    with start_engine(model, tmp_path_factory.mktemp("log") / "engine.log", *options) as (url, _):
        yield url


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    "penalties",
    [
        {"frequency_penalty": 0.7},
        {"presence_penalty": -1.5},
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 0.3, "presence_penalty": 0.4, "repetition_penalty": 0.8, "min_p": 0.02, "top_p": 0.9},
    ],
    ids=lambda given: "+".join(given),
)
def test_the_recorded_log_probs_are_of_the_penalised_distribution(
    url: str, model: Path, temperature: float, penalties: dict[str, float]
) -> None:
    prompt = ids(4, 20)
    fields = {"max_tokens": 40, "ignore_eos": True, "temperature": temperature, "seed": 5}
    (choice,) = complete(url, prompt, **fields, **penalties)["choices"]
    answer = choice["token_ids"]
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + answer])).logits[0]
    expected = []
    for k, token in enumerate(answer):
        row = by_hand(logits[len(prompt) - 1 + k], prompt, answer[:k], penalties)
        expected.append(torch.log_softmax(row / (temperature or 1.0), -1)[token].item())
        assert temperature or row.argmax().item() == token, "greedy takes the likeliest after the penalties"
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=2e-4)
    assert answer != complete(url, prompt, **fields)["choices"][0]["token_ids"], "they change what is said"


def by_hand(row: torch.Tensor, prompt: list[int], answer: list[int], given: dict[str, float]) -> torch.Tensor:
    """One token's logits after the other, as vLLM's documentation says it."""
    row, factor = row.clone(), given.get("repetition_penalty", 1.0)
    for token in {*prompt, *answer}:
        row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
    for token, times in Counter(answer).items():
        row[token] -= given.get("frequency_penalty", 0.0) * times + given.get("presence_penalty", 0.0)
    return row
