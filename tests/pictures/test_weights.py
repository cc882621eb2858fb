"""What sees is frozen whatever is trained, and a version of every other weight is a whole model that serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from transformers import AutoImageProcessor, AutoModelForImageTextToText

from tests.pictures.test_numbers import BLUE, RED, SEES, SMALL, asked, features, model, store, whole_model  # noqa: F401
from tests.training.tiny import batch, no_tick, shake, train_config
from turnwise.local_engine.__main__ import _arguments, build
from turnwise.local_engine.server import make_app
from turnwise.pictures.store import PictureStore
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.training.weights.files import load_version_dir

READS = ("text_model", "language_model", "lm_head")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weights", ["lora", "full"])
def test_an_update_moves_what_reads_and_nothing_that_sees(
    model: Path,  # noqa: F811
    store: PictureStore,  # noqa: F811
    weights: str,
    dtype: str,
) -> None:
    config = train_config(weights=weights, dtype=dtype, lr=1e-2, method="binary")
    policy = Policy(model, config, None, store)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    sees = [name for name in before if any(part in name for part in SEES)]
    assert sees and not any(part in n for n in policy.weights.named() for part in SEES)
    data = batch([asked(model, 1, RED, SMALL, reward=1.0), asked(model, 2, BLUE, reward=-1.0)])
    signals = compute_signals(policy, data, config, no_tick)
    optimiser_step(policy, policy.weights.optimizer(config), data, signals, [0, 1], config, no_tick)
    after = dict(policy.model.named_parameters())
    assert all(torch.equal(before[name], after[name]) and not after[name].requires_grad for name in sees)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(any(part in name for part in READS) for name in moved)


def test_a_version_of_every_weight_serves_what_the_trainer_and_transformers_have(
    model: Path,  # noqa: F811
    store: PictureStore,  # noqa: F811
    tmp_path: Path,
) -> None:
    policy = Policy(model, train_config(weights="full"), None, store)
    state = shake(policy)
    folder = tmp_path / "versions" / "v1"
    folder.mkdir(parents=True)
    policy.weights.write(state, folder)
    stored = load_version_dir(folder)
    kept = policy.weights.mine(stored.weights)
    assert stored.kind == "full" and kept.keys() == state.keys() < stored.weights.keys()
    assert all(torch.equal(kept[name], state[name]) for name in state)
    served, told = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)  # pyright: ignore[reportGeneralTypeIssues]
    assert not told["missing_keys"] and not told["unexpected_keys"]

    one, processor = asked(model, 0, RED, SMALL), AutoImageProcessor.from_pretrained(folder)
    torch.set_num_threads(1)
    args = ["--model", str(model), "--port", "0", "--dtype", "float32", "--threads", "1", "--max-model-len", "1024"]
    built = build(_arguments([*args, "--adapters-dir", str(tmp_path / "versions")]))
    with TestClient(make_app(built)) as engine:
        loaded = engine.post("/v1/load_lora_adapter", json={"lora_name": "v1", "lora_path": str(folder)})
        assert loaded.status_code == 200, loaded.text
        body = {"prompt": one.prompt_ids, "max_tokens": 6, "logprobs": 0, "return_token_ids": True, "temperature": 0}
        said = {
            name: engine.post(
                "/v1/completions", json=body | {"model": name, "features": features(one.pictures, RED, SMALL)}
            )
            for name in ("base", "v1")
        }
    built.scheduler.stop(0)
    built.scheduler.join(10)
    choices = {name: answer.json()["choices"][0] for name, answer in said.items()}
    with torch.no_grad():
        by_version = whole_model(served.eval(), processor, one.prompt_ids, choices["v1"]["token_ids"], RED, SMALL)
        by_policy = whole_model(policy.model, processor, one.prompt_ids, choices["v1"]["token_ids"], RED, SMALL)
    assert choices["v1"]["logprobs"]["token_logprobs"] == pytest.approx(by_version.tolist(), abs=1e-5)
    assert by_policy.tolist() == pytest.approx(by_version.tolist(), abs=1e-6)
    assert choices["base"]["logprobs"] != choices["v1"]["logprobs"]
