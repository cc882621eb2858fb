"""Any transformers causal language model as a function from packed tokens to logits, with swappable weights.

The model's own modules compute everything but attention, which ``Pack`` does on our buffers. ``llama.py`` does the
same with less overhead for the architectures it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from turnwise.errors import ModelError
from turnwise.local_engine.model.adapters import Adapter
from turnwise.local_engine.model.attention import Pack
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.kv import KVShape
from turnwise.local_engine.model.whole import WholeModel

BASE = "base"
"""The name under which the weights without an adapter are served."""


@dataclass(slots=True, eq=False)
class Weights:
    """One set of weights a request can name. ``merged`` is what the runner made of it; None until it is needed."""

    name: str
    adapter: Adapter | WholeModel | None
    merged: Any = None


class Runner(Protocol):
    """What the scheduler needs of a model."""

    kv_shape: KVShape
    heads: int
    vocab_size: int
    max_positions: int
    shapes: Mapping[str, tuple[int, ...]]
    """Names and shapes of the weights that an adapter may change."""
    weights: Mapping[str, tuple[int, ...]]
    """Those of all weights in the model's folder."""

    def merge(self, change: Adapter | WholeModel | None) -> Any:
        """Weights ready for ``forward``. May run beside a forward pass in another thread. Raises AdapterError."""
        ...

    def forward(self, merged: Any, pack: Pack) -> Tensor:
        """Logits [S, V] after the last token of every span that wants them."""
        ...

    def hidden(self, merged: Any, pack: Pack, layers: Sequence[int]) -> list[Tensor]:
        """The residual stream [N, H] behind so many blocks, for each of ``layers``, in float32. Not of the last one."""
        ...


class TransformersRunner:
    """The general path: the model's own forward, with an attention function of ours registered under ``turnwise``."""

    def __init__(self, model: PreTrainedModel, checkpoint: StoredWeights) -> None:
        config = model.config.get_text_config()
        _refuse_unsupported(model, config)
        self._model = model
        self._checkpoint = checkpoint
        self.heads = config.num_attention_heads
        self.vocab_size: int = config.vocab_size
        self.max_positions = config.max_position_embeddings
        dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.kv_shape = KVShape(config.num_hidden_layers, config.num_key_value_heads, dim, model.dtype)
        self.shapes: Mapping[str, tuple[int, ...]] = linear_shapes(model)
        self.weights: Mapping[str, tuple[int, ...]] = checkpoint.shapes
        ALL_ATTENTION_FUNCTIONS.register("turnwise", _attention)
        model.set_attn_implementation("turnwise")

    def merge(self, change: Adapter | WholeModel | None) -> dict[str, Tensor]:
        dtype = self._model.dtype
        if change is None:
            return {}
        if isinstance(change, Adapter):
            return {name: change.merged(name, self._base).to(dtype) for name in change.factors}
        read: dict[int, Tensor] = {}
        for name, parameter in self._model.named_parameters():  # a tied weight counts once here, and twice below
            read[id(parameter)] = change.tensor(name).to(dtype)
        return {name: read[id(p)] for name, p in self._model.named_parameters(remove_duplicate=False)}

    def forward(self, merged: dict[str, Tensor], pack: Pack) -> Tensor:
        kwargs = {
            "input_ids": pack.ids[None],
            "position_ids": pack.positions[None],
            "use_cache": False,
            "logits_to_keep": pack.last,
            "pack": pack,
        }
        return torch.func.functional_call(self._model, merged, kwargs=kwargs, tie_weights=False).logits[0]

    def hidden(self, merged: dict[str, Tensor], pack: Pack, layers: Sequence[int]) -> list[Tensor]:
        kwargs = {
            "input_ids": pack.ids[None],
            "position_ids": pack.positions[None],
            "use_cache": False,
            "logits_to_keep": pack.last,
            "output_hidden_states": True,
            "pack": pack,
        }
        states = torch.func.functional_call(self._model, merged, kwargs=kwargs, tie_weights=False).hidden_states
        return [states[n][0].float() for n in layers]

    def _base(self, name: str) -> Tensor:
        # A few architectures are renamed or reshaped on loading; then the served weight has to do.
        if self._checkpoint.shapes.get(name) == self.shapes[name]:
            return self._checkpoint.tensor(name)
        return self._model.get_parameter(name).float()


def load_model(folder: Path | str, dtype: torch.dtype) -> PreTrainedModel:
    """The model in ``folder``, ready for inference. Raises ModelError when transformers cannot load it."""
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", output_loading_info=True
        )
        model, told = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as e:
        raise ModelError(f"cannot load the model {folder}: {e}") from e
    if lacking := sorted(told["missing_keys"]):
        raise ModelError(f"the weights in {folder} have no {lacking[0]}, which would be random numbers")
    return model.eval().requires_grad_(False)


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of all linear layers' weights but the output head, by name."""
    return {
        f"{name}.weight": tuple(module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name != "lm_head"
    }


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: [1, heads, N, D] in, [1, N, heads, D] out."""
    pack: Pack = kwargs["pack"]
    parts = (t[0].transpose(0, 1) for t in (query, key, value))
    mixed = pack.attend(int(module.layer_idx), *parts, scale=kwargs.get("scaling"))  # pyright: ignore[reportArgumentType]
    return mixed.view(1, query.shape[2], query.shape[1], query.shape[3]), None


def _refuse_unsupported(model: PreTrainedModel, config: Any) -> None:
    """Models whose attention is more than softmax(q k) v would run and be wrong."""
    checks: dict[str, Callable[[], bool]] = {
        "an attention of its own": lambda: not model._supports_attention_backend,
        "sliding-window attention": lambda: bool(
            getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        ),
        "soft-capped attention": lambda: bool(getattr(config, "attn_logit_softcapping", None)),
        "no plain key/value heads": lambda: not getattr(config, "num_key_value_heads", None),
    }
    for what, applies in checks.items():
        if applies():
            raise ModelError(
                f"{type(model).__name__} has {what}, which the local engine cannot run; serve it with vLLM"
            )
