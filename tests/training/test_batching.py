"""Rows, micro-batches and mini-batches are pure functions of ids."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.tiny import ids, sample
from turnwise.training.batching import Span, merge_prefixes, microbatches, minibatches, padded_tokens, row_of


def conversation(turns: int, session: str = "s") -> list:
    """Turns that bridge exactly: each prompt opens with all ids of the turn before."""
    samples, context = [], ids(1, 10)
    for n in range(turns):
        answer = ids(100 + n, 6)
        samples.append(sample(n, session_id=session, prompt_ids=list(context), response_ids=answer))
        context += answer + ids(200 + n, 4)
    return samples


def test_a_bridged_session_is_read_once() -> None:
    turns = conversation(5)
    rows = merge_prefixes(turns, range(5))
    assert len(rows) == 1
    assert rows[0].ids == turns[4].prompt_ids + turns[4].response_ids
    assert [s.sample for s in rows[0].spans] == [0, 1, 2, 3, 4]
    for span in rows[0].spans:
        assert rows[0].ids[span.start : span.end] == turns[span.sample].response_ids


def test_the_order_of_the_turns_does_not_matter() -> None:
    turns = conversation(3)
    assert merge_prefixes(turns, [2, 0, 1]) == merge_prefixes(turns, [0, 1, 2])


def test_a_later_turn_that_stands_first_in_the_batch_still_joins_its_row() -> None:
    turns = conversation(3)[::-1]
    (row,) = merge_prefixes(turns, range(3))
    assert [s.sample for s in row.spans] == [2, 1, 0]


def test_a_prompt_that_does_not_extend_the_last_turn_begins_a_new_row() -> None:
    turns = conversation(2)
    turns[1].prompt_ids[12] += 1  # re-rendered: one id of the old answer differs
    rows = merge_prefixes(turns, range(2))
    assert sorted(len(r.spans) for r in rows) == [1, 1]


def test_branches_of_one_session_share_only_one_row_with_the_trunk() -> None:
    turns = conversation(2)
    other = sample(9, session_id="s", prompt_ids=[*turns[1].prompt_ids[:-1], 255], response_ids=[1, 2])
    rows = merge_prefixes([*turns, other], range(3))
    assert sorted(len(r.spans) for r in rows) == [1, 2]


def test_sessions_do_not_mix() -> None:
    turns = conversation(1, "a") + conversation(2, "b")[1:]
    assert len(merge_prefixes(turns, range(2))) == 2


def test_a_row_joins_ids() -> None:
    row = row_of(3, [1, 2], [3])
    assert (row.ids, row.spans) == ([1, 2, 3], [Span(3, 2, 3)])


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(10, 120))
def test_microbatches_hold_every_row_once_and_stay_within_the_limit(lengths: list[int], limit: int) -> None:
    rows = [row_of(i, [0], [1] * n) for i, n in enumerate(lengths)]
    groups = microbatches(rows, limit)
    assert sorted(r.spans[0].sample for g in groups for r in g) == list(range(len(rows)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(len(r.ids) for r in group) <= limit


def test_a_microbatch_is_filled_to_the_limit_and_padding_counts() -> None:
    rows = [row_of(i, [0], [1] * n) for i, n in enumerate([9, 9, 9, 2])]
    assert padded_tokens(rows) == 40
    assert [len(group) for group in microbatches(rows, 20)] == [2, 2]
    assert [len(group) for group in microbatches(rows, 19)] == [1, 1, 1, 1]
    assert [len(group) for group in microbatches(rows, 30)] == [3, 1]


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 20))
def test_minibatches_hold_every_sample_once_and_differ_by_at_most_one(count: int, size: int) -> None:
    parts = minibatches(count, size, seed=0, batch=1, epoch=0)
    assert sorted(i for part in parts for i in part) == list(range(count))
    assert max(map(len, parts)) <= size
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_order_is_fixed_by_seed_batch_and_epoch() -> None:
    assert minibatches(5, 2, seed=0, batch=1, epoch=0) == minibatches(5, 2, seed=0, batch=1, epoch=0)
    orders = {str(minibatches(9, 9, seed=s, batch=b, epoch=e)) for s in (0, 1) for b in (1, 2) for e in (0, 1)}
    assert len(orders) == 8
