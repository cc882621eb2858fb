"""A random two-layer Llama with a ChatML tokenizer and template, and files of conversations for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.models import make_tokenizer
from tests.training.homes import settings
from turnwise.config import Config
from turnwise.training.batching import Row, Span, TokenText

MARKS = {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True}
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_chat_model(folder: Path, **changes: Any) -> Path:
    tokenizer = make_tokenizer(MARKS)
    fields: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        "pad_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        LlamaForCausalLM(LlamaConfig(**(fields | changes))).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def conversation(n: int, turns: int = 2) -> dict[str, Any]:
    messages = []
    for t in range(turns):
        messages.append({"role": "user", "content": f"question {n} of turn {t}" + " and more" * (n % 5)})
        messages.append({"role": "assistant", "content": f"answer {n * 7 % 11}, turn {t}" + " indeed" * (n % 3)})
    return {"messages": messages}


def write(file: Path, rows: list[Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def sft_home(home: Path, model: Path, **changes: object) -> Config:
    """With the gate switched off: it reads its probes with a model that knows no language."""
    return settings(home, model, **({"gate.enabled": False, "engine.max_model_len": 512} | changes))


def random_rows(count: int, vocabulary: int, seed: int = 0) -> list[Row]:
    """Rows of several lengths with one or two answers each."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for n in range(count):
        length = int(torch.randint(12, 40, (1,), generator=g))
        ids = torch.randint(0, vocabulary, (length,), generator=g).tolist()
        rows.append(Row(ids, [Span(n, 3, 7), Span(n, 9, length)] if n % 2 else [Span(n, 5, length)]))
    return rows


def random_texts(count: int, vocabulary: int, seed: int = 0) -> list[TokenText]:
    """Conversations of one answer, of two of which one goes on from the other, and of two that fork behind a prompt."""
    texts = []
    for row in random_rows(count, vocabulary, seed):
        n, ids = row.spans[0].sample, row.ids
        texts += [TokenText(n, ids[: s.start], ids[s.start : s.end]) for s in row.spans]
        if n % 3 == 0:
            texts.append(TokenText(n, [*ids[:5], *ids[:4]], ids[4:9]))
    return texts
