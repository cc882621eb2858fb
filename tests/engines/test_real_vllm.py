"""The engine contract on a real vLLM server: ids in are ids out, log-probs are the trainer's, versions change in use.

`make test-vllm` installs vLLM for the CPU in an environment of its own and runs these with the model in float32.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from openai import OpenAI, OpenAIError
from safetensors.torch import load_file
from sqlalchemy import func, select
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.models import write_random_adapter
from tests.support.servers import wait_until
from tests.support.versions import publish
from tests.support.vllm_server import PYTHON, VllmServer, vllm_server
from turnwise.config import Config, load_config
from turnwise.engines.base import BEHIND_PEOPLE, Chunk, SamplingParams
from turnwise.engines.replicas import Replicas
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import EngineError, UnknownModel
from turnwise.journal import Journal, WholeTurn, schema
from turnwise.journal.turns.reading import read_turns
from turnwise.tokens.forced_calls import forced_call
from turnwise.training.batching import row_of
from turnwise.training.policy import Policy, sampling_temperature
from turnwise.types import FinishReason

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="no vLLM here; `make test-vllm` installs it and runs this"),
]
FLOAT32 = {"train.dtype": "float32", "train.device": "cpu"}
WORST_GAP = 2e-3
"""Nats per token between the server and the trainer, both in float32: what is left is the order of additions."""


def params(**changes: Any) -> SamplingParams:
    fields = {"max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": None}
    return SamplingParams(**(fields | {"stop": (), "stop_token_ids": ()} | changes))


def ids(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(100, 20000), k=length)


@pytest.fixture(scope="module")
def server(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with vllm_server(model_dir, log, "--logprobs-mode", "processed_logprobs") as running:
        yield running


@pytest.fixture(scope="module")
def adapters(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("adapters")
    return [write_random_adapter(root / f"v{n}", model_dir, scale=0.02, seed=n) for n in range(3)]


@pytest.fixture(scope="module")
def policy(model_dir: Path) -> Policy:
    torch.set_num_threads(1)
    return Policy(model_dir, load_config(overrides={"train.lora_rank": 4, "train.lora_alpha": 8, **FLOAT32}).train)


@pytest.fixture
async def engine(server: VllmServer) -> AsyncIterator[VllmEngine]:
    made = VllmEngine(server.url, 120.0)
    yield made
    await made.close()


async def ask(engine: VllmEngine | Replicas, prompt: list[int], model: str = "base", **changes: Any) -> Chunk:
    """One whole answer, joined."""
    chunks = [chunk async for chunk in engine.generate(model, prompt, params(**changes))]
    assert all(chunk.logprobs is not None for chunk in chunks if chunk.token_ids)
    last = next(chunk for chunk in reversed(chunks) if chunk.finish_reason)
    return Chunk(
        token_ids=[i for chunk in chunks for i in chunk.token_ids],
        logprobs=[x for chunk in chunks for x in chunk.logprobs or []],
        text="".join(chunk.text for chunk in chunks),
        finish_reason=last.finish_reason,
        stop_string=last.stop_string,
        cached_tokens=next((c.cached_tokens for c in chunks if c.cached_tokens is not None), None),
    )


@torch.no_grad()
def worst_gap(
    policy: Policy, adapter: Path | None, prompt: list[int], response: list[int], given: list[float] | None, t: float
) -> float:
    """The largest difference of a log-prob to what the trainer computes for the same ids."""
    policy.load(load_file(adapter / "adapter_model.safetensors") if adapter else None)
    hidden = policy.hidden([row_of(0, prompt, response)])
    temperature = torch.full((len(response),), sampling_temperature(t))
    again = policy.token_logprobs(hidden, temperature, torch.tensor(response))
    return float((again - torch.tensor(given)).abs().max())


async def test_ids_in_are_ids_out(server: VllmServer, engine: VllmEngine, tokenizer: Tokenizer) -> None:
    prompt = ids(1, 50)
    body = {"model": "base", "prompt": prompt, "max_tokens": 5, "return_token_ids": True}
    async with httpx.AsyncClient(timeout=120) as client:
        (choice,) = (await client.post(f"{server.url}/v1/completions", json=body)).json()["choices"]
    assert choice["prompt_token_ids"] == prompt
    answer = await ask(engine, prompt)
    assert 0 < len(answer.token_ids) == len(answer.logprobs or []) <= 16
    assert tokenizer.decode(answer.token_ids, skip_special_tokens=True) == answer.text
    assert answer.finish_reason == ("length" if len(answer.token_ids) == 16 else "stop")
    assert await engine.max_model_len() == 2048
    assert await engine.healthy()


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.4])
async def test_logprobs_are_those_of_the_trainer(engine: VllmEngine, policy: Policy, temperature: float) -> None:
    worst = 0.0
    for seed in range(3):
        prompt = ids(seed, 30)
        answer = await ask(engine, prompt, temperature=temperature, max_tokens=24)
        worst = max(worst, worst_gap(policy, None, prompt, answer.token_ids, answer.logprobs, temperature))
    print(f"\nT={temperature}: at worst {worst:.6f} nats from the trainer")
    assert worst < WORST_GAP


async def test_the_server_is_found_to_give_processed_logprobs(engine: VllmEngine) -> None:
    assert await engine.logprobs_follow_temperature()


async def test_stop_strings_and_stop_tokens_end_an_answer(engine: VllmEngine) -> None:
    free = await ask(engine, ids(3, 30), temperature=0.0, max_tokens=24)
    assert len(free.token_ids) > 12, "an answer that is long enough to be cut"
    at_token = await ask(engine, ids(3, 30), temperature=0.0, max_tokens=24, stop_token_ids=(free.token_ids[10],))
    assert at_token.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[10]) + 1]
    word = free.text[8:11]
    at_string = await ask(engine, ids(3, 30), temperature=0.0, max_tokens=24, stop=(word,))
    assert at_string.text == free.text[: free.text.index(word)]
    assert (at_string.finish_reason, at_string.stop_string) == ("stop", word)
    assert free.token_ids[: len(at_string.token_ids)] == at_string.token_ids


async def test_a_prompt_seen_before_comes_from_the_prefix_cache(engine: VllmEngine, policy: Policy) -> None:
    prompt = ids(4, 600)
    cold, warm = await ask(engine, prompt, temperature=0.0), await ask(engine, prompt, temperature=0.0)
    assert not cold.cached_tokens
    assert (warm.cached_tokens or 0) > 300
    assert warm.token_ids == cold.token_ids
    assert worst_gap(policy, None, prompt, warm.token_ids, warm.logprobs, 0.0) < WORST_GAP


async def test_an_answer_follows_a_json_schema(engine: VllmEngine) -> None:
    answer = await ask(engine, ids(5, 20), structured={"enum": ["left", "right"]}, max_tokens=40)
    assert json.loads(answer.text) in ("left", "right")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "sub"}}])
async def test_an_answer_is_the_call_that_must_be_made(engine: VllmEngine, choice: Any) -> None:
    number = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}
    number |= {"additionalProperties": False, "$defs": {"N": {"enum": [1, 22, 333]}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": number}} for name in ("add", "sub")]
    for space in ("", "\n"):
        answer = await ask(engine, ids(5, 20), call=forced_call(choice, tools, space), max_tokens=60)
        call = json.loads(answer.text.removeprefix(f"<tool_call>{space}").removesuffix(f"{space}</tool_call>"))
        assert call["name"] in (("add", "sub") if choice == "required" else ("sub",))
        assert call["arguments"]["n"] in (1, 22, 333) and answer.finish_reason == "stop"
        assert answer.logprobs is not None and len(answer.logprobs) == len(answer.token_ids)
        assert answer.logprobs[0] > -1e-3, "log-probs are those of what the grammar leaves to choose from"


async def test_hanging_up_stops_the_computation(server: VllmServer, engine: VllmEngine) -> None:
    async with aclosing(engine.generate("base", ids(6, 20), params(max_tokens=1500))) as chunks:
        await anext(chunks)
        await asyncio.to_thread(wait_until, lambda: server.running() == 1, 60)
    await asyncio.to_thread(wait_until, lambda: server.running() == 0, 60)


async def test_an_unknown_adapter_is_an_unknown_model(engine: VllmEngine) -> None:
    with pytest.raises(UnknownModel):
        await ask(engine, ids(7, 10), model="v999")


async def test_a_broken_adapter_is_refused_and_serving_goes_on(engine: VllmEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        await engine.load_adapter("broken", tmp_path)
    print("\na broken adapter:", caught.value.status, caught.value)
    assert (await ask(engine, ids(7, 10))).token_ids


async def test_the_next_version_is_taken_up_while_others_run(
    engine: VllmEngine, policy: Policy, adapters: list[Path]
) -> None:
    await engine.load_adapter("v1", adapters[1])
    others = [asyncio.create_task(ask(engine, ids(n, 20), model="v1", max_tokens=40)) for n in range(6)]
    await asyncio.sleep(0)
    await engine.load_adapter("v2", adapters[2])
    second = await ask(engine, ids(9, 20), model="v2", temperature=0.7, max_tokens=24)
    answers = await asyncio.gather(*others)
    for n, answer in enumerate(answers):
        assert worst_gap(policy, adapters[1], ids(n, 20), answer.token_ids, answer.logprobs, 1.0) < WORST_GAP
    assert worst_gap(policy, adapters[2], ids(9, 20), second.token_ids, second.logprobs, 0.7) < WORST_GAP
    assert worst_gap(policy, None, ids(9, 20), second.token_ids, second.logprobs, 0.7) > 0.05, "the adapter matters"
    await engine.unload_adapter("v1")
    await engine.unload_adapter("v1")
    with pytest.raises(UnknownModel):
        await ask(engine, ids(1, 10), model="v1")
    assert "v2" in [model["id"] for model in await engine._models()]
    await engine.unload_adapter("v2")


@pytest.mark.xfail(strict=True, reason="vLLM 0.32 on the CPU gives such requests the adapter in its last slot")
async def test_the_base_model_is_itself_beside_an_adapter(
    engine: VllmEngine, policy: Policy, adapters: list[Path]
) -> None:
    """Its CPU kernels read the mark for "no adapter", -1, as an index. docs/engines.md says what follows from it."""
    await engine.load_adapter("v5", adapters[0])
    await engine.load_adapter("v6", adapters[1])
    asked = [asyncio.create_task(ask(engine, ids(n, 20), ("base", "v5", "v6")[n % 3], max_tokens=40)) for n in range(6)]
    answers = await asyncio.gather(*asked)
    await engine.unload_adapter("v5")
    await engine.unload_adapter("v6")
    for n in (0, 3):
        assert worst_gap(policy, None, ids(n, 20), answers[n].token_ids, answers[n].logprobs, 1.0) < WORST_GAP


async def test_a_version_of_another_home_with_the_same_name_is_not_served(
    server: VllmServer, engine: VllmEngine, policy: Policy, adapters: list[Path]
) -> None:
    """Neither its weights nor what the prefix cache holds of them."""
    prompt = ids(10, 600)
    await engine.load_adapter("v7", adapters[0])
    before = await ask(engine, prompt, model="v7", temperature=0.0)
    another = VllmEngine(server.url, 120.0)
    await another.load_adapter("v7", adapters[1])
    answer = await ask(another, prompt, model="v7", temperature=0.0)
    assert worst_gap(policy, adapters[0], prompt, before.token_ids, before.logprobs, 0.0) < WORST_GAP
    assert worst_gap(policy, adapters[1], prompt, answer.token_ids, answer.logprobs, 0.0) < WORST_GAP
    await another.unload_adapter("v7")
    await another.close()


async def test_replicas_share_the_work_and_the_adapters(server: VllmServer, adapters: list[Path]) -> None:
    """One real server and one that is away: the same as a replica that went down."""
    away = "http://127.0.0.1:9"
    engine = Replicas({url: VllmEngine(url, 120.0) for url in (server.url, away)})
    await engine.load_adapter("v8", adapters[0])
    for session in range(4):
        chunks = [c async for c in engine.generate("v8", ids(session, 20), params(), affinity=f"s{session}")]
        assert any(chunk.finish_reason for chunk in chunks)
    await engine.unload_adapter("v8")
    await engine.close()


async def test_a_person_overtakes_rollouts_that_wait(model_dir: Path, tmp_path: Path) -> None:
    flags = ("--scheduling-policy", "priority", "--max-num-seqs", "1")
    done: list[str] = []
    with vllm_server(model_dir, tmp_path / "server.log", *flags) as server:
        engine = VllmEngine(server.url, 120.0)

        async def answered(who: str, priority: int) -> None:
            await ask(engine, ids(sum(who.encode()), 20), temperature=0.0, max_tokens=100, priority=priority)
            done.append(who)

        rollouts = [asyncio.create_task(answered(f"rollout {n}", BEHIND_PEOPLE)) for n in range(6)]
        async with asyncio.timeout(60):
            while await asyncio.to_thread(server.running) < 5:  # noqa: ASYNC110  what is waited for has no event
                await asyncio.sleep(0.05)
        await answered("person", 0)
        await asyncio.gather(*rollouts)
        await engine.close()
    assert done.index("person") <= 3, f"it waited for those that ran already alone: {done}"


# -- through the gateway -------------------------------------------------------------------------------------------


class Load:
    """Clients that talk to a gateway without pause and count what fails."""

    def __init__(self, url: str, token: str, clients: int) -> None:
        self.client = OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0, timeout=600)
        self.answered = 0
        self.failed: list[str] = []
        self.stop = threading.Event()
        self._pool = ThreadPoolExecutor(clients)
        self._running = [self._pool.submit(self._talk, n) for n in range(clients)]

    def _talk(self, number: int) -> None:
        rng = random.Random(number)
        round_ = 0
        while not self.stop.is_set():
            round_ += 1
            try:
                self.client.chat.completions.create(
                    model="turnwise",
                    messages=[{"role": "user", "content": f"Count to {number} {round_}."}],
                    max_tokens=rng.choice([8, 16, 24]),
                    temperature=rng.choice([0.0, 0.7, 1.0]),
                    extra_headers={"X-Session-Id": f"s{number}-{round_}"},
                )
                self.answered += 1
            except OpenAIError as e:
                self.failed.append(f"{type(e).__name__}: {e}")

    def end(self) -> None:
        self.stop.set()
        for future in self._running:
            future.result(timeout=600)
        self._pool.shutdown()
        self.client.close()


def answered_by(journal: Journal, version: int) -> int:
    """How many turns a version has answered, without reading them."""
    answered = schema.turns.c.finish_reason.in_(["stop", "length"])
    with journal.store.reading() as c:
        return c.execute(select(func.count()).where(schema.turns.c.version == version, answered)).scalar_one()


def turns(journal: Journal) -> list[WholeTurn]:
    with journal.store.reading() as c:
        found = read_turns(c, c.execute(schema.turns.select()).all())
    return [turn for turn in found if not turn.session_id.startswith("publish-")]


@pytest.fixture
def served(server: VllmServer, home: Path) -> Iterator[tuple[Config, GatewayThread, Journal]]:
    config = load_config(overrides={"home": home, "server.port": 0, "engine.url": server.url})
    thread = GatewayThread(config, server.url)
    thread.start(config)
    journal = Journal.open(config)
    yield config, thread, journal
    journal.close()
    thread.stop()


def test_a_version_published_under_load_takes_effect_without_a_failed_request(
    served: tuple[Config, GatewayThread, Journal], model_dir: Path, policy: Policy
) -> None:
    config, thread, journal = served
    folder = write_random_adapter(config.home / "versions" / "v1", model_dir, scale=0.02, seed=5)
    load = Load(thread.url, config.token_path.read_text().strip(), 4)
    wait_until(lambda: load.answered > 3 or load.failed, 120)
    assert publish(journal) == 1
    wait_until(lambda: load.failed or answered_by(journal, 1) > 6, 240)
    load.end()
    assert load.failed == []
    recorded = [turn for turn in turns(journal) if turn.response_ids]
    assert {turn.version for turn in recorded} == {0, 1}
    # Answers of the base model from before the switch: on the CPU, see above, those beside the first of v1 are not its.
    before = [turn for turn in recorded if turn.version == 0][:5]
    after = [turn for turn in recorded if turn.version == 1][-5:]
    for turn in before + after:
        adapter = folder if turn.version else None
        gap = worst_gap(policy, adapter, turn.prompt_ids, turn.response_ids, turn.logprobs, turn.temperature)
        assert gap < WORST_GAP


def test_a_restart_in_the_middle_of_load_loses_nothing(model_dir: Path, home: Path, tmp_path: Path) -> None:
    """The server is killed and started again; it has forgotten its adapter and gives log-probs from before T.

    Requests that had no token yet are asked again, and those cut in the middle are said to have failed and are recorded
    so. Every other request is answered, with the published version.
    """
    # A server on a busy CPU takes its time to return.
    settings: dict[str, Any] = {"home": home, "server.port": 0, "server.engine_return_s": 300.0}
    with vllm_server(model_dir, tmp_path / "server.log") as server:
        config = load_config(overrides=settings | {"engine.url": server.url})
        write_random_adapter(home / "versions" / "v1", model_dir, scale=0.02, seed=5)
        thread = GatewayThread(config, server.url)
        thread.start(config)
        journal = Journal.open(config)
        publish(journal)
        load = Load(thread.url, config.token_path.read_text().strip(), 4)
        wait_until(lambda: answered_by(journal, 1) > 3, 240)
        failed = len(load.failed)
        server.kill()
        at_the_kill = load.answered
        server.start()
        wait_until(lambda: load.answered > at_the_kill + 8, 240)
        load.end()
        found = turns(journal)
        journal.close()
        thread.stop()
    print(f"\n{load.answered} answered, {len(load.failed)} cut in the middle: {load.failed[:2]}")
    assert failed == 0
    assert len(load.failed) <= 4, "at most those that were being answered"
    assert all("middle of its answer" in said for said in load.failed)
    complete = [turn for turn in found if turn.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)]
    assert len(complete) == load.answered
    assert len(found) == load.answered + len(load.failed)
    assert all(turn.response_ids and turn.version == 1 for turn in complete[-8:])
    tempered = [turn for turn in complete if turn.temperature == 0.7]
    assert tempered, "some of the answers were sampled at 0.7"
    assert all(turn.logprobs is None for turn in tempered), "raw log-probs are not recorded"
    assert all(turn.logprobs is not None for turn in complete if turn.temperature in (0.0, 1.0))
