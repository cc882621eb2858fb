"""The number of threads follows what is fastest, on a machine whose load changes. All times are made up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from turnwise.local_engine.threads import SELDOM, ThreadChoice

QUIET = {1: 1.2, 2: 1.0, 4: 0.8, 8: 0.7}
BUSY = {1: 1.5, 2: 5.0, 4: 7.0, 8: 9.0}


def play(choice: ThreadChoice, seconds: dict[int, float], steps: int, rows: Iterable[int] = (1,)) -> list[int]:
    """The number of threads that each of so many steps took; a step takes longer with more rows."""
    kinds = list(rows)
    taken = []
    for n in range(steps):
        size = kinds[n % len(kinds)]
        taken.append(choice.count)
        choice.took(size, seconds[choice.count] * (1 + size / 10))
    return taken


def test_where_all_threads_are_fastest_others_are_tried_seldom() -> None:
    taken = play(ThreadChoice(2), QUIET, 10 * SELDOM)
    assert taken[0] == 2 and taken[-100:].count(2) >= 97
    assert taken.count(1) < 0.01 * len(taken)


def test_where_one_is_fastest_it_is_found_at_once() -> None:
    taken = play(ThreadChoice(2), BUSY, 200)
    assert taken[:6] == [2, 2, 2, 1, 1, 1]
    assert taken[6:].count(2) <= 6


@pytest.mark.parametrize(("before", "after", "best"), [(QUIET, BUSY, 1), (BUSY, QUIET, 8)])
def test_a_load_that_comes_or_goes_is_seen(before: dict[int, float], after: dict[int, float], best: int) -> None:
    choice = ThreadChoice(8)
    play(choice, before, 300)
    taken = play(choice, after, 3 * SELDOM)
    assert taken[-200:].count(best) > 150
    if after is BUSY:
        assert taken[12:100].count(1) > 60, "a step that takes far longer than usual is looked into at once"


@pytest.mark.parametrize("rows", [(1, 2), (3, 1, 4, 1, 5)])
def test_steps_with_other_numbers_of_rows_are_not_compared(rows: tuple[int, ...]) -> None:
    assert set(play(ThreadChoice(2), BUSY, 500, rows)) == {2}


def test_one_core_has_nothing_to_choose() -> None:
    assert set(play(ThreadChoice(1), {1: 1.0}, 100)) == {1}


def test_a_time_that_only_trembles_changes_nothing() -> None:
    choice = ThreadChoice(2)

    def noise(n: int) -> float:
        return 1.0 + 0.02 * (n * 7 % 5 - 2)

    for n in range(2000):
        choice.took(1, noise(n))
    assert choice.count in (1, 2)
    kept = []
    for n in range(2000):
        kept.append(choice.count)
        choice.took(1, noise(n))
    assert max(kept.count(1), kept.count(2)) > 0.98 * len(kept)
