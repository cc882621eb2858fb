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

from tests.engines.engine_process import complete, load_of, post, start_engine, stream
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


@pytest.mark.parametrize(
    ("dtype", "adapted", "mean_limit", "limit"),
    [("float32", False, 2e-5, 2e-4), ("float32", True, 5e-5, 5e-4), ("bfloat16", False, 0.05, 0.6)],
)
def test_recorded_log_probs_are_transformers(
    dtype: str,
    adapted: bool,
    mean_limit: float,
    limit: float,
    model_dir: Path,
    tokenizer: Tokenizer,
    tmp_path: Path,
    record_property: pytest.RecordProperty,
) -> None:
    temperature = 0.7
    reference = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype)).eval()
    adapter = write_random_adapter(tmp_path / "adapter", model_dir, scale=0.01, seed=0)
    if adapted:
        reference.load_adapter(str(adapter))
    with start_engine(model_dir, tmp_path / "engine.log", "--dtype", dtype) as (url, _):
        if adapted:
            assert post(url, "/v1/load_lora_adapter", lora_name="a", lora_path=str(adapter)).status_code == 200
        prompts = [prompt(tokenizer, q) for q in QUESTIONS]
        fields = {"model": "a" if adapted else "base", "temperature": temperature, "top_p": 0.95, "max_tokens": 48}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda p: complete(url, p, **fields)["choices"][0], prompts))
    gaps = torch.cat(
        [
            (
                recomputed(reference, p, a["token_ids"], temperature) - torch.tensor(a["logprobs"]["token_logprobs"])
            ).abs()
            for p, a in zip(prompts, answers, strict=True)
        ]
    )
    record_property("mean", gaps.mean().item())
    record_property("max", gaps.max().item())
    print(f"{dtype} adapted={adapted}: mean {gaps.mean():.2e}, max {gaps.max():.2e}, {len(gaps)} tokens")
    assert gaps.mean() < mean_limit
    assert gaps.max() < limit


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
