"""Weights laid out for sampling give what the plain ones give, and are gone afterwards."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear as LoraLinear
from torch import nn

from turnwise.config import TrainConfig
from turnwise.models.number_format import AUTO, processor_format, stored_formats
from turnwise.training import policy as policy_module
from turnwise.training.asking import sample_answers
from turnwise.training.policy import Policy
from turnwise.training.weights.laid_out import LEAST, laid_out

WIDE = LEAST * 2


def _model(dtype: torch.dtype) -> tuple[nn.Sequential, nn.Linear]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDE, LEAST), nn.Linear(LEAST, 16, bias=False), nn.Linear(16, WIDE)).to(dtype)
    return model, nn.Linear(WIDE, 1000, bias=False).to(dtype)


OURS = processor_format(AUTO)


@pytest.mark.parametrize("rows", [1, 7, 16, 40])
def test_they_give_what_the_plain_ones_give(rows: int) -> None:
    model, head = _model(OURS)
    x = torch.randn(rows, 1, WIDE, dtype=OURS)
    exact, exact_head = copy.deepcopy(model).float(), copy.deepcopy(head).float()
    with torch.no_grad(), laid_out(model, (head.weight, None)) as project:
        assert project is not None
        assert ["forward" in vars(linear) for linear in model] == [True, False, False], "a narrow one is left alone"
        found, said = model(x), project(x)
    assert not any("forward" in vars(linear) for linear in model)
    assert torch.allclose(found.float(), exact(x.float()), rtol=0.02, atol=0.02)
    assert torch.allclose(said.float(), exact_head(x.float()), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("adds", "merge"), [(True, True), (False, True), (True, False)])
def test_what_an_adapter_adds_is_merged_where_it_adds_something_and_may_be(adds: bool, merge: bool) -> None:
    model, head = _model(OURS)
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["0"], init_lora_weights=False)
    adapted = inject_adapter_in_model(settings, model)
    layer = cast(LoraLinear, adapted.get_submodule("0"))
    layer.enable_adapters(adds)
    x = torch.randn(7, 1, WIDE, dtype=OURS)
    with torch.no_grad():
        usual, plain = layer(x), layer.get_base_layer()(x)
        with laid_out(adapted, (head.weight, None), merge) as project:
            assert project is not None
            patched = ["forward" in vars(one) for one in (layer, layer.get_base_layer())]
            merged = adds and merge
            assert patched == [merged, not merged], "either both in one product, or the base alone"
            found = layer(x)
    assert not any("forward" in vars(module) for module in adapted.modules())
    assert torch.allclose(found.float(), usual.float(), rtol=0.03, atol=0.03)
    assert torch.allclose(usual.float(), plain.float(), rtol=0.03, atol=0.03) is not adds


def test_other_number_formats_and_a_full_memory_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, head = _model(torch.float64)
    with laid_out(model, (head.weight, None)) as project:
        assert project is None and not any("forward" in vars(linear) for linear in model)
    model, head = _model(OURS)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with laid_out(model, (head.weight, None)) as project:
        assert project is None and not any("forward" in vars(linear) for linear in model)


def test_a_fault_meanwhile_leaves_the_model_as_it_was() -> None:
    model, head = _model(OURS)
    with pytest.raises(RuntimeError, match="in the middle"), laid_out(model, (head.weight, head.bias)):
        raise RuntimeError("in the middle")
    assert not any("forward" in vars(linear) for linear in model)


def test_memory_is_given_back_before_there_is_asked_for_room_and_behind_the_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr("turnwise.training.weights.laid_out.give_back", lambda: told.append("given back"))
    free = type("Memory", (), {"available": 2**40})
    monkeypatch.setattr("psutil.virtual_memory", lambda: (told.append("asked"), free)[1])
    model, head = _model(OURS)
    with laid_out(model, (head.weight, head.bias)) as project:
        assert project is not None
        told.append("used")
    assert told == ["given back", "asked", "used", "given back"]


@pytest.mark.parametrize(("dtype", "merged"), [("float32", True), ("bfloat16", False)])
def test_a_policy_merges_its_adapter_where_the_base_is_here_as_it_is_stored(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, merged: bool
) -> None:
    """The local engine adds an adapter to the stored weights: of rounded ones small changes would be lost."""
    assert stored_formats(tiny_dir) == {torch.float32}
    asked: list[bool] = []
    usual = policy_module.laid_out

    def watched(model: nn.Module, head: Any, merge: bool = False) -> Any:
        asked.append(merge)
        return usual(model, head, merge)

    monkeypatch.setattr(policy_module, "laid_out", watched)
    policy = Policy(tiny_dir, TrainConfig.model_validate({"dtype": dtype, "device": "cpu", "lora_rank": 4}))
    sample_answers(policy, [[1, 2, 3]], 2, 0, temperature=0.0)
    assert asked == [merged]
