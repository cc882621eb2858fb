"""The backend on a server: signs, zeroes, denominators, the steps of the local one, and what it publishes.

Each runs on a stand-in, and on the real client with a real server where that is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.homes import Bench, Killed, feed, feed_probes, same
from tests.training.hosted.conftest import backend_of, weights_of
from tests.training.stepping import taught
from tests.training.tiny import batch, by_the_model, ids, no_tick, plain_model, sample
from turnwise.errors import AdapterError
from turnwise.training.backends import tinker
from turnwise.training.backends.local import LocalBackend
from turnwise.training.backends.tinker import TinkerBackend
from turnwise.training.batching import TokenText
from turnwise.training.hosted.folding import Targets
from turnwise.training.publish import version_dir
from turnwise.training.step import NotFinite
from turnwise.training.weights.files import load_version_dir
from turnwise.types import Sample

HUGE = 1e6
"""Beside a gradient, AdamW's ε of this size leaves the gradient itself as its first step."""


def plain(n: int, **changes: object) -> Sample:
    return sample(n, **({"temperature": 1.0, "hint": None} | changes))


def changes_of(backend: TinkerBackend, samples: Sequence[Sample], steps: int = 1) -> list[float]:
    """By how much each answer became more likely."""
    data = batch(list(samples))
    backend.prepare(0)
    before = backend.signals(data, no_tick)
    for _ in range(steps):
        backend.step(data, before, range(len(samples)), no_tick)
    after = backend.signals(data, no_tick)
    return [(a.old - b.old).sum().item() for a, b in zip(after, before, strict=True)]


def test_a_good_answer_becomes_more_likely_and_a_bad_one_less(at_server: Callable[..., Bench]) -> None:
    backend = backend_of(at_server(**{"train.method": "binary"}))
    bad, good = changes_of(backend, [plain(2), plain(1)])
    assert bad < 0 < good


def test_an_answer_moves_the_way_its_hint_points(at_server: Callable[..., Bench], tiny_dir: Path) -> None:
    """Two turns, because the baseline is the mean over the batch: alone, a turn is its own baseline."""
    liked, disliked = taught(tiny_dir, teacher_likes_it=True), taught(tiny_dir, teacher_likes_it=False)
    backend = backend_of(at_server(**{"train.method": "opd", "train.beta_kl": 0.0, "train.teacher": "policy"}))
    up, down = changes_of(backend, [liked, disliked], steps=3)
    assert up > 0 > down


@pytest.mark.parametrize("teacher", ["base", "policy"])
def test_a_teacher_that_reads_nothing_more_teaches_nothing(
    at_server: Callable[..., Bench], teacher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_hint(_tokenizer: object, one: Sample, index: int) -> TokenText:
        return TokenText(index, one.prompt_ids, one.response_ids)

    monkeypatch.setattr(tinker, "hinted_text", without_hint)
    backend = backend_of(at_server(**{"train.method": "opd", "train.teacher": teacher}))
    backend.prepare(0)
    for signals in backend.signals(batch([sample(1), sample(2), sample(3)]), no_tick):
        assert signals.advantage.abs().max() < 1e-4


def test_log_probs_are_those_of_the_whole_text_alone(at_server: Callable[..., Bench], tiny_dir: Path) -> None:
    backend = backend_of(at_server())
    backend.prepare(0)
    one = plain(3)
    (signals,) = backend.signals(batch([one]), no_tick)
    expected = by_the_model(plain_model(tiny_dir, None, backend._config), one.prompt_ids, one.response_ids, 1.0)
    assert (signals.old - expected).abs().max() < 1e-4
    assert (signals.ref - expected).abs().max() < 1e-4


def trained_once(at_server: Callable[..., Bench], **changes: object) -> Bench:
    """A home with a version, so that both matrices of the adapter have a gradient."""
    bench = at_server(**({"train.beta_kl": 0.0, "train.grad_clip": 1e9, "train.minibatch": 5} | changes))
    feed(bench.journal, range(1, 5))
    assert bench.claim_and_work()
    assert bench.journal.versions.latest() == 1
    return bench


def local_of(bench: Bench, **changes: object) -> LocalBackend:
    """The local backend at the same version."""
    train = bench.config.train.model_copy(update={"backend": "local"} | changes)
    local = LocalBackend(bench.config.model_copy(update={"train": train}), Path(bench.config.model.path))
    local.prepare(1, fresh=True)
    return local


SIZES = [plain(1), plain(2, reward=-1.0), plain(3), plain(6), plain(7, prompt_ids=ids(2, 10))]
"""Answers of different lengths behind prompts of different lengths."""


@pytest.mark.parametrize("aggregation", ["turn-mean", "token-mean"])
def test_the_gradient_is_that_of_one_whole_step_here(
    at_server: Callable[..., Bench], aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the server cuts it into passes. One turn has no score, and is in no denominator of the others."""
    bench = trained_once(at_server, **{"train.aggregation": aggregation, "train.weight_decay": 0.0})
    data, everyone = batch([*SIZES[:4], plain(7, reward=0.0)], parent=1), range(5)
    local = local_of(bench)
    signals = local.signals(data, no_tick)
    optimizer = torch.optim.SGD(local.policy.parameters(), lr=0.0)
    local._optimizer = optimizer
    local.step(data, signals, everyone, no_tick)
    gradient = {n: p.grad for n, p in local.policy.weights.named().items()}

    monkeypatch.setattr(tinker, "EPS", HUGE)
    backend = backend_of(bench)
    backend._config = bench.config.train.model_copy(update={"lr": HUGE})
    backend.prepare(1, fresh=True)
    before = weights_of(bench, backend)
    theirs = backend.signals(data, no_tick)
    scale = backend.step(data, theirs, everyone, no_tick)[0]["step_scale"]
    moved = {n: (before[n] - w) / scale for n, w in weights_of(bench, backend).items()}
    assert close(gradient, moved, 2e-3)


def close(expected: dict[str, Tensor | None], found: dict[str, Tensor], part: float) -> bool:
    """Whether no number differs by more than this part of the largest."""
    assert expected.keys() == found.keys()
    largest = max(float(x.abs().max()) for x in expected.values() if x is not None)
    worst = max(float((x - found[n]).abs().max()) for n, x in expected.items() if x is not None)
    assert largest > 1e-3
    return worst < part * largest


def test_a_step_of_adamw_is_the_local_one_to_rounding(at_server: Callable[..., Bench]) -> None:
    bench = trained_once(at_server)
    data, everyone = batch(SIZES, parent=1), range(5)
    local, backend = local_of(bench), backend_of(bench)
    backend.prepare(1, fresh=True)
    start = weights_of(bench, backend)
    for one in (local, backend):
        one.step(data, one.signals(data, no_tick), everyone, no_tick)
    ours, theirs = local.policy.state(), weights_of(bench, backend)
    rate = bench.config.train.lr
    gaps = torch.cat([(ours[n] - theirs[n]).abs().flatten() for n in ours])
    # A step of AdamW is about the rate for any gradient; of one that is all rounding it is the sign that differs.
    assert float(gaps.median()) < 1e-6
    assert float((gaps > rate / 20).float().mean()) < 0.01
    assert float(torch.cat([(ours[n] - start[n]).abs().flatten() for n in ours]).median()) > rate / 2


@pytest.mark.parametrize("how", [{}, {"train.tinker_reduction": "mean"}], ids=["by-default", "of-means"])
def test_fine_tuning_has_the_gradient_of_the_mean_over_all_tokens(
    at_server: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, how: dict[str, object]
) -> None:
    bench = trained_once(at_server, **({"train.weight_decay": 0.0} | how))
    texts = [TokenText(n, ids(n, 9), ids(50 + n, 4 + 3 * n)) for n in range(4)]
    local = local_of(bench)
    local._optimizer = torch.optim.SGD(local.policy.parameters(), lr=0.0)
    expected = local.imitate(texts, 0.0, no_tick)
    gradient = {n: p.grad for n, p in local.policy.weights.named().items()}
    monkeypatch.setattr(tinker, "EPS", HUGE)
    backend = backend_of(bench)
    backend.prepare(1, fresh=True)
    before = weights_of(bench, backend)
    assert backend.imitation_loss(texts, no_tick) == pytest.approx(local.imitation_loss(texts, no_tick), abs=1e-4)
    measured = backend.imitate(texts, HUGE, no_tick)
    assert measured["loss"] == pytest.approx(expected["loss"], abs=1e-4)
    moved = {n: before[n] - w for n, w in weights_of(bench, backend).items()}
    assert close(gradient, moved, 2e-3)


def test_a_fine_tuning_goes_on_from_a_snapshot_as_if_nothing_had_been(at_server: Callable[..., Bench]) -> None:
    bench = at_server()
    texts = [TokenText(n, ids(n, 9), ids(50 + n, 5)) for n in range(3)]
    backend = backend_of(bench)
    backend.prepare(0, fresh=True)
    backend.imitate(texts, 1e-3, no_tick)
    kept = backend.snapshot()
    backend.imitate(texts, 1e-3, no_tick)
    went_on = weights_of(bench, backend)
    backend = backend_of(bench)
    backend.prepare(0, fresh=True)
    backend.restore(*kept)
    backend.imitate(texts, 1e-3, no_tick)
    assert same(weights_of(bench, backend), went_on)


def test_a_step_that_is_not_finite_leaves_nothing_for_the_next_one(
    at_server: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has taken the gradient when its log-probs come back; they are made NaN here, on their way."""
    texts = [TokenText(i, ids(80 + i, 12), ids(90 + i, 6)) for i in range(4)]
    bench = at_server()
    backend = backend_of(bench)
    backend.prepare(0)
    backend.imitate(texts[:2], 3e-2, no_tick)
    begun = backend.snapshot()
    expected = [backend.imitate(texts[:2], 3e-2, no_tick)["loss"], backend.imitation_loss(texts[:2], no_tick)]
    backend.restore(*begun)

    adapter = type(backend._trained)
    with monkeypatch.context() as broken:
        learn = adapter.learn
        broken.setattr(adapter, "learn", lambda *a, **k: [logp * float("nan") for logp in learn(*a, **k)])
        with pytest.raises(NotFinite):
            backend.imitate(texts[2:], 3e-2, no_tick)
    found = [backend.imitate(texts[:2], 3e-2, no_tick)["loss"], backend.imitation_loss(texts[:2], no_tick)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_the_loss_of_answers_as_they_stand_falls(at_server: Callable[..., Bench]) -> None:
    texts = [TokenText(n, ids(n, 9), ids(50 + n, 5)) for n in range(3)]
    backend = backend_of(at_server())
    backend.prepare(0, fresh=True)
    found = [backend.imitate(texts, 3e-3, no_tick)["loss"] for _ in range(4)]
    assert found[-1] < found[0] - 0.1


def test_what_is_published_is_an_adapter_that_says_here_what_it_says_there(
    at_server: Callable[..., Bench], tiny_dir: Path
) -> None:
    bench = trained_once(at_server)
    folder = version_dir(bench.config.versions_dir, 1)
    there = load_version_dir(folder)
    assert there.settings["target_modules"] == [
        *("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"),
    ]
    assert there.meta["turn_ids"] == [f"turn-{n}" for n in range(1, 5)]
    assert there.meta["base_sha256"]
    backend = backend_of(bench)
    backend.prepare(1)
    one = plain(5)
    (theirs,) = backend._trained.logprobs([Targets.of(one.prompt_ids, one.response_ids)])
    model = plain_model(tiny_dir, there.weights, bench.config.train)
    assert (theirs - by_the_model(model, one.prompt_ids, one.response_ids, 1.0)).abs().max() < 1e-4


def test_updates_go_on_from_a_version_and_its_optimiser(at_server: Callable[..., Bench]) -> None:
    bench = trained_once(at_server)
    feed(bench.journal, range(5, 9))
    assert bench.claim_and_work()
    assert [v.parent for v in bench.journal.versions.all()] == [0, 1]
    assert bench.turns() == {"trained": 8}
    assert not same(bench.weights(1), bench.weights(2))


def test_an_update_that_was_killed_is_done_again_to_the_same_weights(
    at_server: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, killed = at_server("undisturbed"), at_server("killed")
    for bench in (undisturbed, killed):
        feed(bench.journal, range(1, 5))
    undisturbed.claim_and_work()
    done, step = [], TinkerBackend.step

    def once(self: TinkerBackend, *args: object) -> object:
        if done:
            raise Killed
        done.append(True)
        return step(self, *args)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(TinkerBackend, "step", once)
        with pytest.raises(Killed):
            killed.claim_and_work()
    killed.expire_lease()
    assert killed.claim_and_work()
    assert same(undisturbed.weights(1), killed.weights(1))
    assert killed.turns() == {"trained": 4}
    one, other = (bench.journal.versions.all()[0] for bench in (undisturbed, killed))
    assert one.turn_ids == other.turn_ids


def test_the_gate_says_what_it_cannot_measure_and_judges_by_the_rest(at_server: Callable[..., Bench]) -> None:
    bench = at_server(**{"gate.answers": 2, "gate.answer_tokens": 16})
    feed_probes(bench.journal)
    feed(bench.journal, range(1, 5))
    bench.claim_and_work()
    feed(bench.journal, range(5, 9))
    bench.claim_and_work()  # its parent is none that the base model could stand for
    for version in bench.journal.versions.all():
        gate = version.gate
        assert {"step_kl", "drift_kl"} <= set(gate["unmeasured"])
        assert gate["accepted"] and gate["alpha"] == 1.0 and gate["probes"] == 3
        for name in ("nll_rise", "answer_drift", "repetition", "length_ratio", "unended"):
            assert isinstance(gate[name], float), name


def test_what_the_gate_refuses_is_not_published_and_goes_back(at_server: Callable[..., Bench]) -> None:
    bench = at_server(**{"gate.answers": 2, "gate.answer_tokens": 16, "gate.max_answer_drift": 1e-9, "train.lr": 0.1})
    feed(bench.journal, range(1, 5))
    bench.claim_and_work()
    assert bench.journal.versions.latest() == 0
    assert bench.turns()["ready"] == 4


def test_a_version_from_here_cannot_be_gone_on_from_there(at_server: Callable[..., Bench], tiny_dir: Path) -> None:
    bench = trained_once(at_server)
    meta = version_dir(bench.config.versions_dir, 1) / "meta.json"
    told = json.loads(meta.read_text())
    backend = backend_of(bench)
    meta.write_text(json.dumps({name: value for name, value in told.items() if name != "tinker"}))
    with pytest.raises(AdapterError, match="was not trained by a server"):
        backend.prepare(1)
    meta.write_text(json.dumps(told | {"tinker": told["tinker"] + "-gone"}))
    with pytest.raises(AdapterError):
        backend.prepare(1)


def test_a_sample_without_finite_log_probs_is_left_out(
    at_server: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(at_server(**{"train.method": "combined"}))
    backend.prepare(0)
    sound = backend._trained.logprobs

    def poisoned(texts: Sequence[Targets]) -> list[Tensor]:
        first, *rest = sound(texts)
        return [first * float("nan"), *rest]

    monkeypatch.setattr(backend._trained, "logprobs", poisoned)
    data = batch([sample(1), sample(2), sample(3)])
    metrics, guilty = backend.step(data, backend.signals(data, no_tick), range(3), no_tick)
    assert guilty == [0]
    assert all(torch.isfinite(torch.tensor(value)) for value in metrics.values())
