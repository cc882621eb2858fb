"""Whose rollout begins next: streams have equal shares of the places, within their own limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwise.environments.base import Task
from turnwise.environments.feeding import Feed, next_stream
from turnwise.environments.rollout import Play

NUMBERS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), max_size=3)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_stream_with_the_fewest_running_is_next(
    waiting: dict[str, int], running: dict[str, int], limits: dict[str, int]
) -> None:
    chosen = next_stream(waiting, running, limits)
    free = [n for n, left in waiting.items() if left and running.get(n, 0) < limits.get(n, 99)]
    assert (chosen is None) == (not free), "a place is never left empty while some may begin"
    if chosen is not None:
        assert chosen in free and running.get(chosen, 0) == min(running.get(n, 0) for n in free)


def test_a_run_of_two_streams_plays_both_from_the_start() -> None:
    tasks = [Task(f"t{i}", "terminal", "p") for i in range(6)] + [Task("w", "web", "p"), Task("x", "web", "p")]
    feed = Feed([Play("r", task, 0, 1) for task in tasks], {"terminal": 2})
    begun = [feed.next() for _ in range(5)]
    assert [play.task.id if play else None for play in begun] == ["t0", "w", "t1", "x", None]
    assert begun[0] is not None
    feed.ended(begun[0])
    following = feed.next()
    assert following is not None and following.task.id == "t2"
