"""A model folder of a few kilobytes, with a real tokenizer, and a real server that gives states for its tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordLevelTrainer

from turnwise.judges.signals.prompt import BEFORE_ACTION, BEFORE_REPLY, BEFORE_TASK, QUESTION

MARKS = ["[UNK]", "[BOS]", "<|im_start|>", "<|im_end|>"]
WIDTH = 12


def small_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A token for each word and each run of signs; one in front of every text that asks for special tokens."""
    tokenizer = Tokenizer(WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    ours = [BEFORE_TASK, BEFORE_ACTION, BEFORE_REPLY, QUESTION, *MARKS]
    tokenizer.train_from_iterator([*ours, *texts], WordLevelTrainer(special_tokens=MARKS))
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    return tokenizer


def small_model(folder: Path, texts: Iterable[str], layers: int = 30) -> Path:
    """A folder that is taken for a model's."""
    folder.mkdir(parents=True)
    small_tokenizer(texts).save(str(folder / "tokenizer.json"))
    config = {"model_type": "llama", "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"w": np.zeros(3, np.float32)}, folder / "model.safetensors")
    return folder


def states(ids: Sequence[int], spans: Sequence[tuple[int, int]], layers: Sequence[int]) -> np.ndarray:
    """[L, 1 + S, WIDTH]: the last token's state, and the mean over each span, of vectors drawn for token and layer."""
    found = []
    for layer in layers:
        each = np.stack([np.random.default_rng([layer, token]).standard_normal(WIDTH) for token in ids])
        found.append(np.stack([each.mean(0), *(each[begin:end].mean(0) for begin, end in spans)]))
    return np.stack(found).astype(np.float32)


class Pooling:
    """`POST /pooling` as the local engine has it. ``busy``: how many requests are refused for the moment first."""

    def __init__(self, busy: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = busy

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/pooling", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        asked = await request.json()
        self.bodies.append(asked)
        self.headers.append(dict(request.headers))
        if self.busy:
            self.busy -= 1
            return JSONResponse({"error": {"message": "busy"}}, 503)
        found = states(asked["input"], asked["spans"], asked["layers"])
        return JSONResponse({"data": [{"data": found.reshape(-1).tolist()}]})
