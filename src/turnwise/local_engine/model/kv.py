"""Keys and values of sequences: one growing buffer for each, and finished ones kept for the next turn.

A buffer knows which token ids it holds, so that a request whose prompt starts with them computes only the rest.
All of it stays within one byte budget; the least recently used buffers go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_STEP = 128
"""Buffers grow by whole steps of this many tokens."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token costs: ``layers`` x (key, value) x ``heads`` x ``dim`` numbers."""

    layers: int
    heads: int
    dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.heads * self.dim * self.dtype.itemsize


class SequenceKV:
    """The keys and values of one sequence. ``data`` is [2 * layers, heads, capacity, dim]: k0, v0, k1, v1, …

    ``ids`` are the tokens whose keys and values are in it; positions beyond them are free.
    """

    def __init__(self, shape: KVShape, capacity: int) -> None:
        self.shape = shape
        self.ids: list[int] = []
        self.data = self._empty(capacity)

    @property
    def capacity(self) -> int:
        return self.data.shape[2]

    @property
    def nbytes(self) -> int:
        return self.capacity * self.shape.bytes_per_token

    def resize(self, capacity: int) -> None:
        data = self._empty(capacity)
        data[:, :, : len(self.ids)] = self.data[:, :, : len(self.ids)]
        self.data = data

    def _empty(self, capacity: int) -> Tensor:
        return torch.empty(2 * self.shape.layers, self.shape.heads, capacity, self.shape.dim, dtype=self.shape.dtype)


def rounded(tokens: int) -> int:
    """``tokens`` rounded up to whole buffer steps."""
    return -(-tokens // _STEP) * _STEP


class KVStore:
    """All buffers, within ``budget`` bytes. ``owner`` (the weights) and the ids together decide what may be reused."""

    def __init__(self, shape: KVShape, budget: int) -> None:
        self.shape = shape
        self.budget = budget
        self.used = 0
        self._running: dict[SequenceKV, Hashable] = {}
        self._idle: OrderedDict[SequenceKV, Hashable] = OrderedDict()

    def open(self, owner: Hashable, ids: Sequence[int]) -> SequenceKV | None:
        """A buffer for a sequence that starts with ``ids``, holding the longest known prefix but the last token.

        None when there is no room even after dropping every idle buffer.
        """
        best, common = None, 0
        for kv, o in [*self._idle.items(), *self._running.items()]:
            if o == owner and (n := min(common_prefix(kv.ids, ids), len(ids) - 1)) > common:
                best, common = kv, n
        if best is not None and best in self._idle and common >= len(best.ids) - 1:
            # The new sequence goes on where that one ended, so it takes the buffer over.
            del self._idle[best]
            self._running[best] = owner
            del best.ids[common:]
            if self.ensure(best, len(ids) + 1):
                return best
            self.close(best)
            return None
        capacity = rounded(len(ids) + 1)
        if best is not None and best in self._idle:
            self._idle.move_to_end(best)
        need = capacity * self.shape.bytes_per_token
        # The buffer with the prefix is the last to be dropped, and even then it is copied first.
        if not self._make_room(need, keep=best) and not self._make_room(need):
            return None
        kv = SequenceKV(self.shape, capacity)
        self.used += kv.nbytes
        self._running[kv] = owner
        if best is not None:
            kv.data[:, :, :common] = best.data[:, :, :common]
            kv.ids = list(ids[:common])
        return kv

    def ensure(self, kv: SequenceKV, tokens: int) -> bool:
        """Make room for ``tokens`` positions in a running buffer; False when the budget does not allow it."""
        if tokens <= kv.capacity:
            return True
        # Growing by a quarter keeps the copying linear in the length.
        for capacity in (rounded(max(tokens, kv.capacity * 5 // 4)), rounded(tokens)):
            more = (capacity - kv.capacity) * self.shape.bytes_per_token
            if self._make_room(more):
                kv.resize(capacity)
                self.used += more
                return True
        return False

    def close(self, kv: SequenceKV) -> None:
        """The sequence ended: keep its buffer for a later one with the same start."""
        owner = self._running.pop(kv)
        if kv.ids:
            self._idle[kv] = owner
        else:
            self.used -= kv.nbytes

    def forget(self, owner: Hashable) -> None:
        """Drop the idle buffers of weights that are gone."""
        for kv in [kv for kv, o in self._idle.items() if o == owner]:
            self._drop(kv)

    def _make_room(self, nbytes: int, keep: SequenceKV | None = None) -> bool:
        for kv in list(self._idle):
            if self.used + nbytes <= self.budget:
                break
            if kv is not keep:
                self._drop(kv)
        return self.used + nbytes <= self.budget

    def _drop(self, kv: SequenceKV) -> None:
        del self._idle[kv]
        self.used -= kv.nbytes


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading items are equal."""
    limit = min(len(a), len(b))
    at = 0
    while at < limit and a[at : at + 256] == b[at : at + 256]:
        at += 256
    if at >= limit:
        return limit
    for i in range(at, limit):
        if a[i] != b[i]:
            return i
    return limit
