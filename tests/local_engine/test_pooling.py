"""Hidden states by ``POST /pooling``: those of transformers, in pieces and beside answers, within bounds."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.local_engine.engine_process import complete, start_engine
from tests.local_engine.test_forward import make_model as make_kind
from tests.training.tiny import ids, make_model
from turnwise.errors import EngineError
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.llama import LlamaRunner
from turnwise.local_engine.model.runner import Runner, TransformersRunner, Weights, load_model
from turnwise.local_engine.pooling import EVERY, MAX_WAITING, PIECE, PoolingJob, PoolingQueue
from turnwise.local_engine.protocol import CompletionRequest
from turnwise.local_engine.server import _check

FLOAT32 = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-mb", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_engine(model, tmp_path_factory.mktemp("log") / "engine.log", *FLOAT32) as (url, _):
        yield url


def states(folder: Path, tokens: list[int], layer: int) -> torch.Tensor:
    """What transformers computes: [N, H] behind ``layer`` blocks."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states[layer][0]


def pool(url: str, tokens: list[int], **changes: Any) -> httpx.Response:
    return httpx.post(f"{url}/pooling", json={"model": "base", "input": tokens, "layers": [1]} | changes, timeout=60)


def test_the_vectors_are_those_of_transformers_and_the_shape_is_vllms(url: str, model: Path) -> None:
    tokens = ids(3, 300)  # more than one piece
    body = pool(url, tokens, spans=[[0, 300], [10, 140], [299, 300]]).json()
    assert body["object"] == "list"
    assert body["usage"]["prompt_tokens"] == 300
    (item,) = body["data"]
    assert (item["index"], item["object"]) == (0, "pooling")
    found, right = torch.tensor(item["data"]), states(model, tokens, 1)
    wanted = torch.stack([right[-1], right.mean(0), right[10:140].mean(0), right[299]])
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input": []}, "input"),
        ({"input": [10**6]}, "token id 1000000 is out of the vocabulary"),
        ({"input": [1] * 4000}, "input"),
        ({"input": [1] * 600}, "maximum context length is 512"),
        ({"layers": [0]}, "layers"),
        ({"layers": [2]}, "1 to 1 can be asked"),
        ({"spans": [[0, 4]]}, "spans"),
        ({"spans": [[2, 2]]}, "spans"),
        ({"spans": [[-1, 2]]}, "spans"),
        ({"spans": [[0, 1]] * 17}, "spans"),
        ({"model": "turnwise-v1"}, "'base' alone"),
        ({"encoding_format": "base64"}, "encoding_format"),
        ({"pooling_type": "mean"}, "pooling_type: no such field"),
    ],
)
def test_what_cannot_be_pooled_is_refused_by_name(url: str, changes: dict[str, Any], says: str) -> None:
    answer = pool(url, [1, 2, 3], **changes)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_log_probs_of_a_prompt_are_those_of_transformers_and_the_shape_is_vllms(url: str, model: Path) -> None:
    tokens = ids(5, 150)  # more than two pieces
    found = complete(url, tokens, max_tokens=1, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    given = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        logprobs = given(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1)
    assert found[0] is None and [list(each) for each in found[1:]] == [[str(token)] for token in tokens[1:]]
    right = logprobs[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    read = torch.tensor([each[str(token)]["logprob"] for each, token in zip(found[1:], tokens[1:], strict=True)])
    torch.testing.assert_close(read, right, atol=2e-4, rtol=1e-3)
    assert complete(url, tokens[:1], max_tokens=1, prompt_logprobs=0)["choices"][0]["prompt_logprobs"] == [None]
    assert "prompt_logprobs" not in complete(url, tokens, max_tokens=1)["choices"][0]


@pytest.mark.parametrize("changes", [{"stream": True}, {"prompt_logprobs": 3}])
def test_log_probs_of_a_prompt_that_cannot_be_given_are_refused(url: str, changes: dict[str, Any]) -> None:
    body = {"model": "base", "prompt": [1, 2, 3], "max_tokens": 4, "prompt_logprobs": 0} | changes
    refused = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert refused.status_code == 400 and "prompt_logprobs" in refused.text


def test_log_probs_of_a_very_long_prompt_are_refused() -> None:
    """The test's model has no room for one; so the engine is a stand-in with room."""
    roomy: Any = SimpleNamespace(max_model_len=8192, vocab_size=9)
    for length in (2048, 2049):
        body = CompletionRequest(model="base", prompt=[1] * length, max_tokens=1, prompt_logprobs=0)
        with pytest.raises(EngineError, match="at most 2048") if length > 2048 else nullcontext():
            _check(body, roomy)


def test_answers_are_the_same_beside_pooling(url: str) -> None:
    prompt = ids(4, 40)
    alone = complete(url, prompt, max_tokens=60, ignore_eos=True)["choices"][0]["token_ids"]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        pooled = [threads.submit(pool, url, ids(n, 200), spans=[[0, 200]]) for n in range(3)]
        beside = threads.submit(complete, url, prompt, max_tokens=60, ignore_eos=True)
        assert beside.result()["choices"][0]["token_ids"] == alone
        assert {answer.result().status_code for answer in pooled} == {200}


class Counting:
    """A runner that notes how many tokens each pass had; the rest is the real one's."""

    def __init__(self, runner: Runner) -> None:
        self.kv_shape, self.heads, self._runner = runner.kv_shape, runner.heads, runner
        self.passes: list[int] = []

    def hidden(self, merged: Any, pack: Any, layers: Any) -> list[torch.Tensor]:
        self.passes.append(len(pack.ids))
        return self._runner.hidden(merged, pack, layers)


@pytest.fixture
def counting(model: Path) -> tuple[Counting, Weights]:
    runner = LlamaRunner(*_config_of(model), torch.float32, 512)
    return Counting(runner), Weights("base", None, runner.merge(None))


def _config_of(folder: Path) -> tuple[Any, StoredWeights]:
    return AutoModelForCausalLM.from_pretrained(folder).config, StoredWeights(folder)


def test_beside_answers_a_job_gets_a_small_piece_every_few_steps(counting: tuple[Counting, Weights]) -> None:
    runner, base = counting
    queue, got = PoolingQueue(runner), []  # pyright: ignore[reportArgumentType]
    queue.add(PoolingJob(base, ids(1, 150), [1], [], got.append))
    for _ in range(2 * EVERY):
        queue.advance(answering=True)
    assert runner.passes == [PIECE, PIECE]
    assert got == []
    queue.advance(answering=False)
    assert runner.passes == [PIECE, PIECE, 150 - 2 * PIECE]
    assert len(got) == 1


def test_a_job_that_nobody_waits_for_is_not_computed(counting: tuple[Counting, Weights]) -> None:
    runner, base = counting
    queue, got = PoolingQueue(runner), []  # pyright: ignore[reportArgumentType]
    jobs = [PoolingJob(base, ids(n, 5), [1], [], got.append) for n in range(2)]
    for job in jobs:
        queue.add(job)
    jobs[0].cancelled = True
    queue.advance(answering=False)
    assert runner.passes == [5]
    assert len(got) == 1
    assert len(queue) == 0


def test_only_so_many_wait_and_all_are_told_when_the_engine_stops(counting: tuple[Counting, Weights]) -> None:
    runner, base = counting
    queue, got = PoolingQueue(runner), []  # pyright: ignore[reportArgumentType]
    for n in range(MAX_WAITING):
        queue.add(PoolingJob(base, ids(n, 5), [1], [], got.append))
    with pytest.raises(EngineError, match="wait already") as refused:
        queue.add(PoolingJob(base, ids(1, 5), [1], [], got.append))
    assert refused.value.status == 429
    queue.abort()
    assert got == ["the engine is stopping"] * MAX_WAITING


def test_a_job_that_fails_ends_alone(counting: tuple[Counting, Weights]) -> None:
    runner, base = counting
    queue, got = PoolingQueue(runner), []  # pyright: ignore[reportArgumentType]
    queue.add(PoolingJob(base, [10**6], [1], [], got.append))
    queue.add(PoolingJob(base, [1], [1], [], got.append))
    queue.advance(answering=False)
    queue.advance(answering=False)
    assert isinstance(got[0], str)
    assert len(got[1]) == 1


@pytest.mark.parametrize("kind", ["olmo2", "qwen3"])
def test_both_runners_give_the_states_of_transformers(tmp_path: Path, kind: str) -> None:
    folder = make_kind(tmp_path / kind, kind, num_hidden_layers=3)
    model = load_model(folder, torch.float32)
    runner: Runner = (
        LlamaRunner(model.config, StoredWeights(folder), torch.float32, 64)
        if kind == "qwen3"
        else TransformersRunner(model, StoredWeights(folder))
    )
    queue, got = PoolingQueue(runner), []
    tokens = list(range(1, 20))
    queue.add(PoolingJob(Weights("base", None, runner.merge(None)), tokens, [2], [(2, 7)], got.append))
    comes = iter([False, True])
    with torch.inference_mode():
        queue.advance(answering=False, leave=lambda: next(comes))
        assert not got and len(queue) == 1, "somebody came in the second block; it is still to be done"
        queue.advance(answering=False)
    right = states(folder, tokens, 2)
    torch.testing.assert_close(torch.tensor(got[0]), torch.stack([right[-1], right[2:7].mean(0)]), atol=1e-4, rtol=1e-3)
