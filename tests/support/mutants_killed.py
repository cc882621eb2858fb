"""Counts what `mutmut results --all true` says of each change: the end of `make mutate`.

A change that ran out of time is killed: its tests did not pass. One that no test runs is not, and neither is one on
which the tests could not be played. What was not tried counts nowhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatch

KILLED = ("killed", "timeout", "caught by type check")
NOT_TRIED = ("not checked", "skipped", "check was interrupted by user")


def tried(lines: Iterable[str], only: str = "*") -> dict[str, str]:
    """What became of each change that was tried, by its name: `turnwise.training.losses.x_centred__mutmut_1`."""
    said = (line.strip().rpartition(": ") for line in lines)
    return {name: status for name, _, status in said if fnmatch(name, only) and status not in NOT_TRIED}


def table(found: dict[str, str]) -> list[str]:
    """A line a module, and one of all: how many changes were tried, how many killed, and which share that is."""
    if not found:
        return ["no change was tried"]
    counts: dict[str, Counter[str]] = {}
    for name, status in found.items():
        counts.setdefault(name.rpartition(".")[0], Counter())[status] += 1
    rows = [(module, counts[module]) for module in sorted(counts)]
    return [_row(module, count) for module, count in [*rows, ("together", sum((c for _, c in rows), Counter()))]]


def _row(what: str, count: Counter[str]) -> str:
    killed, of = sum(count[status] for status in KILLED), count.total()
    others = {"survived": count["survived"], "without a test": count["no tests"]}
    others["could not be played"] = of - killed - sum(others.values())
    rest = "".join(f", {n} {status}" for status, n in others.items() if n or status == "survived")
    return f"{what}: {killed} of {of} killed ({killed / of:.1%}){rest}"


def main() -> None:
    """Read mutmut's results from standard input; print those that were not killed, and the counts."""
    found = tried(sys.stdin, *sys.argv[1:2])
    for name, status in found.items():
        if status not in KILLED:
            print(f"{name}: {status}")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
