"""How streams of rollouts share an update: the invariants of the pure decision, and what a claim makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwise.journal.rollouts.shares import fair_shares

QUEUES = st.dictionaries(st.sampled_from("abcde"), st.lists(st.integers(1, 50), max_size=6), max_size=5)


@given(QUEUES, st.integers(1, 4), st.integers(1, 200))
def test_no_stream_starves_and_none_takes_more_than_there_is(
    queues: dict[str, list[int]], most: int, room: int
) -> None:
    shares = fair_shares(queues, dict.fromkeys(queues, most), room)
    assert shares.keys() == {name for name, queue in queues.items() if queue}, "each that has a group is in"
    assert all(1 <= share <= min(most, len(queues[name])) for name, share in shares.items())
    steps = {name: sum(queues[name][:share]) for name, share in shares.items()}
    beyond = sum(steps.values()) - sum(queues[name][0] for name in shares)
    assert beyond == 0 or sum(steps.values()) <= room, "beyond the first groups there is room for all of it"
    for name, share in shares.items():
        if share < min(most, len(queues[name])):
            assert sum(steps.values()) + queues[name][share] > room, "nothing that has room is left out"


def test_streams_that_have_more_share_the_room_by_steps() -> None:
    queues = {"long": [40] * 5, "short": [10] * 20}
    assert fair_shares(queues, {"long": 5, "short": 20}, 160) == {"long": 2, "short": 8}
    assert fair_shares({"huge": [5000], "small": [3]}, {"huge": 8, "small": 8}, 100) == {"huge": 1, "small": 1}
    assert fair_shares({"a": [], "b": [5, 5]}, {"a": 8, "b": 8}, 100) == {"b": 2}
