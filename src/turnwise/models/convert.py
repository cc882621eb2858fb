"""Makes a transformers model folder of a GGUF file: a program of its own, whose memory leaves with it.

The numbers are those of the `gguf` package's own dequantiser (llama.cpp's, MIT), which transformers uses as well. Its
loader is left aside since it keeps some kinds of tensors packed, which is exact and a hundred times as slow.
`python -m turnwise.models.convert NAME GGUF FOLDER` reads the table for what else there is to know.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from turnwise.models.table import TABLE, EmbeddedModel

_PLACES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Modules of a block by what GGUF calls them."""

_PAIRED_HEADS = frozenset({"llama"})
"""Architectures whose query and key rows llama.cpp interleaves for its rotation."""


def converted_name(tensor: str, embedding: str) -> str | None:
    """What transformers calls a tensor; None for a copy of the embedding that is not wanted."""
    if tensor == embedding:
        return "model.embed_tokens.weight"
    if tensor == "output_norm.weight":
        return "model.norm.weight"
    if tensor in ("token_embd.weight", "output.weight"):
        return None
    block, number, place, kind = tensor.split(".")
    assert block == "blk", tensor
    return f"model.layers.{number}.{_PLACES[place]}.{kind}"


def unpaired(rows: Any, heads: int) -> Any:
    """Rows of a projection in transformers' order, from llama.cpp's, where the halves of each head alternate."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def convert(model: EmbeddedModel, source: Path, folder: Path) -> None:
    """Write weights, configuration, tokenizer and chat template of ``source`` to ``folder``."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.ggml.t")}
    _write_weights(model, reader, facts, folder)
    _write_tokenizer(model, source, folder)
    _write_configuration(model, facts, _vocabulary(reader), folder)


def _write_weights(model: EmbeddedModel, reader: Any, facts: dict[str, Any], folder: Path) -> None:
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file

    architecture = facts["general.architecture"]
    heads = {
        "attn_q": facts[f"{architecture}.attention.head_count"],
        "attn_k": facts[f"{architecture}.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        name = converted_name(tensor.name, model.embedding)
        if name is None:
            continue
        numbers = dequantize(tensor.data, tensor.tensor_type)
        place = tensor.name.split(".")[-2]
        if architecture in _PAIRED_HEADS and place in heads:
            numbers = unpaired(numbers, heads[place])
        tensors[name] = torch.tensor(numbers, dtype=getattr(torch, model.dtype))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def _write_tokenizer(model: EmbeddedModel, source: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.model_max_length = model.context
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    words = told["model"]["vocab"]
    unused = [word for word, number in words.items() if word == f"[PAD{number}]"]
    if not unused:
        return
    # Rows of the embedding that no token has: the published tokenizer knows nothing of them, and normalises to NFC,
    # of which a GGUF has no record.
    for word in unused:
        del words[word]
    told["normalizer"] = told["normalizer"] or {"type": "NFC"}
    path.write_text(json.dumps(told, ensure_ascii=False, indent=2), encoding="utf-8")


def _vocabulary(reader: Any) -> list[str]:
    return reader.fields["tokenizer.ggml.tokens"].contents()


def _write_configuration(model: EmbeddedModel, facts: dict[str, Any], words: list[str], folder: Path) -> None:
    from transformers import AutoConfig, GenerationConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    architecture = facts["general.architecture"]
    given: dict[str, Any] = {
        fact: facts[f"{architecture}.{key}"]
        for fact, key in (
            ("hidden_size", "embedding_length"),
            ("intermediate_size", "feed_forward_length"),
            ("num_hidden_layers", "block_count"),
            ("num_attention_heads", "attention.head_count"),
            ("num_key_value_heads", "attention.head_count_kv"),
            ("max_position_embeddings", "context_length"),
            ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
        )
    }
    given["rms_norm_eps"] = float(f"{given['rms_norm_eps']:.6g}")  # written down in float32: 9.99999997e-07
    rope = {"rope_type": "default", "rope_theta": facts[f"{architecture}.rope.freq_base"]}
    marks = {
        f"{mark}_token_id": facts.get(f"tokenizer.ggml.{name}_token_id")
        for mark, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    config = AutoConfig.for_model(
        architecture,
        **given,
        **marks,
        rope_parameters=rope,
        vocab_size=len(words),
        tie_word_embeddings=True,
        architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[architecture]],
        dtype=model.dtype,
    )
    config.save_pretrained(folder)
    ends = [words.index(word) for word in model.ends]
    marks["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    GenerationConfig(**marks).save_pretrained(folder)


if __name__ == "__main__":
    convert(TABLE[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
