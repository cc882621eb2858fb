"""One forward pass over the new tokens of several sequences, packed in a row, each attending to its own past.

Projections and MLPs see one long row of tokens; only attention is taken apart by sequence. Prefill chunks and decode
steps mix freely, and nothing is padded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from turnwise.local_engine.model.kv import SequenceKV
from turnwise.loops.lifeline import beat
from turnwise.pictures.axes import GridAt, axes_between
from turnwise.pictures.sight import Sight


class PassLeft(Exception):
    """A pass was left before its end, because something that comes first arrived. Nothing was committed."""


@dataclass(frozen=True, slots=True, eq=False)
class SeenPicture:
    """What is seen at these n ``places`` of a sequence, which ascend."""

    places: list[int]
    sight: Sight

    @property
    def grid(self) -> GridAt | None:
        """Where it stands, if its rows and columns have positions of their own."""
        return None if self.sight.grid is None else GridAt(self.places[0], *self.sight.grid)

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Which of its features stand at places from ``start`` to ``end``."""
        return bisect_left(self.places, start), bisect_left(self.places, end)


@dataclass(frozen=True, slots=True)
class SequencePiece:
    """The next ``ids`` of one sequence, whose keys and values go behind those in ``kv``.

    The buffer must have room for them. ``sample``: logits are wanted after the last id. ``keys``, where they are not
    the ids, say what the buffer then holds; ``pictures`` are those of the sequence that begin before its end.
    """

    kv: SequenceKV
    ids: list[int]
    sample: bool
    keys: list[int] | None = None
    pictures: Sequence[SeenPicture] = ()


class Pack:
    """Spans laid end to end. ``ids`` and ``positions`` are [N]; ``last`` [S] are the rows whose logits are wanted.
    ``positions`` are [3, N], by time, row and column, where pictures have rows and columns.

    ``leave`` is asked in each layer whether the pass should be left, which raises PassLeft. What it wrote until then
    lies behind the ids that the buffers hold, so that the same pass can be made later.
    """

    def __init__(self, spans: Sequence[SequencePiece], heads: int, leave: Callable[[], bool] | None = None) -> None:
        self.spans = spans
        self._leave = leave
        self.ids = torch.tensor([i for s in spans for i in s.ids])
        self.positions = _positions(spans)
        self.lengths = [len(s.ids) for s in spans]
        ends = torch.tensor(self.lengths).cumsum(0) - 1
        self.last = ends[torch.tensor([s.sample for s in spans])]
        self._seen = list(self._pictures())
        self._decode = all(n == 1 for n in self.lengths)
        kv_heads = spans[0].kv.shape.heads
        self._kv_heads, self._group = kv_heads, heads // kv_heads
        self._masks = [self._mask(s) for s in spans]
        # Views of all layers are cut at once; doing it inside the layers costs more than the attention itself.
        new, past = [], []
        for s in spans:
            start, end = len(s.kv.ids), len(s.kv.ids) + len(s.ids)
            new.append(s.kv.data[:, :, start:end].unbind(0))
            past.append(s.kv.data[:, None, :, :end].unbind(0))
        layers = spans[0].kv.shape.layers
        self._new = [[views[at] for at in (2 * n, 2 * n + 1) for views in new] for n in range(layers)]
        self._past = [[(views[2 * n], views[2 * n + 1]) for views in past] for n in range(layers)]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        """Store ``k``, ``v`` [N, kv_heads, D] of ``layer``, and attend with ``q`` [N, heads, D]: [N, heads * D].

        The query heads that share a key head stand as rows of one query block, so no key is copied.
        """
        beat()  # once a layer: a pass of a large model over a long prompt takes longer than a supervisor waits
        if self._leave is not None and self._leave():
            raise PassLeft
        rows, _, dim = q.shape
        k, v = k.transpose(0, 1), v.transpose(0, 1)
        torch._foreach_copy_(  # pyright: ignore[reportPrivateImportUsage]
            self._new[layer], [*k.split(self.lengths, 1), *v.split(self.lengths, 1)]
        )
        sdpa = F.scaled_dot_product_attention
        if self._decode:
            blocks = q.reshape(rows, self._kv_heads, self._group, dim).split(1)
            out = [sdpa(b, *kv, scale=scale) for b, kv in zip(blocks, self._past[layer], strict=True)]
            return (torch.cat(out) if rows > 1 else out[0]).view(rows, -1)
        out = []
        for part, kv, mask in zip(q.split(self.lengths), self._past[layer], self._masks, strict=True):
            n = part.shape[0]
            block = part.reshape(n, self._kv_heads, self._group, dim).permute(1, 2, 0, 3)
            mixed = sdpa(block.reshape(1, self._kv_heads, self._group * n, dim), *kv, attn_mask=mask, scale=scale)
            mixed = mixed.view(self._kv_heads, self._group, n, dim).permute(2, 0, 1, 3)
            out.append(mixed.reshape(n, -1))
        return torch.cat(out)

    def commit(self) -> None:
        """The pass is done: the buffers now hold the new ids."""
        for s in self.spans:
            s.kv.ids += s.ids if s.keys is None else s.keys

    def see(self, x: Tensor) -> Tensor:
        """The embeddings ``x`` [N, H] of the ids, with what is seen of pictures in its places."""
        for rows, sight, first, last in self._seen:
            x[rows] = sight.features[first:last].to(x.dtype)
        return x

    def see_deeper(self, block: int, x: Tensor) -> Tensor:
        """The hidden states ``x`` [N, H] behind a block, with what is seen there."""
        for rows, sight, first, last in self._seen:
            if sight.deeper is not None and block < len(sight.deeper):
                x[rows] += sight.deeper[block, first:last].to(x.dtype)
        return x

    def _pictures(self) -> Iterator[tuple[Tensor, Sight, int, int]]:
        """The rows at which a picture is seen, and which of its places they are."""
        row = 0
        for span, length in zip(self.spans, self.lengths, strict=True):
            start = len(span.kv.ids)
            for picture in span.pictures:
                first, last = picture.within(start, start + length)
                if first < last:
                    yield torch.tensor(picture.places[first:last]) - start + row, picture.sight, first, last
            row += length

    def _mask(self, span: SequencePiece) -> Tensor | None:
        new, start = len(span.ids), len(span.kv.ids)
        if new == 1:
            return None
        mask = torch.arange(start + new)[None, :] <= torch.arange(start, start + new)[:, None]
        return mask.repeat(self._group, 1)


def _positions(spans: Sequence[SequencePiece]) -> Tensor:
    """Of all ids: [N], or [3, N] where a picture has rows and columns."""
    grids = [[grid for picture in s.pictures if (grid := picture.grid) is not None] for s in spans]
    bounds = [(len(s.kv.ids), len(s.kv.ids) + len(s.ids)) for s in spans]
    if not any(grids):
        return torch.cat([torch.arange(start, end) for start, end in bounds])
    each = [torch.tensor(axes_between(*bound, seen)) for bound, seen in zip(bounds, grids, strict=True)]
    return torch.cat(each, dim=1)
