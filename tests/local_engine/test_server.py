"""The engine as a process, with a random two-layer model of one token per byte: everything the gateway relies on."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.local_engine.engine_process import complete, load_of, post, start_engine, stream
from tests.support.models import write_random_adapter
from tests.support.servers import wait_until
from tests.training.tiny import ids, make_model

FLOAT32 = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-mb", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One engine for the tests that leave it as it was."""
    with start_engine(model, tmp_path_factory.mktemp("log") / "engine.log", *FLOAT32) as (url, _):
        yield url


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("adapters")
    return [write_random_adapter(root / f"v{n}", model, scale=0.5, seed=n) for n in range(3)]


def answer(body: dict[str, Any]) -> list[int]:
    return body["choices"][0]["token_ids"]


def test_health_and_models(url: str, model: Path) -> None:
    assert httpx.get(f"{url}/health", timeout=20).status_code == 200
    (card,) = httpx.get(f"{url}/v1/models", timeout=20).json()["data"]
    assert (card["id"], card["parent"], card["max_model_len"], card["root"]) == ("base", None, 512, str(model))


def test_a_whole_answer_has_vllms_fields(url: str) -> None:
    prompt = ids(1, 20)
    body = complete(url, prompt, max_tokens=7, ignore_eos=True)
    (choice,) = body["choices"]
    assert choice["prompt_token_ids"] == prompt
    assert len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"]) == 7
    assert all(x <= 0 for x in choice["logprobs"]["token_logprobs"])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
    assert body["usage"]["prompt_tokens"] == 20
    assert body["usage"]["completion_tokens"] == 7
    assert body["usage"]["total_tokens"] == 27


def test_a_stream_adds_up_to_the_whole_answer(url: str) -> None:
    prompt = ids(2, 30)
    whole = complete(url, prompt, max_tokens=40, ignore_eos=True)["choices"][0]
    chunks = list(stream(url, prompt, max_tokens=40, ignore_eos=True, stream_options={"include_usage": True}))
    *parts, usage = chunks
    choices = [part["choices"][0] for part in parts]
    assert [i for c in choices for i in c["token_ids"]] == whole["token_ids"]
    assert "".join(c["text"] for c in choices) == whole["text"]
    found = [x for c in choices for x in c["logprobs"]["token_logprobs"]]
    assert found == pytest.approx(whole["logprobs"]["token_logprobs"], abs=1e-4)
    assert choices[0]["prompt_token_ids"] == prompt
    assert {c["prompt_token_ids"] is None for c in choices[1:]} == {True}
    assert [c["finish_reason"] for c in choices] == [None] * 39 + ["length"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 40)


def test_a_request_is_the_same_alone_and_in_a_batch(url: str) -> None:
    prompts = [ids(n, 5 + 37 * n % 90) for n in range(10)]
    alone = [answer(complete(url, p, max_tokens=30, ignore_eos=True)) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        together = list(pool.map(lambda p: answer(complete(url, p, max_tokens=30, ignore_eos=True)), prompts))
    assert together == alone


def test_a_seed_repeats_an_answer(url: str) -> None:
    def sampled(seed: int) -> list[int]:
        return answer(complete(url, ids(3, 12), max_tokens=24, temperature=1.0, top_p=0.95, seed=seed, ignore_eos=True))

    assert sampled(1) == sampled(1) != sampled(2)


def test_the_next_turn_reuses_keys_and_values_with_the_same_result(model: Path, tmp_path: Path) -> None:
    first = ids(4, 200)
    with start_engine(model, tmp_path / "a.log", *FLOAT32) as (warm, _):
        reply = answer(complete(warm, first, max_tokens=20, ignore_eos=True))
        prompt = [*first, *reply, *ids(5, 15)]
        reused = complete(warm, prompt, max_tokens=20, ignore_eos=True)
    with start_engine(model, tmp_path / "b.log", *FLOAT32) as (cold, _):
        fresh = complete(cold, prompt, max_tokens=20, ignore_eos=True)
    assert reused["usage"]["prompt_tokens_details"]["cached_tokens"] == 219  # all but the never-computed last reply id
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert answer(reused) == answer(fresh)
    a, b = (x["choices"][0]["logprobs"]["token_logprobs"] for x in (reused, fresh))
    assert a == pytest.approx(b, abs=1e-4)


def test_a_stop_string_cuts_the_text_but_not_the_ids(url: str) -> None:
    prompt = ids(6, 25)
    free = complete(url, prompt, max_tokens=60, ignore_eos=True)["choices"][0]
    stop = next(free["text"][i : i + 3] for i in range(10, 50) if free["text"][i : i + 3].isascii())
    cut = complete(url, prompt, max_tokens=60, ignore_eos=True, stop=[stop])["choices"][0]
    assert cut["text"] == free["text"][: free["text"].index(stop)]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    assert cut["token_ids"] == free["token_ids"][: len(cut["token_ids"])]
    streamed = [c["choices"][0]["text"] for c in stream(url, prompt, max_tokens=60, ignore_eos=True, stop=stop)]
    assert "".join(streamed) == cut["text"]


def test_a_stop_token_ends_the_answer_and_is_reported(url: str) -> None:
    prompt = ids(7, 25)
    free = answer(complete(url, prompt, max_tokens=30, ignore_eos=True))
    stop = free[10]
    choice = complete(url, prompt, max_tokens=30, ignore_eos=True, stop_token_ids=[stop])["choices"][0]
    assert choice["token_ids"] == free[: free.index(stop) + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": "text"}, 400, "prompt"),
        ({"prompt": [5, 260]}, 400, "token id 260"),
        ({"prompt": [-1]}, 400, "token id -1"),
        ({"prompt": [1] * 500, "max_tokens": 13}, 400, "maximum context length is 512"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": -5}, 400, "max_tokens"),
        ({"temperature": -0.1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"n": 2}, 400, "n:"),
        ({"logprobs": 5}, 400, "logprobs"),
        ({"presence_penalty": 3}, 400, "presence_penalty"),
        ({"typical_p": 0.5}, 400, "typical_p: no such field"),
        ({"include_stop_str_in_output": True}, 400, "include_stop_str_in_output"),
        ({"stop": [""]}, 400, "stop"),
        ({"model": "v9"}, 404, "'v9' does not exist"),
    ],
)
def test_a_wrong_request_is_refused_by_name(url: str, fields: dict[str, Any], status: int, says: str) -> None:
    response = post(url, "/v1/completions", **({"prompt": [1, 2]} | fields))
    assert response.status_code == status
    error = response.json()["error"]
    assert says in error["message"]
    assert error["code"] == status


def test_a_body_that_is_no_json_is_refused(url: str) -> None:
    response = httpx.post(f"{url}/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError")


def test_the_longest_request_that_fits_is_served(url: str) -> None:
    assert len(answer(complete(url, ids(8, 472), max_tokens=40, ignore_eos=True))) == 40


def test_a_client_that_hangs_up_frees_its_place(url: str) -> None:
    chunks = stream(url, ids(9, 20), max_tokens=480, ignore_eos=True)
    next(chunks)
    chunks.close()  # pyright: ignore[reportAttributeAccessIssue]
    wait_until(lambda: load_of(url) == 0, limit_s=10)


def test_a_full_queue_is_a_429_and_those_before_it_are_served(model: Path, tmp_path: Path) -> None:
    options = ("--max-num-seqs", "1", "--max-queue", "2", *FLOAT32)
    with (
        start_engine(model, tmp_path / "engine.log", *options) as (url, _),
        concurrent.futures.ThreadPoolExecutor(12) as pool,
    ):
        many = [
            pool.submit(post, url, "/v1/completions", prompt=ids(n, 9), max_tokens=400, ignore_eos=True)
            for n in range(12)
        ]
        responses = [m.result() for m in many]
        refused = [r for r in responses if r.status_code == 429]
        assert refused
        assert all(r.headers["retry-after"] and "queue is full" in r.json()["error"]["message"] for r in refused)
        assert {r.status_code for r in responses} == {200, 429}
        assert sum(r.status_code == 200 for r in responses) >= 3
        assert load_of(url) == 0


def test_more_sequences_than_memory_holds_are_all_served_right(model: Path, tmp_path: Path) -> None:
    # 1 MiB holds 8 sequences of 256 tokens; each of the 12 grows to 400.
    prompts = [ids(n, 100) for n in range(12)]
    small = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-mb", "1")
    with start_engine(model, tmp_path / "engine.log", *small) as (url, _):
        alone = [answer(complete(url, p, max_tokens=300, ignore_eos=True)) for p in prompts]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda p: answer(complete(url, p, max_tokens=300, ignore_eos=True)), prompts))
    assert together == alone


def test_an_adapter_is_loaded_listed_used_and_unloaded(model: Path, tmp_path: Path, adapters: list[Path]) -> None:
    prompt = ids(10, 30)
    with start_engine(model, tmp_path / "engine.log", *FLOAT32) as (url, _):
        base = answer(complete(url, prompt))
        load = {"lora_name": "v1", "lora_path": str(adapters[0])}
        assert post(url, "/v1/load_lora_adapter", **load).status_code == 200
        assert post(url, "/v1/load_lora_adapter", **load).status_code == 400
        cards = httpx.get(f"{url}/v1/models", timeout=20).json()["data"]
        assert [(c["id"], c["parent"]) for c in cards] == [("base", None), ("v1", "base")]
        adapted = answer(complete(url, prompt, model="v1"))
        assert adapted != base
        assert answer(complete(url, prompt)) == base
        replaced = load | {"lora_path": str(adapters[1]), "load_inplace": True}
        assert post(url, "/v1/load_lora_adapter", **replaced).status_code == 200
        assert answer(complete(url, prompt, model="v1")) not in (base, adapted)
        assert post(url, "/v1/unload_lora_adapter", lora_name="v1").status_code == 200
        assert post(url, "/v1/unload_lora_adapter", lora_name="v1").status_code == 404
        assert post(url, "/v1/completions", prompt=prompt, model="v1").status_code == 404


def test_more_adapters_than_stay_merged_are_served_on_demand(model: Path, tmp_path: Path, adapters: list[Path]) -> None:
    prompt = ids(11, 30)
    with start_engine(model, tmp_path / "engine.log", *FLOAT32) as (url, _):
        for n in range(7):
            load = {"lora_name": f"v{n}", "lora_path": str(adapters[n % 3])}
            assert post(url, "/v1/load_lora_adapter", **load).status_code == 200
        answers = [answer(complete(url, prompt, model=f"v{n}")) for n in range(7)]
        assert answers[0] == answers[3] == answers[6]
        assert len({tuple(a) for a in answers}) == 3


def test_a_faulty_adapter_changes_nothing(url: str, tmp_path: Path, adapters: list[Path]) -> None:
    broken = Path(shutil.copytree(adapters[0], tmp_path / "broken"))
    (broken / "adapter_model.safetensors").write_bytes(b"\0" * 50)
    response = post(url, "/v1/load_lora_adapter", lora_name="bad", lora_path=str(broken))
    assert (response.status_code, "cannot be read" in response.json()["error"]["message"]) == (400, True)
    assert post(url, "/v1/load_lora_adapter", lora_name="bad", lora_path="/nowhere").status_code == 404
    assert post(url, "/v1/load_lora_adapter", lora_name="base", lora_path=str(adapters[0])).status_code == 400
    assert [c["id"] for c in httpx.get(f"{url}/v1/models", timeout=20).json()["data"]] == ["base"]


def test_adapters_are_swapped_under_load_and_requests_in_flight_keep_theirs(
    model: Path, tmp_path: Path, adapters: list[Path]
) -> None:
    prompt = ids(12, 30)
    fields: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "model": "live"}
    with (
        start_engine(model, tmp_path / "engine.log", *FLOAT32) as (url, _),
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        expected = []
        for path in adapters:
            swap(url, path)
            expected.append(answer(complete(url, prompt, **fields)))
        swap(url, adapters[0])
        long = stream(url, prompt, **(fields | {"max_tokens": 400}))
        head = next(long)["choices"][0]["token_ids"]
        stop_at = time.monotonic() + 3
        workers = [pool.submit(ask_until, stop_at, url, prompt, fields) for _ in range(4)]
        swaps = 0
        while time.monotonic() < stop_at:
            swap(url, adapters[swaps % 3])
            swaps += 1
        seen = [a for w in workers for a in w.result()]
        flight = head + [i for chunk in long for i in chunk["choices"][0]["token_ids"]]
        assert swaps > 3
        assert all(a in expected for a in seen)
        assert flight[:60] == expected[0]
        assert len(flight) == 400
        swap(url, adapters[0])
        assert answer(complete(url, prompt, **(fields | {"max_tokens": 400}))) == flight


def swap(url: str, adapter: Path) -> None:
    response = post(url, "/v1/load_lora_adapter", lora_name="live", lora_path=str(adapter), load_inplace=True)
    assert response.status_code == 200, response.text


def ask_until(stop_at: float, url: str, prompt: list[int], fields: dict[str, Any]) -> list[list[int]]:
    answers = []
    while time.monotonic() < stop_at:
        answers.append(answer(complete(url, prompt, **fields)))
    return answers


def test_sigterm_lets_an_answer_in_flight_finish(model: Path, tmp_path: Path) -> None:
    with start_engine(model, tmp_path / "engine.log", *FLOAT32) as (url, process):
        chunks = stream(url, ids(13, 20), max_tokens=200, ignore_eos=True)
        next(chunks)
        process.terminate()
        rest = list(chunks)
        assert rest[-1]["choices"][0]["finish_reason"] == "length"
        assert process.wait(timeout=20) == 0


def test_sigterm_aborts_what_takes_longer_than_the_grace(model: Path, tmp_path: Path) -> None:
    with start_engine(model, tmp_path / "engine.log", *FLOAT32, "--grace", "0") as (url, process):
        chunks = stream(url, ids(13, 20), max_tokens=480, ignore_eos=True)
        next(chunks)
        process.terminate()
        assert list(chunks)[-1]["choices"][0]["finish_reason"] == "abort"
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [(("--kv-cache-mb", "0"), "--kv-cache-mb"), (("--model", "/nowhere"), "no model folder at /nowhere")],
)
def test_a_start_that_cannot_work_says_why(model: Path, tmp_path: Path, options: tuple[str, str], says: str) -> None:
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert says in done.stderr


@pytest.mark.parametrize(("number_format", "mib"), [("bfloat16", 192), ("float32", 384)])
def test_as_many_tokens_are_cached_in_either_format(model: Path, tmp_path: Path, number_format: str, mib: int) -> None:
    longer = tmp_path / "longer"
    shutil.copytree(model, longer)
    config = json.loads((longer / "config.json").read_text())
    (longer / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4_000_000}))
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(longer), "--port", "0"]
    command += ["--dtype", number_format, "--max-model-len", "4000000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, f"--kv-cache-mb {mib} does not hold" in done.stderr) == (1, True), done.stderr


def test_a_port_in_use_is_said(url: str, model: Path) -> None:
    port = url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "cannot listen" in done.stderr) == (1, True)
