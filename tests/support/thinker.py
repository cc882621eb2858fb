"""A gateway before a model that sees and thinks: renderer and template are real, what it thinks a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running
from tests.support.tiny_qwen_vl import make_model
from turnwise.config import Config, load_config
from turnwise.engines.token_route import ROUTE
from turnwise.pictures.layout import layout_of
from turnwise.pictures.patches import PatchLayout


class Thinker:
    """A stand-in for a vLLM server: it puts placeholders in as that does, for pictures of the size ``shown``, and
    ``says`` what it thinks at each step, and does."""

    def __init__(self, model: Path, shown: tuple[int, int]) -> None:
        layout = layout_of(model)
        assert isinstance(layout, PatchLayout)
        grid = layout.grid(*shown)
        self._of_a_picture = grid.rows * grid.columns
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._placeholder = self.tokenizer.token_to_id("<|image_pad|>")
        self.prompts: list[list[int]] = []
        self._steps = count()
        self.says: Callable[[int], str] = lambda step: f"saw page {step}\n</think>\n\nstep {step}"

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        async def health() -> None:
            return None

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [{"id": "base", "max_model_len": 4096}]}

        @app.post(ROUTE)
        async def generate(request: Request) -> StreamingResponse:
            once = (await request.json())["token_ids"]
            ids = [id for each in once for id in [each] * (self._of_a_picture if each == self._placeholder else 1)]
            self.prompts.append(ids)
            step = next(self._steps)
            text = self.says(step)
            said = [
                *self.tokenizer.encode(text, add_special_tokens=False).ids,
                self.tokenizer.token_to_id("<|im_end|>"),
            ]
            choice = {"index": 0, "text": text, "token_ids": said, "finish_reason": "stop"}
            choice["logprobs"] = {"content": [{"logprob": -0.5} for _ in said]}
            event = {"prompt_token_ids": ids, "choices": [choice]}
            return StreamingResponse(iter([f"data: {json.dumps(event)}\n\n", "data: [DONE]\n\n"]))

        return app

    def prompt(self, step: int) -> str:
        """What it was asked with, in words."""
        return self.tokenizer.decode(self.prompts[step], skip_special_tokens=False)


@dataclass(frozen=True)
class Thinking:
    """A gateway and who thinks behind it."""

    url: str
    token: str
    config: Config
    thinker: Thinker


@contextmanager
def thinking_gateway(root: Path, shown: tuple[int, int]) -> Iterator[Thinking]:
    """Serves it in this folder, for pictures of this size in pixels."""
    model = make_model(root / "model", thinks=True)
    config = load_config(overrides={"home": root / "home", "server.port": 0, "model.path": str(model)})
    thinker = Thinker(model, shown)
    with running(thinker.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        try:
            yield Thinking(thread.url, (config.home / "token").read_text().strip(), config, thinker)
        finally:
            thread.stop()
