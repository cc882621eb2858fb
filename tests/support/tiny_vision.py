"""A tiny vision-language model of a real architecture (Idefics3, which is SmolVLM's) with random weights.

It is made here, with its tokenizer, template and processor, so that nothing is fetched; what it says means nothing.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, PreTrainedTokenizerFast

TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""As SmolVLM's own folder has it."""
TILE, PATCH, SCALE = 32, 8, 2
LONGEST = 96
"""Pixels of a tile's edge and of a patch's, how many patches go into a token on each side, and a picture's longest."""
TOKENS = (TILE // PATCH) ** 2 // SCALE**2
MARKS = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
ROWS = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]


def make_model(
    folder: Path, *, dtype: torch.dtype = torch.float32, splits: bool = True, kind: str = "idefics3", heads: int = 4
) -> Path:
    """Write the model's folder: weights, configuration, tokenizer, template, and what its processor reads."""
    folder.mkdir(parents=True)
    tokenizer: Any = _tokenizer(folder)
    torch.manual_seed(7)
    config = Idefics3Config(
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=SCALE,
        tie_word_embeddings=True,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": TILE,
            "patch_size": PATCH,
        },
        text_config={
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 2,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "bos_token_id": tokenizer.convert_tokens_to_ids("<|im_start|>"),
            "eos_token_id": tokenizer.convert_tokens_to_ids("<end_of_utterance>"),
            "pad_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        },
    )
    model = Idefics3ForConditionalGeneration(config)
    with torch.no_grad():  # larger than at the start of a training, so that a picture changes what is said
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.mul_(6 if "vision_model" in name or "connector" in name else 4)
    model.save_pretrained(folder)
    _processor(folder, splits)
    return folder


def png(color: tuple[int, int, int], width: int = 40, height: int = 24, mark: int = 0) -> bytes:
    """A picture of one colour with a darker square in it, whose place is ``mark``."""
    image = Image.new("RGB", (width, height), color)
    image.paste((mark * 40 % 256, 30, 90), (mark % max(1, width - 8), 4, mark % max(1, width - 8) + 8, 12))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *MARKS, *ROWS]
    inner.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in specials])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_end|>"
    )
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return tokenizer


def _processor(folder: Path, splits: bool) -> None:
    pictures = {
        "image_processor_type": "Idefics3ImageProcessor",
        "processor_class": "Idefics3Processor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"longest_edge": LONGEST},
        "do_image_splitting": splits,
        "max_image_size": {"longest_edge": TILE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "do_pad": True,
        "resample": 1,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures), encoding="utf-8")
    words = {"processor_class": "Idefics3Processor", "image_seq_len": TOKENS}
    (folder / "processor_config.json").write_text(json.dumps(words), encoding="utf-8")
