"""What nobody waits for stands back: people go first, take its place, and it is never quite without a step."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.servers import wait_until
from tests.training.tiny import make_model
from turnwise.errors import EngineError
from turnwise.local_engine import pooling
from turnwise.local_engine import scheduler as scheduler_module
from turnwise.local_engine.model.attention import Pack
from turnwise.local_engine.model.llama import LlamaRunner
from turnwise.local_engine.model.load import load
from turnwise.local_engine.pooling import LogprobJob
from turnwise.local_engine.registry import WeightsRegistry
from turnwise.local_engine.requests import Output, Request, RequestParams
from turnwise.local_engine.scheduler import BEHIND, CHUNK, Scheduler, first_of
from turnwise.local_engine.text import TextStream


def test_those_that_nobody_waits_for_have_one_step_of_many_while_somebody_waits() -> None:
    person, rollout = (SimpleNamespace(params=RequestParams(8, priority=p)) for p in (0, 1))
    both: list[Any] = [rollout, person]
    taken = [len(first_of(both, step)) for step in range(2 * BEHIND)]
    assert taken.count(2) == 2 and taken.count(1) == 2 * BEHIND - 2
    alone: list[Any] = [rollout]
    assert first_of(alone, 1) == alone, "with nobody here it has every step"


class Engine:
    """A scheduler over a tiny model with room for ``places`` at a time; tokens arrive in one list, as they come."""

    def __init__(self, folder: Path, places: int = 1, longest: int = 128) -> None:
        self.model = load(str(make_model(folder)), torch.float32, longest)
        self.scheduler = Scheduler(
            self.model.runner,
            eos_ids=frozenset(),
            max_num_seqs=places,
            max_queue=2,
            max_model_len=longest,
            kv_bytes=2**22,
        )
        self.registry = WeightsRegistry(self.model.runner, self.scheduler.forget, adapters_dir=None)
        self.told: list[tuple[str, Output]] = []
        self.may_go = threading.Event()

    def ask(self, name: str, priority: int, tokens: int, prompt: int = 3) -> None:
        weights = self.registry.acquire("base")

        def deliver(out: Output) -> None:
            self.told.append((name, out))
            if len(self.told) == 3:
                self.may_go.wait(20)  # the compute thread stands still until the test has asked for more

        self.scheduler.submit(
            Request(
                weights=weights,
                tokens=[1 + (at + priority) % 40 for at in range(prompt)],
                params=RequestParams(tokens, temperature=0.0, priority=priority),
                text=TextStream(self.model),
                deliver=deliver,
                release=lambda: self.registry.release(weights),
                rng=random.Random(0),
                prompt_len=prompt,
            )
        )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = Engine(tmp_path / "model")
    found.scheduler.start()
    yield found
    found.scheduler.stop(0)


def test_a_person_takes_the_place_of_a_rollout_which_goes_on_where_it_was(engine: Engine) -> None:
    engine.ask("rollout", 1, 12)
    wait_until(lambda: len(engine.told) == 3)
    engine.ask("another rollout", 1, 2)
    engine.ask("person", 0, 4)
    engine.may_go.set()
    wait_until(lambda: sum(out.finish is not None for _, out in engine.told) == 3)
    names = [name for name, _ in engine.told]
    assert names == ["rollout"] * 3 + ["person"] * 4 + ["rollout"] * 9 + ["another rollout"] * 2
    [alone] = [out for name, out in engine.told if name == "rollout" and out.finish]
    assert alone.finish == "length", "it has all its tokens"


def test_a_queue_full_of_rollouts_has_room_for_a_person(engine: Engine) -> None:
    engine.ask("rollout", 1, 12)
    wait_until(lambda: len(engine.told) == 3)
    for _ in range(2):
        engine.ask("waits", 1, 1)
    with pytest.raises(EngineError, match="queue is full"):
        engine.ask("one too many", 1, 1)
    engine.ask("person", 0, 1)
    engine.may_go.set()
    wait_until(lambda: "person" in [name for name, _ in engine.told])


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Engine]:
    found = Engine(tmp_path / "model", places=2, longest=512)
    yield found
    found.may_go.set()
    found.scheduler.stop(0)


def watch(engine: Engine) -> list[list[int]]:
    """The number of tokens of each request in each step, as the steps begin; the first one waits until it may go."""
    steps: list[list[int]] = []
    forward = engine.model.runner.forward

    def watched(weights: Any, pack: Any) -> Any:
        steps.append(list(pack.lengths))
        engine.may_go.wait(20)
        return forward(weights, pack)

    engine.model.runner.forward = watched  # type: ignore[method-assign]
    return steps


def test_a_long_prompt_of_a_rollout_is_read_in_small_pieces_and_after_a_persons(roomy: Engine) -> None:
    steps = watch(roomy)
    roomy.scheduler.start()
    roomy.ask("rollout", 1, 1, prompt=400)
    wait_until(lambda: bool(steps))
    roomy.ask("person", 0, 3, prompt=300)
    roomy.may_go.set()
    wait_until(lambda: sum(out.finish is not None for _, out in roomy.told) == 2)
    assert steps == [[CHUNK], [300], [1], [1], [CHUNK], [CHUNK], [CHUNK], [400 - 3 * CHUNK]], "the first was left"
    assert [name for name, _ in roomy.told] == ["person"] * 3 + ["rollout"]


def test_what_reads_has_all_threads_however_few_are_best_for_what_decodes(
    roomy: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(scheduler_module.torch, "get_num_threads", lambda: 0)
    monkeypatch.setattr(scheduler_module.torch, "set_num_threads", asked.append)
    roomy.scheduler._most_threads = 7
    roomy.scheduler._threads = SimpleNamespace(count=3, took=lambda *_: None)  # type: ignore[assignment]
    steps = watch(roomy)
    roomy.may_go.set()
    roomy.scheduler.start()
    roomy.ask("person", 0, 3, prompt=CHUNK)
    wait_until(lambda: any(out.finish for _, out in roomy.told))
    roomy.ask("rollout", 1, 1, prompt=CHUNK // 2)
    wait_until(lambda: sum(out.finish is not None for _, out in roomy.told) == 2)
    assert (steps, asked) == ([[CHUNK], [1], [1], [CHUNK // 2]], [7, 3, 3, 3])


def test_memory_is_given_back_once_behind_the_last_request(roomy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(scheduler_module, "give_back", lambda: given.append(len(roomy.told)))
    monkeypatch.setattr(scheduler_module, "BEAT_S", 0.01)
    roomy.may_go.set()
    roomy.scheduler.start()
    wait_until(lambda: given == [0])
    roomy.ask("person", 0, 3)
    wait_until(lambda: len(given) == 2)
    time.sleep(0.2)  # of twenty beats
    assert given == [0, 3]
    monkeypatch.setattr(scheduler_module, "BEAT_S", 20.0)
    roomy.scheduler.forget(roomy.registry.base)
    wait_until(lambda: given == [0, 3, 3])


@pytest.mark.parametrize("lean", [True, False])
def test_who_comes_while_a_rollout_is_computed_does_not_wait_for_the_end_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lean: bool
) -> None:
    if not lean:
        monkeypatch.setattr(LlamaRunner, "supports", lambda *_: False)
    alone, _, _ = answered(tmp_path / "alone", lean, comes=False)
    beside, passes, names = answered(tmp_path / "beside", lean, comes=True)
    left = ["72.0", "72.1", "9.0"]  # a job of the pauses, which is due as well, gives way at once
    assert passes[:7] == [f"{CHUNK}.0", f"{CHUNK}.1", *left, "7.0", "7.1"]
    assert [name for name in names if name != "job"][:3] == ["person"] * 2 + ["rollout"]
    assert len(alone) == 4 and beside == pytest.approx(alone), "what was left is made again, and whole"


def answered(folder: Path, lean: bool, comes: bool) -> tuple[list[float], list[str], list[str]]:
    """The log-probs of a rollout's tokens, each pass by its length and layer, and whose tokens came; whether a person
    ``comes`` in the last layer of the second piece of the rollout's prompt."""
    engine, passes, attend = Engine(folder, places=2, longest=512), [], Pack.attend
    assert isinstance(engine.model.runner, LlamaRunner) == lean

    def attending(pack: Pack, layer: int, *args: Any, **kwargs: Any) -> Any:
        passes.append(f"{len(pack.ids)}.{layer}")
        if comes and len(passes) == 4:
            engine.ask("person", 0, 2, prompt=7)
            engine.scheduler.pool(job)
        return attend(pack, layer, *args, **kwargs)

    base = engine.registry.acquire("base")
    job = LogprobJob(base, list(range(9)), lambda _: engine.told.append(("job", Output([], [], ""))))
    engine.may_go.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pack, "attend", attending)
        patch.setattr(pooling, "EVERY", 1)
        engine.ask("rollout", 1, 4, prompt=CHUNK + 72)
        engine.scheduler.start()
        wait_until(lambda: len([name for name, out in engine.told if out.finish or name == "job"]) == 1 + 2 * comes)
        engine.scheduler.stop(0)
        engine.scheduler.join(20)
    logprobs = [logprob for name, out in engine.told if name == "rollout" for logprob in out.logprobs]
    return logprobs, passes, [name for name, _ in engine.told]


def test_in_a_step_that_both_have_a_persons_prompt_goes_first(roomy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "BEHIND", 1)  # every step is one
    steps = watch(roomy)
    roomy.may_go.set()
    roomy.ask("rollout", 1, 1, prompt=400)
    roomy.ask("person", 0, 1, prompt=300)
    roomy.scheduler.start()
    wait_until(lambda: sum(out.finish is not None for _, out in roomy.told) == 2)
    assert steps[0] == [300, CHUNK]
    assert roomy.told[0][0] == "person"
