"""Rows, micro-batches and mini-batches are pure functions of ids."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.tiny import ids, sample
from turnwise.training.batching import (
    WIDEST_FORKED,
    Row,
    Span,
    TokenText,
    distinct_tokens,
    merge_prefixes,
    microbatches,
    minibatches,
    padded_tokens,
    row_of,
    texts_of,
)


def conversation(turns: int, session: str = "s") -> list:
    """Turns that bridge exactly: each prompt opens with all ids of the turn before."""
    samples, context = [], ids(1, 10)
    for n in range(turns):
        answer = ids(100 + n, 6)
        samples.append(sample(n, session_id=session, prompt_ids=list(context), response_ids=answer))
        context += answer + ids(200 + n, 4)
    return samples


def read_back(row: Row, span: Span) -> tuple[list[int], list[int]]:
    """The prompt and the response of a span, as its own tokens see them: fork by fork back to the row's beginning."""
    begins = [(0, -1), *((fork.at, fork.after) for fork in row.forks)]
    seen, at = [], span.end - 1
    while at >= 0:
        begin, after = max(b for b in begins if b[0] <= at)
        seen[:0] = row.ids[begin : at + 1]
        at = after
    length = span.end - span.start
    return seen[:-length], seen[-length:]


def merged(samples: list, forks: bool = True) -> list[Row]:
    return merge_prefixes(texts_of(samples, range(len(samples))), forks)


def test_a_bridged_session_is_read_once() -> None:
    turns = conversation(5)
    rows = merged(turns)
    assert len(rows) == 1
    assert rows[0].ids == turns[4].prompt_ids + turns[4].response_ids and not rows[0].forks
    assert [s.sample for s in rows[0].spans] == [0, 1, 2, 3, 4]
    for span in rows[0].spans:
        assert rows[0].ids[span.start : span.end] == turns[span.sample].response_ids


def test_the_order_of_the_turns_does_not_matter() -> None:
    texts = texts_of(conversation(3), range(3))
    assert merge_prefixes(texts[::-1]) == merge_prefixes(texts)


def test_a_later_turn_that_stands_first_in_the_batch_still_joins_its_row() -> None:
    turns = conversation(3)[::-1]
    (row,) = merged(turns)
    assert [s.sample for s in row.spans] == [2, 1, 0]


def test_a_prompt_that_does_not_extend_the_last_turn_is_a_fork_of_it() -> None:
    turns = conversation(2)
    turns[1].prompt_ids[12] += 1  # re-rendered: one id of the old answer differs
    (row,) = merged(turns)
    assert len(row.forks) == 1
    assert len(row.ids) == 16 + 20 + 6 - 12  # the first twelve ids of the second turn stand in the first one
    assert [len(r.spans) for r in merged(turns, forks=False)] == [1, 1]


def test_several_answers_to_one_prompt_read_it_once_but_for_its_last_id() -> None:
    group = [sample(n, prompt_ids=ids(1, 100), response_ids=ids(50 + n, 6)) for n in range(4)]
    (row,) = merged(group)
    assert len(row.ids) == 100 + 6 + 3 * (1 + 6)
    assert sorted(row.depths())[-4:] == [105] * 4, "each answer stands where it stood"


def test_sessions_share_their_system_message_and_nothing_else() -> None:
    system = ids(1, 200)
    turns = [sample(n, session_id=f"{n}", prompt_ids=system + ids(10 + n, 9), response_ids=ids(n, 6)) for n in range(3)]
    (row,) = merged(turns)
    assert len(row.ids) == 200 + 3 * 15 == distinct_tokens(texts_of(turns, range(3)))
    assert len(merged([sample(1), sample(2)])) == 2


def test_a_little_in_common_is_no_reason_to_look_over_all_the_rest() -> None:
    far = [sample(n, prompt_ids=[7, 8, *ids(n, 500)], response_ids=ids(n + 9, 20)) for n in range(2)]
    assert len(merged(far)) == 2
    wide = [sample(n, prompt_ids=ids(1, 5000), response_ids=ids(n + 9, 2000)) for n in range(3)]
    assert all(len(row.ids) <= WIDEST_FORKED for row in merged(wide) if row.forks)
    # A turn that extends a fork makes its row wider as well.
    both = [sample(n, prompt_ids=ids(1, 3000), response_ids=ids(n, 1000)) for n in range(2)]
    last = max(both, key=lambda s: s.response_ids)
    longer = sample(8, prompt_ids=[*last.prompt_ids, *last.response_ids, *ids(5, 4000)], response_ids=ids(6, 9))
    rows = merged([*both, longer])
    assert any(row.forks for row in rows)
    assert all(len(row.ids) <= WIDEST_FORKED for row in rows if row.forks)


def test_by_text_a_wide_row_takes_what_saves_a_good_part_and_a_narrow_one_whatever_it_saves() -> None:
    def rows(shared: int, length: int, count: int) -> list[Row]:
        trunk = ids(1, shared)
        texts = [TokenText(n, [*trunk, *ids(2 + n, length - shared - 20)], ids(50 + n, 20)) for n in range(count)]
        return merge_prefixes(texts, by_text=True)

    assert len(rows(20, 900, 4)) == 1, "some tokens less"
    assert len(rows(200, 2000, 3)) == 2, "a tenth less, in a row of more than 4,096"
    assert len(rows(500, 2000, 3)) == 1, "a quarter less"
    assert [len(row.ids) for row in rows(1000, 3000, 6)] == [7000, 7000]
    assert len(merge_prefixes([TokenText(n, ids(n, 900), ids(9, 20)) for n in range(2)], by_text=True)) == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=9), st.text("ab", min_size=1, max_size=5)), max_size=12))
def test_every_answer_is_there_once_behind_the_ids_of_its_own_prompt(texts: list[tuple[str, str]]) -> None:
    given_texts = [TokenText(i, [ord(c) for c in p], [ord(c) for c in r]) for i, (p, r) in enumerate(texts)]
    for forks, by_text in ((True, False), (True, True), (False, False)):
        rows = merge_prefixes(given_texts, forks, by_text)
        found = {span.sample: read_back(row, span) for row in rows for span in row.spans}
        assert found == {t.sample: (list(t.prompt_ids), list(t.response_ids)) for t in given_texts}
        assert sum(len(row.spans) for row in rows) == len(texts)
        for row in rows:
            assert forks or not row.forks
            for span in row.spans:  # what predicts the first id of an answer stands right before it
                assert span.start - 1 not in {fork.at - 1 for fork in row.forks}


def test_twenty_turns_whose_thinking_is_taken_out_cost_little_more_than_what_is_new_in_them() -> None:
    samples, context = [], ids(1, 300)
    for n in range(20):
        question, thinking, answer = ids(200 + n, 40), ids(300 + n, 60), ids(400 + n, 50)
        samples.append(sample(n, session_id="s", prompt_ids=context + question, response_ids=thinking + answer))
        context = context + question + answer
    texts = texts_of(samples, range(20))
    computed = sum(len(row.ids) for row in merge_prefixes(texts))
    assert computed <= 1.05 * distinct_tokens(texts)
    assert sum(len(row.ids) for row in merge_prefixes(texts, forks=False)) > 5 * computed


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
    parts = minibatches([str(i) for i in range(count)], size, seed=0, batch=1, epoch=0)
    assert sorted(i for part in parts for i in part) == list(range(count))
    assert max(map(len, parts)) <= size
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40), st.integers(1, 10))
def test_the_turns_of_a_session_share_a_step_in_their_order(sessions: list[str], size: int) -> None:
    steps = minibatches(sessions, size, seed=0, batch=1, epoch=0)
    assert all(steps) and sorted(i for step in steps for i in step) == list(range(len(sessions)))
    longest = max(sessions.count(s) for s in sessions)
    assert max(map(len, steps)) < size + longest
    for session in set(sessions):
        turns = [i for i, s in enumerate(sessions) if s == session]
        (step,) = (step for step in steps if turns[0] in step)
        assert step[step.index(turns[0]) :][: len(turns)] == turns


def test_the_order_is_fixed_by_seed_batch_and_epoch() -> None:
    nine = list("abcdefghi")
    assert minibatches(nine, 2, seed=0, batch=1, epoch=0) == minibatches(nine, 2, seed=0, batch=1, epoch=0)
    orders = {str(minibatches(nine, 9, seed=s, batch=b, epoch=e)) for s in (0, 1) for b in (1, 2) for e in (0, 1)}
    assert len(orders) == 8
