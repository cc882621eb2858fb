"""The store of keys and values: what is reused, for whom, and what goes when memory is short."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.local_engine.model.kv import KVShape, KVStore, SequenceKV, common_prefix

SHAPE = KVShape(layers=1, heads=1, dim=2, dtype=torch.float32)
STEP = 128 * SHAPE.bytes_per_token


def fill(kv: SequenceKV, ids: list[int]) -> SequenceKV:
    """Pretend that ``ids`` were computed: every position holds its id."""
    kv.ids = list(ids)
    kv.data[:, :, : len(ids)] = torch.tensor(ids, dtype=torch.float32)[:, None]
    return kv


def opened(store: KVStore, owner: str, ids: list[int]) -> SequenceKV:
    kv = store.open(owner, ids)
    assert kv is not None
    return kv


def test_the_next_turn_of_a_session_goes_on_in_the_same_buffer() -> None:
    store = KVStore(SHAPE, 10 * STEP)
    first = fill(opened(store, "w", [1, 2, 3]), [1, 2, 3])
    store.close(first)
    assert opened(store, "w", [1, 2, 3, 4]) is first
    assert first.ids == [1, 2, 3]


def test_a_branch_copies_the_common_start_and_leaves_the_other_alone() -> None:
    store = KVStore(SHAPE, 10 * STEP)
    store.close(fill(opened(store, "w", [1, 2, 3, 4, 5]), [1, 2, 3, 4, 5]))
    branch = opened(store, "w", [1, 2, 9, 9])
    assert branch.ids == [1, 2]
    assert branch.data[0, 0, :2, 0].tolist() == [1, 2]
    assert opened(store, "w", [1, 2, 3, 4, 5, 6]).ids == [1, 2, 3, 4, 5]


def test_a_running_sequence_lends_its_start() -> None:
    store = KVStore(SHAPE, 10 * STEP)
    fill(opened(store, "w", [1, 2, 3]), [1, 2, 3])
    assert opened(store, "w", [1, 2, 7]).ids == [1, 2]


def test_the_last_token_is_always_left_to_compute() -> None:
    store = KVStore(SHAPE, 10 * STEP)
    store.close(fill(opened(store, "w", [1, 2, 3]), [1, 2, 3]))
    assert opened(store, "w", [1, 2, 3]).ids == [1, 2]


def test_other_weights_share_nothing() -> None:
    store = KVStore(SHAPE, 10 * STEP)
    store.close(fill(opened(store, "w", [1, 2, 3]), [1, 2, 3]))
    assert opened(store, "other", [1, 2, 3]).ids == []


def test_the_least_recently_used_goes_first() -> None:
    store = KVStore(SHAPE, 2 * STEP)
    store.close(fill(opened(store, "w", [1, 1]), [1, 1]))
    store.close(fill(opened(store, "w", [2, 2]), [2, 2]))
    store.close(fill(opened(store, "w", [3, 3]), [3, 3]))
    assert opened(store, "w", [2, 2, 0]).ids == [2, 2]
    assert opened(store, "w", [1, 1, 0]).ids == []


def test_no_room_beside_running_sequences_is_said() -> None:
    store = KVStore(SHAPE, 2 * STEP)
    assert store.open("w", [1] * 100) is not None
    assert store.open("w", [2] * 200) is None
    assert store.open("w", [2] * 100) is not None


def test_growing_keeps_the_content_and_the_account() -> None:
    store = KVStore(SHAPE, 4 * STEP)
    kv = fill(opened(store, "w", [5, 6]), [5, 6])
    assert store.ensure(kv, 300)
    assert kv.capacity >= 300
    assert kv.data[0, 0, :2, 0].tolist() == [5, 6]
    assert store.used == kv.nbytes
    assert not store.ensure(kv, 600)


def test_forgotten_weights_free_their_memory() -> None:
    store = KVStore(SHAPE, 4 * STEP)
    store.close(fill(opened(store, "w", [1]), [1]))
    store.forget("w")
    assert store.used == 0


@given(st.lists(st.integers(0, 1), max_size=600), st.integers(0, 600), st.lists(st.integers(0, 1), max_size=5))
def test_common_prefix_is_the_longest(a: list[int], cut: int, tail: list[int]) -> None:
    b = a[:cut] + tail
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]
