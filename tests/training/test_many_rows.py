"""Projections in bfloat16 that compute in float32 where they are asked for many rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.training.tiny import ids
from turnwise.config import TrainConfig
from turnwise.models.number_format import MANY_ROWS, product_in_float32
from turnwise.training.batching import TokenText
from turnwise.training.policy import Policy
from turnwise.training.weights.laid_out import LEAST, _either, laid_out
from turnwise.training.weights.many_rows import ManyRowsLinear, product, use_float32

IN, OUT = 48, 80


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.mark.parametrize("shape", [(MANY_ROWS, IN), (2, MANY_ROWS // 2, IN), (3, MANY_ROWS, IN)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_many_rows_are_as_near_to_float64_as_a_rounded_product_can_be(shape: tuple[int, ...], with_bias: bool) -> None:
    x, weight = _numbers(*shape), _numbers(OUT, IN, seed=1)
    bias = _numbers(OUT, seed=2) if with_bias else None
    found = product(x, weight, bias)
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-4)  # half a step of bfloat16


def test_the_gradient_is_that_of_the_plain_product() -> None:
    x, weight, up = _numbers(3, MANY_ROWS, IN), _numbers(OUT, IN, seed=1), _numbers(3, MANY_ROWS, OUT, seed=2)
    learns = x.clone().requires_grad_()
    product(learns, weight, None).backward(up)
    assert learns.grad is not None and learns.grad.dtype == torch.bfloat16
    assert torch.allclose(learns.grad.double(), up.double() @ weight.double(), rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_few_rows_and_other_formats_are_left_alone(dtype: torch.dtype) -> None:
    rows = MANY_ROWS - 1 if dtype == torch.bfloat16 else 4 * MANY_ROWS
    x, weight = _numbers(rows, IN).to(dtype), _numbers(OUT, IN, seed=1).to(dtype)
    assert torch.equal(product(x, weight, None), F.linear(x, weight))


def test_no_copy_of_a_weight_is_kept_for_the_backward_pass() -> None:
    weight, kept = _numbers(OUT, IN, seed=1), list[Tensor]()

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        product(_numbers(MANY_ROWS, IN).requires_grad_(), weight, None)
    assert [tensor.data_ptr() for tensor in kept] == [weight.data_ptr()]


def test_of_a_model_the_plain_projections_in_bfloat16_are_such_ones_and_keep_their_weights() -> None:
    model = nn.Sequential(nn.Linear(IN, OUT), nn.LayerNorm(OUT), nn.Linear(OUT, IN, bias=False)).bfloat16()
    model.append(nn.Linear(IN, OUT))
    before = [p.data_ptr() for p in model.parameters()]
    use_float32(model)
    assert [type(part) for part in model] == [ManyRowsLinear, nn.LayerNorm, ManyRowsLinear, nn.Linear]
    assert [p.data_ptr() for p in model.parameters()] == before
    x = _numbers(MANY_ROWS, IN)
    assert torch.equal(model[0](x), product_in_float32(x, model[0].weight, model[0].bias).bfloat16())


def test_laid_out_they_compute_many_rows_as_before() -> None:
    model = nn.Sequential(nn.Linear(LEAST, LEAST)).bfloat16().requires_grad_(False)
    use_float32(model)
    x = _numbers(MANY_ROWS, LEAST)
    many, few = model(x), model(x[:4])
    with torch.no_grad(), laid_out(model, (_numbers(LEAST, LEAST), None)) as project:
        assert ("forward" in vars(model[0])) == (project is not None), "as far as this processor lays weights out"
        assert torch.equal(model(x), many)
        assert torch.allclose(model(x[:4]).float(), few.float(), rtol=0.02, atol=0.02)
    assert "forward" not in vars(model[0])
    assert torch.equal(model(x), many)


def test_the_layout_is_asked_for_few_rows_and_by_plain_projections_for_all() -> None:
    linear, asked = nn.Linear(IN, OUT).bfloat16(), list[int]()

    def ordered(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x

    _either(linear, linear.forward, ordered)(_numbers(MANY_ROWS, IN))
    use_float32(linear)
    for rows in (1, MANY_ROWS - 1, MANY_ROWS):
        _either(linear, linear.forward, ordered)(_numbers(rows, IN))
    assert asked == [MANY_ROWS, 1, MANY_ROWS - 1]


@pytest.mark.parametrize("weights", ["lora", "full"])
@pytest.mark.parametrize("faster", [True, False])
def test_a_policy_takes_them_where_they_are_faster_and_only_beside_an_adapter(
    weights: str, faster: bool, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.training.policy.many_rows_in_float32", lambda: faster)
    config = TrainConfig.model_validate({"dtype": "bfloat16", "device": "cpu", "weights": weights})
    policy = Policy(tiny_dir, config)
    taken = {type(part) for part in policy.model.modules()} & {ManyRowsLinear}
    assert bool(taken) == (faster and weights == "lora")


def test_a_policy_says_and_learns_with_them_what_it_does_in_float32(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made.append(x.shape[0] * x.shape[1])
        return product_in_float32(x, weight, bias)

    monkeypatch.setattr("turnwise.training.weights.many_rows.product_in_float32", counted)

    def read(dtype: str, faster: bool) -> tuple[Tensor, list[Tensor]]:
        monkeypatch.setattr("turnwise.training.policy.many_rows_in_float32", lambda: faster)
        policy = Policy(tiny_dir, TrainConfig.model_validate({"dtype": dtype, "device": "cpu"}))
        generator = torch.Generator().manual_seed(3)
        for name, parameter in policy.weights.named().items():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.05, generator=generator)
        hidden = policy.hidden(policy.rows_of([TokenText(0, ids(1, 90), ids(2, 60))]))
        policy.logits(hidden).logsumexp(-1).sum().backward()
        return hidden.detach().float(), [p.grad for p in policy.parameters() if p.grad is not None]

    exact, learned = read("float32", False)
    plain, plainly = read("bfloat16", False)
    assert not made
    found, gradients = read("bfloat16", True)
    assert made == [150] * 14, "each of seven projections of both blocks, once"
    assert len(gradients) == len(learned) > 0

    def off(those: list[Tensor], exactly: list[Tensor]) -> float:
        away = sum(float((one - other).norm() ** 2) for one, other in zip(those, exactly, strict=True))
        return float((away / sum(float(other.norm() ** 2) for other in exactly)) ** 0.5)

    assert off([plain], [exact]) < 0.05 and off([found], [exact]) < 0.05, "bfloat16 itself is half of that away"
    assert off(plainly, learned) < 0.1 and off(gradients, learned) < 0.1
