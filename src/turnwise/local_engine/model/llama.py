"""The Llama family (Llama, Mistral, Qwen2, Qwen3) with as little between the matrix products as possible.

Computes what transformers' modules compute, from the same checkpoint, two to three times as fast on a CPU: query, key
and value share a product, the gate is fused into its products, and the weights are laid out once for oneDNN.
Tests hold it to the transformers forward. Models it does not know go the general way (``runner.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from turnwise.local_engine.model.adapters import Adapter
from turnwise.local_engine.model.attention import Pack
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.kv import KVShape
from turnwise.local_engine.model.whole import WholeModel
from turnwise.models.architectures import LEAN, LEAN_BEHIND_EYES
from turnwise.models.number_format import many_rows_in_float32, native_bfloat16, product_in_float32

_STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
OTHER_SECTION = (24, 20, 20)
"""Of how many numbers of a head's half each axis is, as transformers has it for a folder that does not say."""
_PACK_ROWS = 16
"""Batch size the layout is chosen for. Any other gives the same numbers, and here the same speed."""
_PROMPT_ROWS = 256
"""From here on a weight comes out of its layout in less time than float32 saves: with 256 rows 84 GFLOP/s became 96 to
100, with 512 115 to 122; with 128 83 became 76 (one core of a Xeon without AMX, 2026-11-29)."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight [out, in] and its bias, laid out for this CPU where oneDNN can (``packed``)."""

    weight: Tensor
    bias: Tensor | None
    packed: bool

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        if not _can_pack(dtype):
            return Linear(weight, bias, packed=False)
        return Linear(torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS), bias, packed=True)

    def __call__(self, x: Tensor) -> Tensor:
        if self._in_float32(x):
            return self._computed(x).to(x.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)

    def silu(self, x: Tensor) -> Tensor:
        if self._in_float32(x):
            return F.silu(self._computed(x)).to(x.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "swish", [], "")
        return F.silu(F.linear(x, self.weight, self.bias))

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        if self._in_float32(x):
            return (self._computed(x) * other).to(x.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "mul")
        return F.linear(x, self.weight, self.bias) * other

    def _in_float32(self, x: Tensor) -> bool:
        """Whether these are a chunk of a prompt that is computed faster in float32, the weight's way out of its layout
        included."""
        return self.packed and x.dtype == torch.bfloat16 and len(x) >= _PROMPT_ROWS and many_rows_in_float32()

    def _computed(self, x: Tensor) -> Tensor:
        return product_in_float32(x, self.weight.to_dense(), self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. The two norms are float32; ``q_norm`` and ``k_norm`` [D] are Qwen3's, None elsewhere."""

    norm1: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Linear
    norm2: Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Stack:
    """All weights of a model: embeddings [V, H], the blocks, the last norm [H] in float32, the head [V, H]."""

    embed: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Linear


class LlamaRunner:
    """A ``Runner`` for the models that ``supports`` accepts."""

    def __init__(
        self, config: Any, checkpoint: StoredWeights, dtype: torch.dtype, max_positions: int, prefix: str = "model."
    ) -> None:
        """``config`` is that of the text; ``prefix`` is how the names of its weights begin, but the head's."""
        self._checkpoint = checkpoint
        self._prefix = prefix
        self._dtype = dtype
        self.heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self._eps: float = config.rms_norm_eps
        self.vocab_size: int = config.vocab_size
        self.max_positions = min(max_positions, config.max_position_embeddings)
        self.kv_shape = KVShape(config.num_hidden_layers, self._kv_heads, self._dim, dtype)
        blocks = (f"{prefix}layers.{i}" for i in range(config.num_hidden_layers))
        linears = [f"{b}.{part}.weight" for b in blocks for part in _linear_names()]
        self.shapes: Mapping[str, tuple[int, ...]] = {name: checkpoint.shapes[name] for name in linears}
        self.weights: Mapping[str, tuple[int, ...]] = checkpoint.shapes
        self._layers, self._width = config.num_hidden_layers, config.hidden_size
        self._tied = bool(config.tie_word_embeddings)
        self._cos, self._sin = _rotations(config, self.max_positions, dtype)
        self._axes = _axes(config, self._dim)
        self._base = self._stack(checkpoint.tensor, checkpoint.shapes)

    @staticmethod
    def supports(config: PretrainedConfig, checkpoint: StoredWeights, prefix: str = "model.") -> bool:
        """Whether this file computes the same as transformers for such a model."""
        rope = getattr(config, "rope_parameters", None) or {}
        return (
            config.model_type in LEAN | LEAN_BEHIND_EYES
            and getattr(config, "hidden_act", None) == "silu"
            and not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
            and rope.get("rope_type", "default") in _STATIC_ROPE
            and {f"{prefix}embed_tokens.weight", f"{prefix}norm.weight"} <= checkpoint.shapes.keys()
            and f"{prefix}layers.{config.num_hidden_layers - 1}.mlp.down_proj.weight" in checkpoint.shapes
        )

    def merge(self, change: Adapter | WholeModel | None) -> Stack:
        """The base's weights, with what an adapter changes made anew, the rest shared; or those of a whole model."""
        if change is None:
            return self._base
        if isinstance(change, WholeModel):
            return self._stack(change.tensor, change.shapes)
        touched = change.factors.keys()
        layers = []
        for i, base in enumerate(self._base.layers):
            prefix = f"{self._prefix}layers.{i}."
            if any(name.startswith(prefix) for name in touched):
                weight, names = lambda name: change.merged(name, self._checkpoint.tensor), self._checkpoint.shapes
                layers.append(self._layer(i, weight, self._checkpoint.tensor, names, base, touched))
            else:
                layers.append(base)
        return replace(self._base, layers=layers)

    def forward(self, merged: Stack, pack: Pack) -> Tensor:
        (x,) = self.hidden(merged, pack, [len(merged.layers)])
        return merged.head(F.rms_norm(x[pack.last], (self._width,), merged.norm, self._eps).to(self._dtype))

    def hidden(self, merged: Stack, pack: Pack, layers: Sequence[int]) -> list[Tensor]:
        heads, kv_heads, dim, eps, dtype = self.heads, self._kv_heads, self._dim, self._eps, self._dtype
        cos, sin = self._rotation(pack.positions)
        rotated, width = heads + kv_heads, self._width
        # The residual stream stays in float32: it costs a few per cent, and brings bfloat16's log-probs nearly twice as
        # near to those of the float32 trainer (docs/decisions/0002).
        x = pack.see(F.embedding(pack.ids, merged.embed).float())
        found: dict[int, Tensor] = {}
        for i, layer in enumerate(merged.layers[: max(layers)]):
            qkv = layer.qkv(F.rms_norm(x, (width,), layer.norm1, eps).to(dtype)).view(-1, rotated + kv_heads, dim)
            qk, v = qkv[:, :rotated], qkv[:, rotated:]
            if layer.q_norm is not None and layer.k_norm is not None:
                q = F.rms_norm(qk[:, :heads], (dim,), layer.q_norm, eps)
                qk = torch.cat((q, F.rms_norm(qk[:, heads:], (dim,), layer.k_norm, eps)), dim=1)
            # The sign of rotate_half stands in the sine table, so that a roll does for it.
            qk = torch.addcmul(qk * cos, qk.roll(dim // 2, -1), sin)
            x = x + layer.o(pack.attend(i, qk[:, :heads], qk[:, heads:], v))
            h = F.rms_norm(x, (width,), layer.norm2, eps).to(dtype)
            x = pack.see_deeper(i, x + layer.down(layer.up.times(h, layer.gate.silu(h))))
            if i + 1 in layers:
                found[i + 1] = x
        return [found[n] for n in layers]

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [N, 1, D] at positions [N], or [3, N] by axis."""
        if positions.ndim == 1:
            return self._cos[positions], self._sin[positions]
        at = positions[self._axes].T  # of each number of a head, the position on its axis
        return self._cos[:, 0].gather(0, at)[:, None], self._sin[:, 0].gather(0, at)[:, None]

    def _stack(self, tensor: Callable[[str], Tensor], names: Container[str]) -> Stack:
        """All weights from ``tensor(name)`` in float32, of which there are ``names``."""
        embed = tensor(f"{self._prefix}embed_tokens.weight").to(self._dtype)
        tied = self._tied or "lm_head.weight" not in names
        return Stack(
            embed=embed,
            layers=[self._layer(i, tensor, tensor, names) for i in range(self._layers)],
            norm=tensor(f"{self._prefix}norm.weight"),
            head=Linear.of(embed if tied else tensor("lm_head.weight"), None, self._dtype),
        )

    def _layer(
        self,
        i: int,
        weight: Callable[[str], Tensor],
        stored: Callable[[str], Tensor],
        names: Container[str],
        base: Layer | None = None,
        touched: Any = frozenset(),
    ) -> Layer:
        """Layer ``i``: its projections from ``weight(name)``, all else from ``stored(name)``, both in float32.

        From ``base`` where nothing in ``touched`` changes it; there are ``names``.
        """
        prefix = f"{self._prefix}layers.{i}."

        def tensor(name: str) -> Tensor | None:
            full = prefix + name
            return stored(full).to(self._dtype) if full in names else None

        def linear(shared: Linear | None, *parts: str) -> Linear:
            if shared is not None and not any(f"{prefix}{n}.weight" in touched for n in parts):
                return shared
            biases = [b for n in parts if (b := tensor(f"{n}.bias")) is not None]
            weights = [weight(f"{prefix}{n}.weight") for n in parts]
            return Linear.of(torch.cat(weights), torch.cat(biases) if biases else None, self._dtype)

        def norm(name: str) -> Tensor:
            return stored(f"{prefix}{name}.weight")

        a, m = "self_attn.", "mlp."
        return Layer(
            norm1=base.norm1 if base else norm("input_layernorm"),
            qkv=linear(base and base.qkv, a + "q_proj", a + "k_proj", a + "v_proj"),
            q_norm=base.q_norm if base else tensor(a + "q_norm.weight"),
            k_norm=base.k_norm if base else tensor(a + "k_norm.weight"),
            o=linear(base and base.o, a + "o_proj"),
            norm2=base.norm2 if base else norm("post_attention_layernorm"),
            gate=linear(base and base.gate, m + "gate_proj"),
            up=linear(base and base.up, m + "up_proj"),
            down=linear(base and base.down, m + "down_proj"),
        )


def _linear_names() -> list[str]:
    return [f"self_attn.{n}" for n in _ATTENTION] + [f"mlp.{n}" for n in _MLP]


def _rotations(config: Any, positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [positions, 1, D] of the rotary embedding, as transformers rounds them."""
    cos, sin = LlamaRotaryEmbedding(config)(torch.empty(0, dtype=dtype), torch.arange(positions)[None])
    half = sin.shape[-1] // 2
    return cos[0][:, None], torch.cat((-sin[0][:, :half], sin[0][:, half:]), dim=-1)[:, None]


def _axes(config: Any, dim: int) -> Tensor:
    """Of each number of a head [D], on which axis its position is counted: time, row and column interleaved."""
    axes = torch.zeros(dim // 2, dtype=torch.long)
    known = OTHER_SECTION if config.model_type in LEAN_BEHIND_EYES else ()
    section = (getattr(config, "rope_parameters", None) or {}).get("mrope_section") or known
    for axis, count in tuple(enumerate(section))[1:]:
        axes[axis : 3 * count : 3] = axis
    return torch.cat((axes, axes))


def _can_pack(dtype: torch.dtype) -> bool:
    if dtype == torch.float32:
        return torch.backends.mkldnn.is_available()
    return dtype == torch.bfloat16 and native_bfloat16()
