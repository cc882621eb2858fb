"""A model that sees and thinks: what it thought at a step stays in the prompts of later ones (OpenWebRL §4.2), where
its pictures do not. Agent, renderer, template and gateway are real; the engine says what the test has it say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running
from tests.support.tiny_qwen_vl import make_model
from tests.support.tiny_vision import png
from turnwise.config import load_config
from turnwise.engines.token_route import ROUTE
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, Instructions, Observation
from turnwise.messages import LEFT_OUT
from turnwise.pictures.layout import layout_of
from turnwise.pictures.patches import PatchLayout
from turnwise.types import MODEL_NAME

SIDE = 20
RED = png((200, 20, 20), SIDE, SIDE)
STEPS = 4


class Thinker:
    """A stand-in for a vLLM server: it puts placeholders in as that does, and thinks of the page that it saw."""

    def __init__(self, model: Path) -> None:
        layout = layout_of(model)
        assert isinstance(layout, PatchLayout)
        grid = layout.grid(SIDE, SIDE)
        self._of_a_picture = grid.rows * grid.columns
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._placeholder = self.tokenizer.token_to_id("<|image_pad|>")
        self.prompts: list[list[int]] = []
        self._steps = count()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [{"id": "base", "max_model_len": 4096}]}

        @app.post(ROUTE)
        async def generate(request: Request) -> StreamingResponse:
            once = (await request.json())["token_ids"]
            ids = [id for each in once for id in [each] * (self._of_a_picture if each == self._placeholder else 1)]
            self.prompts.append(ids)
            step = next(self._steps)
            text = f"saw page {step}\n</think>\n\nstep {step}"
            said = [
                *self.tokenizer.encode(text, add_special_tokens=False).ids,
                self.tokenizer.token_to_id("<|im_end|>"),
            ]
            choice = {"index": 0, "text": text, "token_ids": said, "finish_reason": "stop"}
            choice["logprobs"] = {"content": [{"logprob": -0.5} for _ in said]}
            event = {"prompt_token_ids": ids, "choices": [choice]}
            return StreamingResponse(iter([f"data: {json.dumps(event)}\n\n", "data: [DONE]\n\n"]))

        return app


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("thinks") / "model", thinks=True)


@pytest.fixture
def gateway(tmp_path: Path, model: Path) -> Iterator[tuple[str, str, Thinker]]:
    config = load_config(overrides={"home": tmp_path / "home", "server.port": 0, "model.path": str(model)})
    thinker = Thinker(model)
    with running(thinker.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        yield thread.url, (config.home / "token").read_text().strip(), thinker
        thread.stop()


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_thought_at_a_step_stays_in_the_prompts_of_later_ones(
    gateway: tuple[str, str, Thinker], keep: int
) -> None:
    url, token, thinker = gateway
    told = Instructions("Look.", ())
    actor = ModelActor(f"{url}/s/a/v1", token, MODEL_NAME, {}, told, lambda text: Action((), text), None, keep)
    for page in range(STEPS):
        action = actor.act(Observation(f"page {page}", images=(RED,)))
        assert action is not None and action.text == f"step {page}"
        assert actor.spent[page].thought.strip() == f"saw page {page}"
    assert len(thinker.prompts) == STEPS
    for step, ids in enumerate(thinker.prompts):
        shown = thinker.tokenizer.decode(ids, skip_special_tokens=False)
        assert shown.count(LEFT_OUT) == max(0, step + 1 - keep)
        for before in range(step):
            assert f"<think>\nsaw page {before}\n</think>\n\nstep {before}<|im_end|>" in shown
        assert shown.endswith("<|im_start|>assistant\n<think>\n")
        went_on = step and ids[: len(thinker.prompts[step - 1])] == thinker.prompts[step - 1]
        assert went_on == (0 < step < keep)
