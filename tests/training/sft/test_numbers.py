"""The loss of a fine-tuning, its gradient, its schedule and its steps against naive ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import get_cosine_schedule_with_warmup

from tests.training.sft.chat_model import random_rows, random_texts, sft_home
from tests.training.tiny import VOCABULARY, no_tick, shake, train_config
from turnwise.errors import ModelError
from turnwise.training.backends.local import LocalBackend
from turnwise.training.batching import Row, Span, TokenText, row_of
from turnwise.training.policy import Policy
from turnwise.training.sft.plan import set_aside, steps_of_epoch
from turnwise.training.sft.schedule import cosine
from turnwise.training.step import NotFinite
from turnwise.training.supervised import learned_tokens, likelihood_loss, packs_of, rows_of, supervised_step


def naive_loss(policy: Policy, rows: list[Row]) -> Tensor:
    """Row after row alone, whole logits, one mean over all learned tokens; nothing shared but the model."""
    terms = []
    for row in rows:
        logits = policy.model(input_ids=torch.tensor([row.ids])).logits[0]
        table = torch.log_softmax(logits.to(torch.float64), dim=-1)
        terms += [-table[k - 1, row.ids[k]] for span in row.spans for k in range(span.start, span.end)]
    return torch.stack(terms).mean()


def apart(texts: list[TokenText]) -> list[Row]:
    return [row_of(t.sample, t.prompt_ids, t.response_ids) for t in texts]


def gradient(policy: Policy) -> list[Tensor]:
    found = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
    assert len(found) == len(policy.parameters())
    return found


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("room", [16, 64, 96, 4096])
def test_loss_and_gradient_equal_the_naive_ones(policy: Policy, room: int, forks: bool) -> None:
    """Each answer alone beside rows in which a conversation's texts share what they have in common, packed or not."""
    policy.model.double()
    policy.reads_forks = forks
    shake(policy)
    texts = random_texts(7, VOCABULARY)
    rows = rows_of(policy, texts)
    assert any(row.forks for row in rows) is forks
    found = likelihood_loss(policy, rows, room, no_tick, learn=True)
    ours = gradient(policy)
    expected = naive_loss(policy, apart(texts))
    theirs = torch.autograd.grad(expected, policy.parameters())
    assert found == pytest.approx(expected.item(), abs=1e-9)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < 1e-7
    assert max(float(b.abs().max()) for b in theirs) > 1e-2, "there is something to compare"


def test_what_is_only_measured_has_the_same_loss_and_no_gradient(policy: Policy) -> None:
    shake(policy)
    rows = random_rows(5, VOCABULARY)
    learned = likelihood_loss(policy, rows, 96, no_tick, learn=True)
    policy.model.zero_grad()
    assert likelihood_loss(policy, rows, 96, no_tick, learn=False) == pytest.approx(learned, rel=1e-6)
    assert all(p.grad is None or not p.grad.any() for p in policy.parameters())


def test_packed_rows_say_what_padded_ones_do(policy: Policy) -> None:
    shake(policy)
    rows = rows_of(policy, random_texts(6, VOCABULARY))
    assert policy.packs
    assert any(row.forks for row in rows)
    assert torch.allclose(policy.packed_hidden(rows), policy.hidden(rows), atol=1e-5)
    plain = [row for row in rows if not row.forks]
    assert torch.allclose(policy.packed_hidden(plain), policy.hidden(plain), atol=1e-5)


def test_where_memory_runs_out_passes_become_smaller_and_the_step_is_the_same(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sft_home(tmp_path, tiny_dir, **{"train.microbatch_tokens": 512})
    texts, found = random_texts(12, VOCABULARY), []
    for room in (10_000, 130):
        backend = LocalBackend(config, tiny_dir)
        backend.policy.model.double()
        backend.prepare(0, fresh=True)
        forward = backend.policy.packed_hidden

        def with_little_memory(rows: list[Row], recompute: bool = False, room: int = room, of: Any = forward) -> Tensor:
            if sum(len(row.ids) for row in rows) > room:
                raise torch.OutOfMemoryError
            return of(rows, recompute)

        monkeypatch.setattr(backend.policy, "packed_hidden", with_little_memory)
        before = backend.imitation_loss(texts, no_tick)
        found.append((before, backend.imitate(texts, 1e-3, no_tick), backend.snapshot()[0]))
    (loss, step, weights), (less, same_step, same_weights) = found
    assert less == pytest.approx(loss, abs=1e-9)
    assert same_step == pytest.approx(step, abs=1e-9)
    assert all(torch.allclose(weights[name], same_weights[name], atol=1e-9) for name in weights)
    monkeypatch.setattr(backend.policy, "packed_hidden", lambda rows, recompute: with_little_memory(rows, room=1))
    with pytest.raises(ModelError, match="or --context of `turnwise sft`"):
        backend.imitate(texts, 1e-3, no_tick)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral", "gemma2", "gpt_neox"])
def test_every_family_reads_packed_rows_apart_or_is_found_not_to(tmp_path: Path, family: str, tiny_dir: Path) -> None:
    """Also those with positions of their own making or a sliding window."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.25,
        sliding_window=8,
        eos_token_id=257,
        pad_token_id=0,
        final_logit_softcapping=None,
    )
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((tiny_dir / "tokenizer.json").read_bytes())
    one = Policy(tmp_path, train_config())
    rows = random_rows(4, VOCABULARY)
    alone = torch.cat([one.hidden([row]) for row in rows])
    assert one.packs
    assert torch.allclose(one.packed_hidden(rows), alone, atol=1e-4)


def test_a_model_that_sees_through_is_found_out(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes no notice of positions: what it says of the second row depends on the first."""
    forward = policy._backbone.forward

    def blind(*args: object, position_ids: object = None, **kwargs: object) -> object:
        return forward(*args, **kwargs)

    monkeypatch.setattr(policy._backbone, "forward", blind)
    assert not policy.packs
    rows = random_rows(3, VOCABULARY)
    expected = naive_loss(policy, rows).item()
    assert likelihood_loss(policy, rows, 4096, no_tick, learn=False) == pytest.approx(expected, abs=1e-5)


def test_the_schedule_is_that_of_transformers() -> None:
    for steps, warm_up in ((1, 0), (7, 0), (10, 1), (40, 12), (5, 5)):
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        theirs = get_cosine_schedule_with_warmup(optimizer, warm_up, steps)
        for step in range(steps):
            assert cosine(step, steps, warm_up) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
            optimizer.step()
            theirs.step()


def test_a_run_of_steps_equals_a_naive_loop(tmp_path: Path, tiny_dir: Path) -> None:
    """Weights after six steps beside torch's own AdamW, clip and scheduler on the naive loss, in float64."""
    lr, steps, warm_up = 5e-3, 6, 2
    config = sft_home(tmp_path, tiny_dir, **{"train.grad_clip": 0.5, "train.weight_decay": 0.1})
    backend = LocalBackend(config, tiny_dir)
    backend.prepare(0, fresh=True)
    reference = Policy(tiny_dir, config.train)
    for policy in (backend.policy, reference):
        policy.model.double()
        shake(policy)
    batches = [random_texts(4, VOCABULARY, seed) for seed in range(steps)]
    norms = [
        backend.imitate(texts, lr * cosine(i, steps, warm_up), no_tick)["grad_norm"] for i, texts in enumerate(batches)
    ]

    optimizer = torch.optim.AdamW(reference.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, warm_up, steps)
    for texts, norm in zip(batches, norms, strict=True):
        optimizer.zero_grad()
        naive_loss(reference, apart(texts)).backward()
        assert float(torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)) == pytest.approx(norm, rel=1e-7)
        optimizer.step()
        schedule.step()
    assert max(norms) > 0.5, "the clip does something"
    for ours, theirs in zip(backend.policy.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_step_without_a_finite_gradient_moves_nothing(policy: Policy) -> None:
    optimizer = torch.optim.AdamW(policy.parameters())
    rows = random_rows(3, VOCABULARY)
    shake(policy)
    supervised_step(policy, optimizer, rows, 1e-3, 256, 1.0, no_tick)
    before, moments = policy.state(), len(optimizer.state)
    name, weight = next((n, p) for n, p in policy.model.named_parameters() if not p.requires_grad and "mlp" in n)
    kept = weight.data.clone()
    weight.data[0, 0] = math.nan
    with pytest.raises(NotFinite):
        supervised_step(policy, optimizer, rows, 1e-3, 256, 1.0, no_tick)
    assert all(torch.equal(policy.state()[n], t) for n, t in before.items()), name
    assert len(optimizer.state) == moments
    weight.data = kept
    supervised_step(policy, optimizer, rows, 1e-3, 256, 1.0, no_tick)


@given(lengths=st.lists(st.integers(2, 90), min_size=1, max_size=40), room=st.integers(16, 128))
def test_packs_hold_every_row_once_and_no_more_than_their_room(lengths: list[int], room: int) -> None:
    rows = [Row([n] * length, [Span(n, 1, length)]) for n, length in enumerate(lengths)]
    packs = packs_of(rows, room)
    assert sorted(row.ids[0] for pack in packs for row in pack) == list(range(len(rows)))
    assert all(len(pack) == 1 or sum(len(row.ids) for row in pack) <= room for pack in packs)
    assert sum(map(learned_tokens, packs)) == sum(lengths) - len(lengths)


@given(tokens=st.lists(st.integers(1, 500), min_size=1, max_size=60), size=st.integers(1, 1000), seed=st.integers(0, 9))
def test_an_epoch_has_every_conversation_once_in_even_steps(tokens: list[int], size: int, seed: int) -> None:
    steps = steps_of_epoch(tokens, size, seed, 0)
    assert sorted(i for step in steps for i in step) == list(range(len(tokens)))
    assert all(step for step in steps)
    assert all(sum(tokens[i] for i in step) <= size + 2 * max(tokens) for step in steps)
    assert steps == steps_of_epoch(tokens, size, seed, 0)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    tokens = [10] * 20
    orders = {str(steps_of_epoch(tokens, 50, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_doubles_are_set_aside_together() -> None:
    digests = [bytes([i % 7]) for i in range(40)]
    for seed in range(20):
        learn, aside = set_aside(digests, 0.1, seed)
        assert sorted(learn + aside) == list(range(40))
        assert aside
        assert not {digests[i] for i in learn} & {digests[i] for i in aside}
    assert set_aside(digests, 0.0, 0)[1] == []
    assert set_aside([b"x"], 0.5, 0) == ([0], [])
