"""How the streams of rollouts share an update: a pure decision, which keeps each of them moving.

Invariants: each stream that has a group has its oldest one in, whatever the others have; none has more groups than it
may; beyond those first ones all together have no more steps than there is room for; and what one does not need is there
for the others. As every update serves each stream that is due, none waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def fair_shares(queues: Mapping[str, Sequence[int]], most: Mapping[str, int], room: int) -> dict[str, int]:
    """How many of its groups each stream has in an update.

    ``queues``: the number of steps of each of a stream's whole groups, oldest first, the streams in the order in which
    they are served where two are equal. ``most``: groups of each at most. ``room``: steps of all together.
    """
    taken = {name: 1 for name, queue in queues.items() if queue}
    steps = {name: queues[name][0] for name in taken}
    while True:
        fit = [
            name
            for name, had in taken.items()
            if had < min(most[name], len(queues[name])) and sum(steps.values()) + queues[name][had] <= room
        ]
        if not fit:
            return taken
        next_one = min(fit, key=lambda name: steps[name])  # the one with the fewest steps so far; of equals the first
        steps[next_one] += queues[next_one][taken[next_one]]
        taken[next_one] += 1
