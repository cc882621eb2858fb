"""Tiny models made on the spot: everything but good sense, in milliseconds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

QWEN3_TOKENS = {
    "<|endoftext|>": True,
    "<|im_start|>": True,
    "<|im_end|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
    "<tool_response>": False,
    "</tool_response>": False,
    "<think>": False,
    "</think>": False,
}
"""Qwen3's added tokens that a text model meets, and whether each is special (left out when text is shown)."""

_QWEN3_TEMPLATE = r"""
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' + (system + '\n\n' if system is not none else '') + header -}}
  {%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
  {{- footer + '<|im_end|>\n' -}}
{%- elif system is not none -%}
  {{- '<|im_start|>system\n' + system + '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'user' or (m.role == 'system' and not loop.first) -%}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
  {%- elif m.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' + m.content -}}
    {%- for c in m.tool_calls or [] -%}
      {{- '\n' if m.content or not loop.first -}}
      {%- set given = c.function.arguments -%}
      {{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' -}}
      {{- (given if given is string else given | tojson) + '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif m.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' -}}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}
    {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {{- '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false -}}
{%- endif -%}
"""


def make_tokenizer(marks: dict[str, bool], texts: Sequence[str] = ()) -> Tokenizer:
    """A small byte-level tokenizer with a family's marks; each is said to be special or not."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [*texts, Path(__file__).read_text(encoding="utf-8")] * 2
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_tokens([AddedToken(t, special=special, normalized=False) for t, special in marks.items()])
    return tokenizer


def make_qwen3(folder: Path) -> Path:
    """A folder with a small byte-level tokenizer that has Qwen3's marks, and a template that writes as Qwen3's does.

    It has no weights: only an engine would read them.
    """
    from renderers import qwen3
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(QWEN3_TOKENS, [qwen3._TOOLS_HEADER, qwen3._TOOLS_FOOTER]).save(str(folder / "tokenizer.json"))
    words = {"header": qwen3._TOOLS_HEADER, "footer": qwen3._TOOLS_FOOTER}
    template = "".join(f"{{%- set {name} = {json.dumps(text)} -%}}" for name, text in words.items()) + _QWEN3_TEMPLATE
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 40960,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({}, folder / "model.safetensors")
    return folder


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
