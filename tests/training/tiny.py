"""A random two-layer Llama with a byte tokenizer: the real classes at a size where a step takes milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from turnwise.config import TrainConfig
from turnwise.training.policy import Policy
from turnwise.types import Batch, Sample

VOCABULARY = 260


def make_model(folder: Path) -> Path:
    """Write the model; its weights are large enough that contexts matter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.25,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=257,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def ids(seed: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (length,), generator=generator).tolist()


def sample(n: int, **changes: Any) -> Sample:
    """A scored turn with a hint; ``n`` sets its ids, its length and its name."""
    prompt = ids(2 * n, 9 + n % 4)
    fields: dict[str, Any] = {
        "turn_id": f"turn-{n}",
        "session_id": f"session-{n}",
        "prompt_ids": prompt,
        "response_ids": ids(2 * n + 1, 5 + n % 3),
        "logprobs": None,
        "temperature": 0.8,
        "version": 0,
        "reward": 1.0 if n % 2 else -1.0,
        "hint": f"shorter, please ({n})",
        "hint_at": len(prompt) - 2,
    }
    return Sample(**(fields | changes))


def batch(samples: list[Sample], **changes: Any) -> Batch:
    fields: dict[str, Any] = {"id": 1, "lease_token": "token", "parent": 0, "samples": samples}
    return Batch(**(fields | changes))


DEVICE = os.environ.get("TURNWISE_TEST_DEVICE", "cpu")
"""Where the tests of training compute: `cuda` on a machine that has one."""
SETTINGS: dict[str, Any] = {
    "lr": 3e-3,
    "teacher": "policy",
    "lora_rank": 4,
    "lora_alpha": 8,
    "min_batch": 1,
    "microbatch_tokens": 256,
    "device": DEVICE,
    "dtype": "float32",
}


def train_config(**changes: Any) -> TrainConfig:
    return TrainConfig(**(SETTINGS | changes))


def no_tick(phase: str, done: int, total: int) -> None:
    """Never stops anything."""


def shake(policy: Policy, seed: int = 3, size: float = 0.05) -> dict[str, Tensor]:
    """Begin at weights that are not the base model's, which would hide a mix-up of both."""
    generator = torch.Generator().manual_seed(seed)
    state = {n: t + size * torch.randn(t.shape, generator=generator) for n, t in policy.state().items()}
    policy.start_from(state)
    return state


def plain_model(folder: Path, adapter: dict[str, Tensor] | None, config: TrainConfig) -> PreTrainedModel:
    """The Hugging Face model in float32, with what was trained (if anything) put into its weights by hand.

    Of an adapter that is W + α/r · B A.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter and config.weights == "full":
        for name, parameter in model.named_parameters():
            parameter.data.copy_(adapter[name])
        return model
    for name, a in (adapter or {}).items():
        if ".lora_A." in name:
            b = (adapter or {})[name.replace(".lora_A.", ".lora_B.")]
            layer = model.get_submodule(name.removeprefix("base_model.model.").split(".lora_A.")[0])
            layer.weight.data += config.lora_alpha / config.lora_rank * (b @ a)
    return model


def by_the_model(model: PreTrainedModel, prompt: list[int], response: list[int], temperature: float) -> Tensor:
    """The plain way to the response's log-probs [R]: the whole sequence through the model, alone and unpadded."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0] / temperature
    table = logits.log_softmax(-1)
    return torch.stack([table[len(prompt) - 1 + k, y] for k, y in enumerate(response)])


def watch_base(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that has something in it while the policy is the base model."""
    within: list[bool] = []
    reference = policy.reference

    @contextmanager
    def as_base() -> Iterator[None]:
        within.append(True)
        with reference():
            yield
        within.pop()

    monkeypatch.setattr(policy, "reference", as_base)
    return within
