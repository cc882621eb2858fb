"""Both forward passes against transformers' own: chunks, shared passes, adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from turnwise.errors import AdapterError, ModelError
from turnwise.local_engine.model.adapters import read_adapter
from turnwise.local_engine.model.attention import Pack, SequencePiece
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.kv import SequenceKV
from turnwise.local_engine.model.llama import _PROMPT_ROWS, Linear, LlamaRunner
from turnwise.local_engine.model.runner import Runner, TransformersRunner, load_model
from turnwise.models.number_format import product_in_float32

VOCABULARY = 97
LEAN = ("llama", "mistral", "qwen2", "qwen3")
GENERAL = (*LEAN, "olmo2", "granite")


def make_model(folder: Path, kind: str, **changes: Any) -> Path:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        "sliding_window": None,
        "pad_token_id": None,
        "head_dim": 8,
    }
    config = CONFIG_MAPPING[kind](**(fields | changes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for name, parameter in model.named_parameters():  # biases and norms start as zeros and ones, which hide faults
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.2)
        model.save_pretrained(folder)
    return folder


def make_adapter(folder: Path, model: Path, **changes: Any) -> Path:
    fields: dict[str, Any] = {"r": 3, "lora_alpha": 5, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        base = AutoModelForCausalLM.from_pretrained(model)
        adapted = get_peft_model(base, LoraConfig(**(fields | changes)))
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        adapted.save_pretrained(folder)
    return folder


def runner_of(kind: str, folder: Path, dtype: torch.dtype = torch.float32, max_positions: int = 128) -> Runner:
    checkpoint = StoredWeights(folder)
    model = load_model(folder, dtype)
    if kind == "lean":
        assert LlamaRunner.supports(model.config, checkpoint)
        return LlamaRunner(model.config, checkpoint, dtype, max_positions=max_positions)
    return TransformersRunner(model, checkpoint)


@torch.inference_mode()
def in_chunks(runner: Runner, merged: Any, ids: list[int], *sizes: int, room: int = 128) -> Tensor:
    """Log-probs after each chunk of ``ids``."""
    kv = SequenceKV(runner.kv_shape, room)
    rows, at = [], 0
    for size in sizes:
        pack = Pack([SequencePiece(kv, ids[at : at + size], sample=True)], runner.heads)
        rows.append(runner.forward(merged, pack)[0])
        pack.commit()
        at += size
    return torch.log_softmax(torch.stack(rows).float(), -1)


@torch.inference_mode()
def reference(model: Any, ids: list[int], *sizes: int) -> Tensor:
    ends = torch.tensor(sizes).cumsum(0) - 1
    return torch.log_softmax(model(torch.tensor([ids])).logits[0, ends].float(), -1)


def some_ids(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize(("path", "kind"), [("lean", k) for k in LEAN] + [("general", k) for k in GENERAL])
def test_any_chunking_gives_transformers_log_probs(path: str, kind: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path, kind)
    runner = runner_of(path, folder)
    ids, sizes = some_ids(60), (17, 1, 1, 20, 1, 20)
    expected = reference(AutoModelForCausalLM.from_pretrained(folder), ids, *sizes)
    assert torch.allclose(in_chunks(runner, runner.merge(None), ids, *sizes), expected, atol=1e-4)


@pytest.mark.parametrize("path", ["lean", "general"])
def test_sequences_packed_together_do_not_see_each_other(path: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path, "llama")
    runner = runner_of(path, folder)
    merged = runner.merge(None)
    all_ids = [some_ids(n, seed=n) for n in (5, 30, 12)]
    kvs = [SequenceKV(runner.kv_shape, 128) for _ in all_ids]
    with torch.inference_mode():
        first = Pack(
            [SequencePiece(kv, ids[:-1], False) for kv, ids in zip(kvs[:2], all_ids[:2], strict=True)], runner.heads
        )
        runner.forward(merged, first)
        first.commit()
        # Two that decode and one that begins share a pass.
        spans = [SequencePiece(kv, ids[len(kv.ids) :], True) for kv, ids in zip(kvs, all_ids, strict=True)]
        together = torch.log_softmax(runner.forward(merged, Pack(spans, runner.heads)), -1)
    alone = torch.cat([in_chunks(runner, merged, ids, len(ids)) for ids in all_ids])
    assert torch.allclose(together, alone, atol=1e-4)


@pytest.mark.parametrize("path", ["lean", "general"])
@pytest.mark.parametrize("targets", ["all-linear", ["v_proj", "down_proj"]])
@pytest.mark.parametrize("rslora", [False, True])
def test_a_merged_adapter_computes_what_peft_does(path: str, targets: Any, rslora: bool, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", "llama")
    adapter = make_adapter(tmp_path / "adapter", folder, target_modules=targets, use_rslora=rslora)
    runner = runner_of(path, folder)
    ids, sizes = some_ids(24), (20, 1, 3)
    merged = runner.merge(read_adapter("a", adapter, runner.shapes))
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapter)
    base = AutoModelForCausalLM.from_pretrained(folder)
    found = in_chunks(runner, merged, ids, *sizes)
    assert torch.allclose(found, reference(peft, ids, *sizes), atol=2e-4)
    assert not torch.allclose(found, reference(base, ids, *sizes), atol=0.1)
    assert torch.allclose(in_chunks(runner, runner.merge(None), ids, *sizes), reference(base, ids, *sizes), atol=1e-4)


def test_attention_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "mistral", sliding_window=16)
    checkpoint = StoredWeights(folder)
    model = load_model(folder, torch.float32)
    assert not LlamaRunner.supports(model.config, checkpoint)
    with pytest.raises(ModelError, match="sliding-window"):
        TransformersRunner(model, checkpoint)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda a: (a / "adapter_model.safetensors").unlink(), "adapter_model.safetensors is missing"),
        (lambda a: (a / "adapter_config.json").write_text("{"), "cannot be read"),
        (lambda a: (a / "adapter_config.json").write_text('{"peft_type": "IA3"}'), "does not describe a LoRA"),
        (lambda a: _cut(a / "adapter_model.safetensors"), "cannot be read"),
        (lambda a: _edit(a, use_dora=True), "use_dora"),
        (lambda a: _edit(a, r=7), "does not fit"),
    ],
    ids=["no weights", "bad json", "another kind", "cut weights", "dora", "wrong rank"],
)
def test_a_faulty_adapter_is_refused_with_the_reason(fault: Any, says: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", "llama")
    adapter = make_adapter(tmp_path / "adapter", folder)
    fault(adapter)
    with pytest.raises(AdapterError, match=says):
        read_adapter("a", adapter, runner_of("lean", folder).shapes)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", make_model(tmp_path / "other", "llama", intermediate_size=64))
    runner = runner_of("lean", make_model(tmp_path / "model", "llama"))
    with pytest.raises(AdapterError, match="does not fit"):
        read_adapter("a", adapter, runner.shapes)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _edit(adapter: Path, **changes: Any) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_long_chunk_in_bfloat16_is_computed_in_float32_where_that_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is shorter is not, nor what decodes; both give what float32 gives, as near as bfloat16 is."""
    made: list[int] = []

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made.append(len(x))
        return product_in_float32(x, weight, bias)

    monkeypatch.setattr("turnwise.local_engine.model.llama.product_in_float32", counted)
    folder = make_model(tmp_path, "qwen2", max_position_embeddings=512)
    runner = runner_of("lean", folder, torch.bfloat16, max_positions=512)
    ids, sizes = some_ids(400), (_PROMPT_ROWS, 100, 1)
    expected = reference(AutoModelForCausalLM.from_pretrained(folder), ids[: sum(sizes)], *sizes)
    for faster in (False, True):
        monkeypatch.setattr("turnwise.local_engine.model.llama.many_rows_in_float32", lambda faster=faster: faster)
        found = in_chunks(runner, runner.merge(None), ids, *sizes, room=512)
        linear = runner.merge(None).layers[0].qkv
        assert made == ([_PROMPT_ROWS] * 5 * 2 if faster and linear.packed else [])
        assert float((found - expected).norm()) < 0.05 * float(expected.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["plain", "silu", "times"])
def test_products_in_float32_are_rounded_once(kind: str, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those in oneDNN's layout are, whose activations are computed before they are rounded."""
    monkeypatch.setattr("turnwise.local_engine.model.llama.many_rows_in_float32", lambda: True)
    numbers = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, 64, generator=numbers).bfloat16() for rows in (_PROMPT_ROWS, 48))
    other = torch.randn(_PROMPT_ROWS, 48, generator=numbers).bfloat16()
    added = torch.randn(48, generator=numbers).bfloat16() if bias else None
    linear = Linear.of(weight, added, torch.bfloat16)
    if not linear.packed:
        pytest.skip("this processor lays no bfloat16 weights out")
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if added is None else added.double())
    ways = {
        "plain": (linear(x), exact),
        "silu": (linear.silu(x), torch.nn.functional.silu(exact)),
        "times": (linear.times(x, other), exact * other.double()),
    }
    found, wanted = ways[kind]
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.double(), wanted, rtol=2**-8, atol=1e-4)  # half a step of bfloat16
