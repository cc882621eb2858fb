"""The numbers: engine, trainer and the whole model of transformers say the same of the same ids and pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForImageTextToText

from tests.support import tiny_qwen_vl
from tests.support.tiny_vision import make_model, png
from tests.training.tiny import batch, no_tick, train_config
from turnwise import types
from turnwise.local_engine.__main__ import _arguments, build
from turnwise.local_engine.server import make_app
from turnwise.pictures.placed import PlacedPicture
from turnwise.pictures.reading import sha256_of_bytes
from turnwise.pictures.store import PictureStore
from turnwise.tokens.rendering import load_renderer
from turnwise.training.batching import merge_prefixes, texts_of
from turnwise.training.policy import Policy, hinted_prompt
from turnwise.training.step import compute_signals
from turnwise.types import Message, Sample, Text

SEES = ("vision_model.", "connector.", "visual.")
RED, BLUE, SMALL = png((200, 20, 20), 100, 60), png((10, 20, 220), 100, 60), png((9, 200, 9), 20, 20)


@pytest.fixture(scope="module", params=["idefics3", "qwen3_vl", "qwen3_vl-untied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vision") / "model"
    if request.param == "idefics3":
        return make_model(folder)
    return tiny_qwen_vl.make_model(folder, tied=request.param == "qwen3_vl")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PictureStore:
    kept = PictureStore(tmp_path_factory.mktemp("home"))
    for data in (RED, BLUE, SMALL):
        kept.keep(sha256_of_bytes(data), data)
    return kept


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[TestClient]:
    torch.set_num_threads(1)
    args = ["--model", str(model), "--port", "0", "--dtype", "float32", "--threads", "1", "--max-model-len", "1024"]
    app = build(_arguments(args))
    with TestClient(make_app(app)) as client:
        yield client
    app.scheduler.stop(0)
    app.scheduler.join(10)


def asked(model: Path, n: int, *pictures: bytes, **changes: Any) -> Sample:
    """A turn whose question shows these pictures; its answer is made up."""
    parts: list[Any] = [Text(f"Question {n % 2}: ")]
    for data in pictures:
        size = Image.open(io.BytesIO(data)).size
        parts.append(types.Image(f"sha256:{sha256_of_bytes(data)}", {"width": size[0], "height": size[1]}))
    prompt = load_renderer(model).render([Message("user", (*parts, Text(" hm?")))], None)
    answer = [20 + (7 * n + k) % 200 for k in range(5)]
    fields: dict[str, Any] = {"reward": 1.0, "hint": None, "hint_at": prompt.hint_at, "pictures": prompt.pictures}
    return Sample(f"turn-{n}", f"s-{n}", prompt.ids, answer, None, 1.0, 0, **(fields | changes))


def features(pictures: tuple[PlacedPicture, ...], *files: bytes) -> dict[str, Any]:
    return {
        "mm_hashes": {"image": [p.sha256 for p in pictures]},
        "mm_placeholders": {"image": [{"offset": p.start, "length": p.end - p.start} for p in pictures]},
        "files": {"image": [base64.b64encode(f).decode() for f in files]},
    }


def whole_model(model: Any, processor: Any, prompt: list[int], answer: list[int], *files: bytes) -> Tensor:
    """Log-probs of an answer, by the model as transformers runs it: ids and pixels in one call."""
    seen = processor(images=[[Image.open(io.BytesIO(f)) for f in files]], return_tensors="pt").to(model.device)
    ids = torch.tensor([prompt + answer], device=model.device)
    if "image_grid_thw" in seen:
        seen["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
    logits = model(input_ids=ids, **seen).logits[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None])[:, 0]


def test_the_engine_samples_with_the_whole_models_logprobs_whatever_it_saw_before(
    engine: TestClient, model: Path
) -> None:
    reference, processor = AutoModelForImageTextToText.from_pretrained(model), AutoImageProcessor.from_pretrained(model)
    for files in ((RED, SMALL), (BLUE, SMALL), (RED, SMALL), (RED, RED)):  # each begins with the same ids
        one = asked(model, 0, *files)
        body = {"prompt": one.prompt_ids, "max_tokens": 6, "logprobs": 0, "return_token_ids": True, "seed": 3}
        answer = engine.post("/v1/completions", json=body | {"features": features(one.pictures, *files)}).json()
        choice = answer["choices"][0]
        with torch.no_grad():
            expected = whole_model(reference, processor, one.prompt_ids, choice["token_ids"], *files)
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= one.pictures[0].end - 1, "the first was known"


def test_an_engine_refuses_pictures_that_are_not_what_is_said_of_them(engine: TestClient, model: Path) -> None:
    one = asked(model, 0, RED)
    said = features(one.pictures, RED)
    place = {"image": [{"offset": one.pictures[0].start + 1, "length": 3}]}
    for wrong, why in (
        (features(one.pictures, BLUE), "has another hash"),
        (features((replace(one.pictures[0], sha256=sha256_of_bytes(b"?")),), b"?"), "is no PNG"),
        (said | {"mm_placeholders": place}, "placeholders"),
        (said | {"files": {"image": ["@"]}}, "no base64"),
        (said | {"files": {}}, "for each picture"),
    ):
        refused = engine.post("/v1/completions", json={"prompt": one.prompt_ids, "max_tokens": 1, "features": wrong})
        assert refused.status_code == 400 and why in refused.json()["error"]["message"], refused.text


def test_a_grid_whose_places_are_apart_is_refused(engine: TestClient, model: Path) -> None:
    one = asked(model, 0, SMALL)
    if one.pictures[0].end - one.pictures[0].start != len(one.pictures[0].places(one.prompt_ids)):
        pytest.skip("this model's pictures have no rows and columns")
    [picture] = one.pictures
    ids = [*one.prompt_ids[: picture.start + 1], 5, *one.prompt_ids[picture.start + 1 :]]
    told = features((replace(picture, end=picture.end + 1),), SMALL)
    refused = engine.post("/v1/completions", json={"prompt": ids, "max_tokens": 1, "features": told})
    assert refused.status_code == 400 and "must stand together" in refused.json()["error"]["message"], refused.text


def test_merged_rows_have_the_gradient_of_the_whole_model_sample_by_sample(model: Path, store: PictureStore) -> None:
    policy, processor = Policy(model, train_config(), None, store), AutoImageProcessor.from_pretrained(model)
    for n, parameter in enumerate(policy.parameters()):  # an adapter that does something
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(n))
        parameter.data += 0.05 * noise.to(policy.device)
    files = [(RED, SMALL), (BLUE, SMALL), (RED, SMALL), (), (RED,)]
    samples = [asked(model, 2 * n, *some) for n, some in enumerate(files)]
    rows = merge_prefixes(texts_of(samples, range(len(samples))), policy.reads_forks)
    assert len(rows) == 1 and rows[0].forks, "they share what they have in common"
    order = [span.sample for row in rows for span in row.spans]
    tokens = torch.tensor([i for n in order for i in samples[n].response_ids], device=policy.device)
    table = policy.logits(policy.hidden(rows)).log_softmax(-1)
    together = table.gather(1, tokens[:, None])[:, 0]
    together.sum().backward()
    merged = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
    assert len(merged) == len(policy.parameters())
    for p in policy.parameters():
        p.grad = None
    alone = []
    for n in order:
        if files[n]:
            found = whole_model(policy.model, processor, samples[n].prompt_ids, samples[n].response_ids, *files[n])
        else:
            prompt, answer = samples[n].prompt_ids, samples[n].response_ids
            ids = torch.tensor([prompt + answer], device=policy.device)
            logits = policy.model(input_ids=ids).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
            found = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
        found.sum().backward()
        alone += found.tolist()
    assert together.tolist() == pytest.approx(alone, abs=1e-5)
    scale = max(g.abs().max() for g in merged)
    for one, p in zip(merged, policy.parameters(), strict=True):
        assert p.grad is not None and (one - p.grad).abs().max() < 1e-5 * scale


def test_the_adapter_is_on_the_part_that_reads_alone(model: Path) -> None:
    policy = Policy(model, train_config())
    names = policy.weights.named()
    assert names and all(".text_model.layers." in name or ".language_model.layers." in name for name in names)
    assert {n.split(".")[-3] for n in names} >= {"q_proj", "down_proj"}
    assert not any(p.requires_grad for n, p in policy.model.named_parameters() if any(part in n for part in SEES))


def test_a_hint_in_front_of_a_later_picture_moves_it(model: Path, store: PictureStore) -> None:
    policy, processor = Policy(model, train_config(), None, store), AutoImageProcessor.from_pretrained(model)
    one = asked(model, 1, RED, SMALL, hint="shorter")
    first = one.pictures[0]
    one = replace(one, hint_at=first.end)  # where the picture behind it is of a tool, say
    config = train_config(method="opd")
    [signal] = compute_signals(policy, batch([one]), config, no_tick)
    assert signal.teacher is not None
    told = hinted_prompt(one.prompt_ids, one.hint, one.hint_at, policy.tokenizer)
    with torch.no_grad():
        expected = whole_model(policy.model, processor, told, one.response_ids, RED, SMALL)
        answer = torch.tensor(one.response_ids, device=policy.device)
        teacher = policy.logits(signal.teacher).log_softmax(-1).gather(1, answer[:, None])[:, 0]
    assert teacher.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
