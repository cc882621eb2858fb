"""Finds patterns whose time grows faster than their text: hostile texts made from the pattern itself, timed in a child.

`slow_patterns` runs the check in a child that imports the patterns once and forks a worker, which the kernel ends once
one match has used too much processor time; the next worker goes on behind that pattern. So a pattern of exponential
time is caught like any other. Growth is judged by the ratio of times when the text doubles, in processor time, so that
a busy machine changes nothing.

The texts: for every repetition in the pattern's parse tree, what can stand before it and what it repeats, pumped in
three ways, with ends that fail; and a few pumps of a general kind.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

CPU_LIMIT_S = 2.0
"""Processor time after which one match is one of exponential time; a linear one takes a hundredth of that."""
SMALL = (26, 60)
"""Repetitions of a pump that come first: enough for a pattern of exponential time to hang."""
LARGEST = 204_800
GROWTH = 2.8
"""A text twice as long takes about twice the time (linear) or four times (quadratic)."""
ACQUITTED = 10
"""A text 8 times as long takes this much longer at most: then a quadratic part is so small that its time would not grow
by `GROWTH` before `LARGEST` either. It costs a tenth of the look at every doubling, which the others get."""
NOISE_S = 0.0002
LONG_REPEAT = 16
"""A repetition that may come this often is pumped."""


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    `every`: only each so many of a pattern's texts. `screen`: characters of the first long text. `enough_s`: processor
    time that is long enough for two times to be compared. `early`: a pattern is let go as soon as its time grows like
    its text twice in a row, and not only when it takes `enough_s`.
    """

    every: int
    screen: int
    enough_s: float
    early: bool
    ends: tuple[str, ...]


SHORT = Effort(every=8, screen=1600, enough_s=0.04, early=True, ends=("!\x00x",))
WIDE = Effort(every=1, screen=6400, enough_s=0.06, early=False, ends=("", "!\x00x"))
GENERAL = (
    *(" ", "\n", "\t\n", "a", "a ", "a\n", "A", "7", "7,", "_", "-", "- ", ".", "!", ", ", "<", "<think>", "\\", "\r"),
    *(
        "{",
        "[",
        "(",
        '"',
        "'",
        "|",
        "`",
        "#",
        "please ",
        "é",
        "不",
        "<a>",
        "a: ",
        "  \n",
        ":)",
        "='",
        "\\'",
        "/*",
        "//",
    ),
)
_PROBES = "a7 \n!_-A<,.:'\"{[(\\/|=\x00é不"


@dataclass(frozen=True)
class Slow:
    """A pattern whose time grows too fast, and on which text: `before`, then `pump` many times, then `end`."""

    where: str
    source: str
    why: str
    before: str
    pump: str
    end: str

    def __str__(self) -> str:
        text = f"{self.before!r} + {self.pump!r} * n + {self.end!r}"
        return f"{self.where}: {self.why} on {text}: {self.source[:200]}"


# ---- hostile texts


def pumps(source: Any, flags: int) -> list[tuple[str, str]]:
    """(what stands before, what is repeated): from the pattern's own parse tree, and general ones."""
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    found = dict.fromkeys(("", pump) for pump in GENERAL)
    for heads, bodies in _repeats(parser.parse(text, flags & ~re.LOCALE), ("",)):
        for head in heads[:2]:
            for body in bodies[:4]:
                found |= dict.fromkeys([(head, body), ("", head + body), ("", body + head)])
            found |= {("", head): None}
        found[heads[0], "".join(bodies[:2])] = None
    return [(before, pump) for before, pump in found if pump]


def _repeats(sequence: Any, heads: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """For every long repetition below: what may stand before it, and what it repeats."""
    for at, (kind, value) in enumerate(sequence):
        before = _joined([*heads][:3], _words(sequence[:at]))[:3]
        for inner in _inner(kind, value):
            yield from _repeats(inner, before)
        if kind in _REPEATS and value[1] >= LONG_REPEAT:
            yield before, [word for word in _words(value[2], 12) if word] or ["a"]


_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def _inner(kind: Any, value: Any) -> list[Any]:
    if kind is sre.BRANCH:
        return value[1]
    if kind is sre.SUBPATTERN:
        return [value[3]]
    if kind is sre.ATOMIC_GROUP:
        return [value]
    if kind in _REPEATS:
        return [value[2]]
    return [value[1]] if kind in (sre.ASSERT, sre.ASSERT_NOT) else []


def _words(sequence: Any, most: int = 6) -> list[str]:
    """Texts that a part of a pattern matches: each branch and each kind of character at least once, up to `most`."""
    words = [""]
    for kind, value in sequence:
        words = _joined(words, _variants(kind, value, most))[:most]
    return words


def _joined(left: Sequence[str], right: Sequence[str]) -> list[str]:
    count = max(len(left), len(right))
    return list(dict.fromkeys(left[i % len(left)] + right[i % len(right)] for i in range(count)))


def _variants(kind: Any, value: Any, most: int) -> list[str]:
    if kind is sre.LITERAL:
        return [chr(value)]
    if kind is sre.NOT_LITERAL:
        return [next(c for c in _PROBES if ord(c) != value)]
    if kind is sre.ANY:
        return ["a", " "]
    if kind is sre.IN:
        fitting = [c for c in _PROBES if _in(value, c)]
        literals = [chr(v) for op, v in value if op is sre.LITERAL] if value[0][0] is not sre.NEGATE else []
        ranges = [chr(v[0]) for op, v in value if op is sre.RANGE] if value[0][0] is not sre.NEGATE else []
        return list(dict.fromkeys([*fitting[:3], *literals, *ranges]))[:5] or ["a"]
    if kind in _REPEATS:
        inner = _words(value[2], most)
        return [word * max(value[0], 1) for word in inner] + ([""] if value[0] == 0 else [])
    if kind in (sre.BRANCH, sre.SUBPATTERN, sre.ATOMIC_GROUP):
        return [word for inner in _inner(kind, value) for word in _words(inner, most)[: 3 if most > 6 else 2]]
    return [""]


def _in(items: Any, character: str) -> bool:
    found = False
    for op, value in items:
        if op is sre.NEGATE:
            continue
        found |= (
            (op is sre.LITERAL and ord(character) == value)
            or (op is sre.RANGE and value[0] <= ord(character) <= value[1])
            or (op is sre.CATEGORY and _CATEGORIES[value](character))
        )
    return found != (items[0][0] is sre.NEGATE)


_CATEGORIES: dict[Any, Any] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    sre.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    sre.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


# ---- timing, in the child


def _time(
    compiled: re.Pattern[Any], anchored: bool, text: str, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Time of a search through the whole text, or of a match at its beginning."""
    given = text.encode("utf-8") if isinstance(compiled.pattern, bytes) else text
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    started = clock()
    if anchored:
        compiled.match(given)
        compiled.fullmatch(given)
    else:
        for _ in compiled.finditer(given):
            pass
    taken = clock() - started
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return taken


def grows_too_fast(
    compiled: re.Pattern[Any], anchored: bool, before: str, pump: str, end: str, effort: Effort
) -> str | None:
    """Why the time grows too fast on this text, or None. Ends the process for a pattern of exponential time."""

    def text(size: int) -> str:
        return before + pump * max(1, size // len(pump)) + end

    def taken(size: int, clock: Callable[[], float] = time.perf_counter) -> float:
        return min(_time(compiled, anchored, text(size), clock) for _ in range(2))

    for count in SMALL:
        _time(compiled, anchored, before + pump * count + end)
    # Small times are taken with a clock that is fine but counts other processes too, so that it only acquits; what is
    # found guilty was so by the processor's time, which may come in steps of 10 ms.
    size = effort.screen
    screened = _time(compiled, anchored, text(size))
    if screened <= NOISE_S:
        return None  # as most are
    if not effort.early and 8 * GROWTH * screened < CPU_LIMIT_S:
        long = _time(compiled, anchored, text(8 * size))
        if long <= ACQUITTED * min(screened, _time(compiled, anchored, text(size))):  # the first may be disturbed
            return None
    first, second = taken(size // 2), taken(size)
    acquitted = 0
    while size < LARGEST:
        if second <= GROWTH * first and (effort.early or second >= effort.enough_s):
            first, second = min(first, taken(size // 2)), min(second, taken(size))  # the first may have been disturbed
            # A neighbour on the same core may slow all runs of one size: times below `enough_s` acquit twice.
            acquitted = acquitted + 1 if second <= GROWTH * first else 0
            if acquitted == 2 or (acquitted and second >= effort.enough_s):
                return None
        else:
            acquitted = 0
        if first >= effort.enough_s:
            first, second = taken(size // 2, time.process_time), taken(size, time.process_time)
            if first >= effort.enough_s and second > GROWTH * first:
                return f"{first:.2f} s for {size // 2} characters, {second:.2f} s for twice as many"
            if second <= GROWTH * first:
                return None
        size *= 2
        first, second = second, taken(size)
    return None


def _worker(made: Sequence[Any], mine: range, effort: Effort, say: Callable[[dict[str, Any]], None]) -> None:
    for index in mine:
        _, compiled, anchored = made[index]
        for before, pump in _chosen(pumps(compiled.pattern, compiled.flags), index, effort.every):
            for end in effort.ends:
                case = {"index": index, "before": before, "pump": pump, "end": end}
                say(case)
                if why := grows_too_fast(compiled, anchored, before, pump, end, effort):
                    say(case | {"why": why})
                    break
            else:
                continue
            break


def _chosen(tried: list[tuple[str, str]], index: int, every: int) -> list[tuple[str, str]]:
    """Each so many of the texts; of the general ones each pattern gets others."""
    general, own = tried[: len(GENERAL)], tried[len(GENERAL) :]
    always = [("", " "), ("", "\n"), ("", "a")]
    if every == 1:
        return tried
    # Of the own texts come in turn: one repetition pumped, and the same with what stands before it.
    return always + general[index % every :: every] + own[::every] + own[1::every]


def _child(which: str, effort: Effort, share: int, shares: int) -> None:
    """One line for each slow pattern, and a last one with the number of patterns. Each `shares`-th pattern is mine."""
    made = patterns_of(which)
    mine = range(share, len(made), shares)
    while mine:
        reads, writes = os.pipe()
        worker = os.fork()
        if worker == 0:
            with os.fdopen(writes, "w") as out:
                _worker(made, mine, effort, lambda case: print(json.dumps(case), file=out, flush=True))
                out.flush()
            os._exit(0)
        os.close(writes)
        last: dict[str, Any] = {}
        with os.fdopen(reads) as lines:
            for line in lines:
                last = json.loads(line)
                if "why" in last:
                    _report(made, last)
        status = os.waitpid(worker, 0)[1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            break
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGVTALRM:
            raise RuntimeError(f"a worker ended with status {status} at {last}")
        _report(made, last | {"why": f"more than {CPU_LIMIT_S} s"})
        mine = range(last["index"] + shares, len(made), shares)
    print(json.dumps({"done": len(range(share, len(made), shares))}), flush=True)


def _report(made: Sequence[Any], case: dict[str, Any]) -> None:
    where, compiled, _ = made[case.pop("index")]
    print(json.dumps({"where": where, "source": str(compiled.pattern)} | case), flush=True)


def patterns_of(which: str) -> list[tuple[str, re.Pattern[Any], bool]]:
    """All patterns that the modules under `which`, or of the whole package, make: place, pattern, only anchored."""
    from turnwise.patterns import MADE

    module = importlib.import_module(which)
    root = Path(str(module.__file__)).parent
    for path in sorted(root.rglob("*.py")) if hasattr(module, "__path__") else ():
        # A module that makes patterns names the one that makes them; the others need not be imported.
        # A folder "inside" runs by another Python, with modules that are not here.
        mentions = "patterns" in path.read_text(encoding="utf-8") and "inside" not in path.parts
        if mentions or path.name == "scorer.py":
            importlib.import_module(".".join([which, *path.relative_to(root).with_suffix("").parts]))
    made = [(m.where, m.compiled, m.anchored) for m in MADE if m.where.startswith(which)]
    apart = sys.modules.get("turnwise.demo.scorer")  # which shares no code with the program
    for name, value in vars(apart).items() if apart and which == "turnwise" else ():
        if isinstance(value, re.Pattern):
            made.append((f"turnwise.demo.scorer:{name}", value, False))
    return made


def slow_patterns(
    which: str = "turnwise", effort: Effort = WIDE, timeout_s: float = 600, shares: int = 1
) -> tuple[int, list[Slow]]:
    """How many patterns there are under `which`, and those whose time grows too fast, by `shares` children."""
    size = "short" if effort is SHORT else "wide"
    command = [sys.executable, "-m", "tests.support.linear_time", which, size]
    deadline = time.monotonic() + timeout_s
    children = [
        subprocess.Popen([*command, str(share), str(shares)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for share in range(shares)
    ]
    count, found = 0, []
    try:
        for child in children:
            out, err = child.communicate(timeout=max(0.1, deadline - time.monotonic()))
            lines = [json.loads(line) for line in out.splitlines()]
            if child.returncode or not lines:
                raise RuntimeError(f"the check ended with code {child.returncode}: {err[-2000:]}")
            count += lines[-1]["done"]
            found += [Slow(**line) for line in lines[:-1]]
    finally:
        for child in children:
            child.kill()
            child.wait()
    return count, found


if __name__ == "__main__":
    _child(sys.argv[1], SHORT if sys.argv[2] == "short" else WIDE, int(sys.argv[3]), int(sys.argv[4]))
