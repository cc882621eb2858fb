"""Pictures through the real program: from a request in any wire format to weights that learned from what was seen.

The models are tiny, have random weights and the real architecture, template and processor of SmolVLM and of Qwen3-VL:
what they say means nothing, and what is compared is ids and log-probs.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor

from tests.pictures.test_qwen_ids import by_processor
from tests.support import tiny_qwen_vl
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from tests.support.tiny_vision import make_model, png
from tests.support.vllm_server import PYTHON, vllm_server
from turnwise.config import TrainConfig
from turnwise.journal.turns.recorded import WholeTurn
from turnwise.models.architectures import supported_model
from turnwise.pictures.layout import layout_of
from turnwise.pictures.patches import PatchLayout
from turnwise.pictures.store import PictureStore
from turnwise.training.batching import TokenText, merge_prefixes
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir

pytestmark = pytest.mark.slow

RED, BLUE = png((200, 20, 20), 100, 60), png((10, 20, 220), 100, 60)
QWEN = PatchLayout(tiny_qwen_vl.PATCH * tiny_qwen_vl.MERGE, tiny_qwen_vl.LEAST, tiny_qwen_vl.MOST)
SETTINGS = {
    "engine__threads": 1,
    "engine__dtype": "float32",
    "engine__max_model_len": 1024,
    "train__dtype": "float32",
    "train__threads": 1,
    "train__lora_rank": 2,
    "train__min_batch": 2,
    "train__lr": 0.01,
    "gate__enabled": False,
    "skills__enabled": False,  # one that was made of the first reproach would stand in later prompts
}


@pytest.fixture(scope="module", params=["idefics3", "qwen3_vl"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vision") / "model"
    if request.param == "idefics3":
        return make_model(folder, heads=2)  # fewer numbers a head vLLM does not take
    return tiny_qwen_vl.make_model(folder, head_dim=32)


NO_VLLM = pytest.mark.skipif(not PYTHON, reason="no vLLM here; `make test-vllm` installs it and runs this")


@pytest.fixture(scope="module", params=["local", pytest.param("vllm", marks=[pytest.mark.vllm, NO_VLLM])])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("served")
    with ExitStack() as stack:
        settings: dict[str, object] = dict(SETTINGS)
        if request.param == "vllm":
            flags = ("--logprobs-mode", "processed_logprobs", "--enable-scale-out")
            engine = stack.enter_context(vllm_server(model, root / "vllm.log", *flags))
            ours = {name: value for name, value in settings.items() if not name.startswith("engine__")}
            settings = ours | {"engine__kind": "vllm", "engine__url": engine.url}
        yield stack.enter_context(serving(root / "home", model, **settings))


def url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def asked(data: bytes, words: str = "What is it?") -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url(data)}}, {"type": "text", "text": words}]
    return [{"role": "user", "content": parts}]


def post(server: Server, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    told = server.auth | headers
    return httpx.post(server.url + path, json={"model": "turnwise"} | body, headers=told, timeout=60)


def answered(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer's body. Where there is none, what was said instead and the end of the server's log."""
    answer = post(server, path, body)
    assert answer.status_code == 200, f"{path}: {answer.text[:1000]}\n{server.log.read_text()[-3000:]}"
    return answer.json()


def turn(server: Server, answer: Any) -> tuple[WholeTurn, Any]:
    journal = server.journal()
    try:
        turn_id = journal.turns.find(answer)
        found = journal.turns.get(turn_id)
        assert found is not None
        return found, journal.batches.read([turn_id])[0]
    finally:
        journal.close()


def processor_ids(model: Path, *pictures: bytes, words: str = "What is it?") -> list[int]:
    """What the model's own processor makes of a question about pictures."""
    parts = [*({"type": "image"} for _ in pictures), {"type": "text", "text": words}]
    pixels = [Image.open(io.BytesIO(p)) for p in pictures]
    if layout_of(model) == QWEN:
        return by_processor(model, [{"role": "user", "content": parts}], pixels)
    processor = AutoProcessor.from_pretrained(model)
    text = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
    return processor(text=text, images=[pixels])["input_ids"][0]


def trainers_logprobs(server: Server, model: Path, sample: Any, version: int = 0) -> list[float]:
    config = TrainConfig(device="cpu", microbatch_tokens=256, dtype="float32", lora_rank=2)
    policy = Policy(Path(supported_model(str(model))), config, None, PictureStore(server.config.home))
    if version:
        policy.load(load_version_dir(version_dir(server.config.versions_dir, version)).weights)
    texts = [TokenText(0, sample.prompt_ids, sample.response_ids, sample.pictures)]
    tokens = torch.tensor(sample.response_ids)
    with torch.no_grad():
        hidden = policy.hidden(merge_prefixes(texts))
        return policy.token_logprobs(hidden, torch.full(tokens.shape, sample.temperature), tokens).tolist()


def test_every_format_gives_the_processors_ids_and_the_trainers_logprobs(server: Server, model: Path) -> None:
    chat = answered(server, "/v1/chat/completions", {"messages": asked(RED), "max_tokens": 6})
    image = {"type": "input_image", "image_url": url(RED)}
    said = {"role": "user", "content": [image, {"type": "input_text", "text": "What is it?"}]}
    responses = answered(server, "/v1/responses", {"input": [said], "max_output_tokens": 6})
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(RED).decode()}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 6}
    messages = answered(server, "/v1/messages", body)
    ids = processor_ids(model, RED)
    for answer in (chat, responses, messages):
        recorded, sample = turn(server, answer["id"])
        assert recorded.prompt_ids == ids
        shown = (80, 48) if layout_of(model) == QWEN else (96, 64)
        assert [(p.width, p.height, p.shown_width, p.shown_height) for p in sample.pictures] == [(100, 60, *shown)]
        assert trainers_logprobs(server, model, sample) == pytest.approx(sample.logprobs, abs=1e-4)
        assert "base64" not in str(recorded.messages), "the record has the hash, the file is kept once"
    assert len(list((server.config.home / "pictures").iterdir())) == 1


def test_the_same_ids_with_another_picture_are_another_prompt(server: Server, model: Path) -> None:
    both = []
    for data in (RED, BLUE, RED):  # the caches of the engine have the other one's beginning
        answer = answered(server, "/v1/chat/completions", {"messages": asked(data, "Tell me."), "max_tokens": 6})
        _, sample = turn(server, answer["id"])
        assert trainers_logprobs(server, model, sample) == pytest.approx(sample.logprobs, abs=1e-4)
        both.append(sample)
    assert both[0].prompt_ids == both[1].prompt_ids
    assert both[0].pictures[0].sha256 != both[1].pictures[0].sha256


def test_a_conversation_about_pictures_is_bridged_and_learned_from(server: Server, model: Path) -> None:
    for n in range(3):
        history = asked(RED if n else BLUE, f"question {n}")
        first = answered(server, "/v1/chat/completions", {"messages": history, "max_tokens": 6})
        history.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
        history += asked(BLUE, "That's wrong. Please answer in one short sentence.")
        second = answered(server, "/v1/chat/completions", {"messages": history, "max_tokens": 6})
        before, (after, sample) = turn(server, first["id"])[0], turn(server, second["id"])
        whole = [*before.prompt_ids, *before.response_ids]
        assert after.prompt_ids[: len(whole)] == whole and after.extends_parent
        assert len(sample.pictures) == 2 and sample.pictures[1].start > len(whole)
        assert trainers_logprobs(server, model, sample, after.version) == pytest.approx(sample.logprobs, abs=1e-4)
    wait_until(lambda: server.status()["version"]["number"] >= 1, 120)
    late = answered(server, "/v1/chat/completions", {"messages": asked(RED, "And now?"), "max_tokens": 6})
    recorded, sample = turn(server, late["id"])
    assert recorded.version >= 1
    found = trainers_logprobs(server, model, sample, recorded.version)
    assert found == pytest.approx(sample.logprobs, abs=1e-4)
    assert trainers_logprobs(server, model, sample) != pytest.approx(sample.logprobs, abs=1e-4), "it learned something"


REFUSED = [
    ("https://example.com/cat.png", "no address is fetched"),
    ("file:///etc/passwd", "no address is fetched"),
    ("sha256:" + "0" * 64, "no address is fetched"),
    ("data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode(), "the picture is no PNG"),
    ("data:image/png;base64,@@@", "no base64"),
    (url(RED[:200]), "cannot be decoded"),
]


@pytest.mark.parametrize(("address", "why"), REFUSED)
def test_what_is_no_picture_in_the_request_is_refused_with_a_sentence(server: Server, address: str, why: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": address}}]
    refused = post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "invalid_image"
    assert why in refused.json()["error"]["message"]
