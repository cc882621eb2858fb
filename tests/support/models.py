"""A tiny random model with the real tokenizer: everything but good sense, in milliseconds."""

from __future__ import annotations

import shutil
from pathlib import Path


def make_tiny_model(folder: Path, model_dir: Path) -> Path:
    """A two-layer Llama with SmolLM2's vocabulary and chat template, as a model folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=49152,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=4096,
                tie_word_embeddings=True,
                bos_token_id=1,
                eos_token_id=2,
                pad_token_id=2,
            )
        )
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(model_dir / name, folder / name)
    return folder


def write_random_adapter(folder: Path, model: Path, scale: float, seed: int, rank: int = 4) -> Path:
    """A PEFT directory with random weights, so that a version differs from the base without any training."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(model)
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(base, config)
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=scale)
    adapted.save_pretrained(folder)
    return folder
