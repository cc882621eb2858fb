"""A tiny Qwen3-VL with random weights: pictures of any grid, places of their own for rows and columns, and what deeper
blocks of the tower see.

It is made here, with its tokenizer, template and processor, so that nothing is fetched; what it says means nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

PATCH, MERGE = 4, 2
LEAST, MOST = 16 * 16, 64 * 64
"""Pixels of a patch's edge, patches of a token's edge, and how many pixels a picture is scaled to."""
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
WORDS = ["<|video_pad|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
TEMPLATE = """
{%- macro said(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- else -%}
    {%- for part in content -%}
      {%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- set told = messages and messages[0].role == 'system' -%}
{%- if tools -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if told -%}{{- said(messages[0].content) + '\\n\\n' -}}{%- endif -%}
  {{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n" -}}
  {{- "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>" -}}
  {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
  {{- "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within " -}}
  {{- "<tool_call></tool_call> XML tags:\\n<tool_call>\\n" -}}
  {{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' -}}
{%- elif told -%}
  {{- '<|im_start|>system\\n' + said(messages[0].content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {{- '<|im_start|>user\\n' + said(message.content) + '<|im_end|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' + said(message.content) -}}
    {%- for call in message.tool_calls or [] -%}
      {%- if (loop.first and message.content) or not loop.first -%}{{- '\\n' -}}{%- endif -%}
      {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
      {%- if call.function.arguments is string -%}{{- call.function.arguments -}}
      {%- else -%}{{- call.function.arguments | tojson -}}{%- endif -%}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
    {{- '\\n<tool_response>\\n' + said(message.content) + '\\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""Writes what the template of Qwen3-VL's instruct models writes."""
THINKING = (
    TEMPLATE.replace(
        "{%- set told =",
        "{%- set last = namespace(asked=-1) -%}{%- for message in messages -%}"
        "{%- if message.role == 'user' -%}{%- set last.asked = loop.index0 -%}{%- endif -%}{%- endfor -%}"
        "{%- set told =",
    )
    .replace(
        "{{- '<|im_start|>assistant\\n' + said(message.content) -}}",
        "{%- set thought = (message.reasoning_content or '').strip('\\n') -%}{{- '<|im_start|>assistant\\n' -}}"
        "{%- if loop.index0 > last.asked and (loop.last or thought) -%}"
        "{{- '<think>\\n' + thought + '\\n</think>\\n\\n' + said(message.content).lstrip('\\n') -}}"
        "{%- else -%}{{- said(message.content) -}}{%- endif -%}",
    )
    .replace(
        "{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n",
        "{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}\n",
    )
)
"""The same of its thinking models."""


def make_model(folder: Path, *, tied: bool = True, layers: int = 3, head_dim: int = 16, thinks: bool = False) -> Path:
    """Write the model's folder: weights, configuration, tokenizer, template, and what its processor reads."""
    folder.mkdir(parents=True)
    tokenizer: Any = _tokenizer(folder, THINKING if thinks else TEMPLATE)
    torch.manual_seed(7)
    id_of = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        image_token_id=id_of("<|image_pad|>"),
        video_token_id=id_of("<|video_pad|>"),
        vision_start_token_id=id_of("<|vision_start|>"),
        vision_end_token_id=id_of("<|vision_end|>"),
        tie_word_embeddings=tied,
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        text_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": head_dim,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000.0,
                "mrope_section": [head_dim // 4, head_dim // 8, head_dim // 8],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": tied,
            "bos_token_id": id_of("<|endoftext|>"),
            "eos_token_id": id_of("<|im_end|>"),
            "pad_token_id": id_of("<|endoftext|>"),
        },
    )
    model = Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():  # larger than at the start of a training, so that a picture changes what is said
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.mul_(6 if ".visual." in name else 4)
    model.save_pretrained(folder)
    _processor(folder)
    return folder


def _tokenizer(folder: Path, template: str) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    inner.add_tokens([AddedToken(token, normalized=False, special=False) for token in WORDS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_start_token": "<|vision_start|>",
            "vision_end_token": "<|vision_end|>",
        },
    )
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template.strip(), encoding="utf-8")
    return tokenizer


def _processor(folder: Path) -> None:
    pictures = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": LEAST, "longest_edge": MOST},
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures), encoding="utf-8")
