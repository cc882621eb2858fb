"""A request whose logits are no numbers ends alone: the others of its pass go on.

No penalty that the engine takes leads there any more, so the logits are spoilt here, for one request.
"""

from __future__ import annotations

import queue
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.tiny import make_model
from turnwise.local_engine import scheduler as module
from turnwise.local_engine.model.load import load
from turnwise.local_engine.penalties import penalised
from turnwise.local_engine.registry import WeightsRegistry
from turnwise.local_engine.requests import Finish, Output, Request, RequestParams
from turnwise.local_engine.scheduler import Scheduler
from turnwise.local_engine.text import TextStream

SPOILT = 0.5
"""The presence penalty that marks the request that is spoilt."""


def spoil(logits: Tensor, params: list[RequestParams], histories: list[tuple[list[int], int]]) -> Tensor:
    logits = penalised(logits, params, histories)
    for row, each in zip(logits, params, strict=True):
        row += float("inf") if each.presence_penalty == SPOILT else 0.0
    return logits


@pytest.mark.parametrize("cuts", [{}, {"min_p": 0.1}, {"top_k": 4}])
def test_a_request_without_a_finite_probability_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: dict[str, float]
) -> None:
    monkeypatch.setattr(module, "penalised", spoil)
    model = load(str(make_model(tmp_path / "model")), torch.float32, 128)
    scheduler = Scheduler(
        model.runner, eos_ids=frozenset(), max_num_seqs=4, max_queue=4, max_model_len=128, kv_bytes=2**22
    )
    registry = WeightsRegistry(model.runner, scheduler.forget, adapters_dir=None)
    told: dict[str, queue.Queue[Output]] = {"spoilt": queue.Queue(), "sound": queue.Queue()}
    for name, seen in told.items():
        weights = registry.acquire("base")
        params = RequestParams(6, presence_penalty=SPOILT if name == "spoilt" else 0.1, **cuts)  # pyright: ignore
        scheduler.submit(
            Request(
                weights=weights,
                tokens=[1, 2, 3],
                params=params,
                text=TextStream(model),
                deliver=seen.put,
                release=lambda weights=weights: registry.release(weights),
                rng=random.Random(0),
                prompt_len=3,
            )
        )
    scheduler.start()
    try:
        spoilt = told["spoilt"].get(timeout=20)
        assert (spoilt.finish, spoilt.token_ids, spoilt.error) == (
            Finish.ABORT,
            [],
            "no token has a finite probability",
        )
        sound = [told["sound"].get(timeout=20) for _ in range(6)]
        assert [out.finish for out in sound] == [None] * 5 + [Finish.LENGTH]
        assert all(torch.isfinite(torch.tensor(out.logprobs)).all() for out in sound)
        assert scheduler.load == 0
    finally:
        scheduler.stop(0)
        scheduler.join(20)
