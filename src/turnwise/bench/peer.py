"""The peer of the engine bench, in a process of its own: `transformers.generate` on the same model and prompts.

`python -m turnwise.bench.peer MODEL --adapter DIR --dtype NAME` prints tokens/s in that number format as JSON, and
leaves a random adapter in DIR, with which the engine's speed under an adapter is measured.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from turnwise.bench.engine_speed import LONG_PROMPT
from turnwise.models.number_format import processor_format

PROMPT_TOKENS = 120
NEW_TOKENS = 96


def generate_speed(model: torch.nn.Module, count: int) -> float:
    """Tokens per second of one batch of `count` random prompts, each to exactly NEW_TOKENS."""
    return count * NEW_TOKENS / _seconds(model, count, PROMPT_TOKENS, NEW_TOKENS)


def reading_speed(model: torch.nn.Module) -> float:
    """Tokens per second of one long prompt until the first new token is there."""
    return LONG_PROMPT / _seconds(model, 1, LONG_PROMPT, 1)


def _seconds(model: torch.nn.Module, count: int, prompt: int, new: int) -> float:
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(100, 32_000, (count, prompt), generator=generator)
    started = time.perf_counter()
    with torch.inference_mode():
        model.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            min_new_tokens=new,
            max_new_tokens=new,
        )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", required=True)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=processor_format(args.dtype))
    generate_speed(model, 1)
    speeds = {str(n): max(generate_speed(model, n) for _ in range(args.repeats)) for n in (1, 8)}
    speeds["reading"] = max(reading_speed(model) for _ in range(args.repeats))
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(args.adapter)
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
