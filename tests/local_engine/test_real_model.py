"""The embedded model through the engine: recorded log-probs against transformers, at the sampling temperature."""

from __future__ import annotations

import concurrent.futures
import random
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from tests.local_engine.engine_process import complete, load_of, post, start_engine, stream
from tests.support.models import write_random_adapter
from tests.support.servers import wait_until

pytestmark = pytest.mark.slow

QUESTIONS = [
    "Tom has 12 apples and gives 5 away. How many are left?",
    "Write two sentences about the sea. 写一句关于大海的话。 🌊",
    "Explain what a prime number is.",
    "List three cities in France.",
]


def prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    return tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids


@torch.inference_mode()
def recomputed(model: torch.nn.Module, prompt: list[int], reply: list[int], temperature: float) -> torch.Tensor:
    """Log-probs of the reply's ids by one forward pass over prompt and reply."""
    logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(reply)[:, None])[:, 0]


Answers = list[tuple[list[int], list[int], list[float]]]
"""Per answer: prompt ids, sampled ids, recorded log-probs."""


def sampled(url: str, tokenizer: Tokenizer, model: str, temperature: float) -> Answers:
    """One answer per question, all at once, so that they are decoded as a batch."""
    prompts = [prompt(tokenizer, question) for question in QUESTIONS]
    fields = {"model": model, "temperature": temperature, "top_p": 0.95, "max_tokens": 48}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        choices = list(pool.map(lambda p: complete(url, p, **fields)["choices"][0], prompts))
    return [(p, c["token_ids"], c["logprobs"]["token_logprobs"]) for p, c in zip(prompts, choices, strict=True)]


def gaps_to(reference: torch.nn.Module, answers: Answers, temperature: float) -> torch.Tensor:
    """|recorded − recomputed| of each sampled token."""
    return torch.cat([(recomputed(reference, p, r, temperature) - torch.tensor(lp)).abs() for p, r, lp in answers])


@pytest.mark.parametrize(("adapted", "mean_limit", "limit"), [(False, 2e-5, 2e-4), (True, 5e-5, 5e-4)])
def test_recorded_log_probs_are_transformers(
    adapted: bool, mean_limit: float, limit: float, model_dir: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """In one number format only the order of additions is left."""
    reference = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    adapter = write_random_adapter(tmp_path / "adapter", model_dir, scale=0.01, seed=0)
    if adapted:
        reference.load_adapter(str(adapter))
    with start_engine(model_dir, tmp_path / "engine.log", "--dtype", "float32") as (url, _):
        if adapted:
            assert post(url, "/v1/load_lora_adapter", lora_name="a", lora_path=str(adapter)).status_code == 200
        answers = sampled(url, tokenizer, "a" if adapted else "base", 0.7)
    gaps = gaps_to(reference, answers, 0.7)
    print(f"float32 adapted={adapted}: mean {gaps.mean():.2e}, max {gaps.max():.2e}, {len(gaps)} tokens")
    assert gaps.mean() < mean_limit
    assert gaps.max() < limit


def test_bfloat16_is_no_rougher_than_transformers_own(model_dir: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Rounding to 8 bits depends on the processor's kernels and on the tokens, so no absolute limit would hold: the
    engine's distance from float32 is compared with that of transformers in bfloat16, on the same tokens."""
    exact = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    rough = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    with start_engine(model_dir, tmp_path / "engine.log", "--dtype", "bfloat16") as (url, _):
        answers = sampled(url, tokenizer, "base", 0.7)
    ours = gaps_to(exact, answers, 0.7)
    theirs = gaps_to(exact, [(p, r, recomputed(rough, p, r, 0.7).tolist()) for p, r, _ in answers], 0.7)
    print(f"bfloat16 from float32: engine {ours.mean():.4f}, transformers {theirs.mean():.4f}, {len(ours)} tokens")
    assert ours.mean() < 1.5 * theirs.mean()
    assert ours.mean() < 0.2, "and both are rounding, not another model"


def test_an_answer_ends_with_the_end_token(model_dir: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with start_engine(model_dir, tmp_path / "engine.log") as (url, _):
        choice = complete(url, prompt(tokenizer, "What is 2 + 2?"), max_tokens=300)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"], choice["token_ids"][-1]) == ("stop", None, 2)
    assert choice["text"] == tokenizer.decode(choice["token_ids"], skip_special_tokens=True)


def test_a_long_prompt_does_not_stall_a_stream_and_can_be_cancelled(model_dir: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    long = [rng.randrange(100, 40_000) for _ in range(3500)]
    with start_engine(model_dir, tmp_path / "engine.log") as (url, _), concurrent.futures.ThreadPoolExecutor(1) as pool:
        short = stream(url, long[:20], max_tokens=300, ignore_eos=True)
        next(short)
        pending = pool.submit(lambda: list(stream(url, long, max_tokens=1)))
        wait_until(lambda: load_of(url) == 2)
        for _ in range(8):  # tokens go on coming while the long prompt is computed
            next(short)
        assert not pending.done()
        short.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert len(pending.result(timeout=120)) == 1


def test_a_prompt_is_dropped_between_two_chunks_when_the_client_goes(model_dir: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    long = [rng.randrange(100, 40_000) for _ in range(4000)]
    with start_engine(model_dir, tmp_path / "engine.log") as (url, _):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json={"prompt": long, "max_tokens": 96}, timeout=0.5)
        wait_until(lambda: load_of(url) == 0, limit_s=20)
        # Some of the prompt was computed and is kept, but not all of it.
        again = complete(url, long[:3000], max_tokens=1)
        assert 0 < again["usage"]["prompt_tokens_details"]["cached_tokens"] < 2999
