"""Batching: which samples share an optimiser step, a row of tokens and a forward pass.

Pure functions on token ids. What several answers have before them in common (a system message, the turns so far, a
question that is asked again or with a hint) is read once and not once for each of them: their ids form one row with
forks. Rows are then grouped into padded micro-batches of bounded size. None of this changes the loss: its weights are
those of the whole optimiser step.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from turnwise.pictures.axes import Axes
from turnwise.pictures.placed import Key, PlacedPicture, keys_of
from turnwise.types import Sample

REACH = 4096
"""Length of a row at which looking over all of it costs a token as much as its projections do (the 135M model)."""
WIDEST_FORKED = 8192
"""Tokens of a row with forks: each has a line of its own in the mask, which is 256 MiB here."""
GOOD_PART = 0.25
"""Share of a text that a wide row has to save it."""


@dataclass(frozen=True, slots=True)
class Span:
    """The response of sample ``sample`` (an index into the batch) stands at ``ids[start:end]`` of its row."""

    sample: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fork:
    """The ids of a row from ``at`` on, up to the next fork, go on behind position ``after`` and see nothing between."""

    at: int
    after: int


@dataclass(slots=True)
class Row:
    """Token ids and the responses in them. The logits of position p predict the id at p + 1, but at a fork.

    ``shown``, by its SHA-256: the positions at which a picture is seen, each with which of its features stands there.
    """

    ids: list[int]
    spans: list[Span]
    forks: list[Fork] = field(default_factory=list)
    shown: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def depths(self) -> list[int]:
        """How many ids each one has before it in its own text."""
        depths = list(range(len(self.ids)))
        for fork, end in zip(self.forks, self.ends(), strict=True):
            depths[fork.at : end] = range(depths[fork.after] + 1, depths[fork.after] + 1 + end - fork.at)
        return depths

    def axes(self, grids: Mapping[str, tuple[int, int]]) -> Axes:
        """The position of each id in its own text by time, row and column, with pictures of these rows and columns."""
        shown = {at: (sha256, nth) for sha256 in grids for at, nth in self.shown[sha256]}
        parents = {fork.at: fork.after for fork in self.forks}
        found: Axes = ([], [], [])
        behind: list[int] = []  # the position that what follows an id begins at
        for at in range(len(self.ids)):
            before = parents.get(at, at - 1)
            base = behind[before] if before >= 0 else 0
            if at not in shown:
                position, next_ = (base, base, base), base + 1
            else:
                sha256, nth = shown[at]
                rows, columns = grids[sha256]
                row, column = divmod(nth, columns)
                position = (base, base + row, base + column)
                next_ = base + max(rows, columns) if nth == rows * columns - 1 else base
            behind.append(next_)
            for axis, value in zip(found, position, strict=True):
                axis.append(value)
        return found

    def ends(self) -> list[int]:
        """Where the ids of each fork end."""
        return [*(fork.at for fork in self.forks[1:]), len(self.ids)][: len(self.forks)]


@dataclass(frozen=True, slots=True)
class TokenText:
    """An answer and what stands before it, as ids, and the pictures in these; ``sample`` names it."""

    sample: int
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    pictures: Sequence[PlacedPicture] = ()

    @property
    def ids(self) -> list[int]:
        return [*self.prompt_ids, *self.response_ids]

    @property
    def keys(self) -> list[Key]:
        """What two texts are compared by: where a picture is seen, it is another one's place than any other's."""
        return keys_of(self.ids, self.pictures)

    def shown_from(self, start: int) -> Iterator[tuple[str, int, int]]:
        """Of each place from ``start`` on where a picture is seen: its SHA-256, the place, and which feature."""
        for picture in self.pictures:
            for nth, at in enumerate(picture.places(self.prompt_ids)):
                if at >= start:
                    yield picture.sha256, at, nth


def row_of(sample: int, prompt_ids: Sequence[int], response_ids: Sequence[int]) -> Row:
    """A row with one response: the two id lists joined as ids, never as text."""
    return Row([*prompt_ids, *response_ids], [Span(sample, len(prompt_ids), len(prompt_ids) + len(response_ids))])


def texts_of(samples: Sequence[Sample], chosen: Sequence[int]) -> list[TokenText]:
    """The texts of the samples at ``chosen``."""
    return [TokenText(i, samples[i].prompt_ids, samples[i].response_ids, samples[i].pictures) for i in chosen]


def merge_prefixes(texts: Sequence[TokenText], forks: bool = True, by_text: bool = False) -> list[Row]:
    """Rows for these texts in which what they have in common at their beginnings stands once, where that costs less.

    A text that extends another one goes on in its row; causal attention gives it the log-probs of a row of its own.
    One that differs from some id on becomes a fork of that row, unless ``forks`` is False (a model that cannot read
    them), the row would be wider than WIDEST_FORKED, or looking over the whole row cost more than the ids that it
    saves. With ``by_text`` each id looks at its own text alone; a fork then costs what is new in it, and a row wider
    than REACH takes one that saves a good part of its text. Where the same placeholders show different pictures,
    nothing is in common. The order of ``texts`` does not matter.
    """
    growing: list[_Growing] = []
    # In the order of their ids a text has its longest common beginning with the one before it.
    for keys, _, text in sorted(((text.keys, text.sample, text) for text in texts), key=lambda t: t[:2]):
        if not growing or not growing[-1].take(text, keys, forks):
            growing.append(_Growing(text, keys, by_text))
    return [one.row for one in growing]


class _Growing:
    """A row, and where in it the text stands that it took last, whose keys are ``_last``."""

    def __init__(self, text: TokenText, keys: list[Key], by_text: bool) -> None:
        self._by_text = by_text
        self.row = row_of(text.sample, text.prompt_ids, text.response_ids)
        self._last, self._places = keys, list(range(len(keys)))
        self._show(text, 0)

    def take(self, text: TokenText, keys: list[Key], forks: bool) -> bool:
        """Put the text behind what it has in common with the last one; False, and nothing is changed, where not."""
        # The last id of its prompt stands before its answer, whose first id it predicts.
        shared = min(_common(self._last, keys), len(text.prompt_ids) - 1)
        extends = self._last == keys[: len(self._last)] and len(self._last) <= len(text.prompt_ids)
        if extends:
            shared = len(self._last)
            if self.row.forks and len(self.row.ids) + len(keys) - shared > WIDEST_FORKED:
                return False
        elif not forks or shared < 1 or not self._worth(len(keys), shared):
            return False
        row = self.row
        if not extends:
            row.forks.append(Fork(len(row.ids), self._places[shared - 1]))
        added = range(len(row.ids), len(row.ids) + len(keys) - shared)
        self._last, self._places = keys, [*self._places[:shared], *added]
        row.ids += text.ids[shared:]
        self._show(text, shared)
        row.spans.append(Span(text.sample, len(row.ids) - len(text.response_ids), len(row.ids)))
        return True

    def _show(self, text: TokenText, start: int) -> None:
        """Note where in the row the pictures are seen that stand in the text from ``start`` on."""
        for sha256, at, nth in text.shown_from(start):
            self.row.shown.setdefault(sha256, []).append((self._places[at], nth))

    def _worth(self, length: int, shared: int) -> bool:
        wide = len(self.row.ids) + length - shared
        if self._by_text:  # it never costs more, but a wide row takes memory
            return wide <= REACH or (wide <= WIDEST_FORKED and shared >= GOOD_PART * length)
        return wide <= WIDEST_FORKED and _cost(wide) < _cost(len(self.row.ids)) + _cost(length)


def _common(a: list[int], b: list[int]) -> int:
    """The number of ids with which both begin."""
    return bisect_left(range(min(len(a), len(b))), True, key=lambda n: a[: n + 1] != b[: n + 1])


def _cost(width: int) -> float:
    """What a row costs, in tokens that see nothing but themselves."""
    return width * (1 + width / REACH)


def distinct_tokens(texts: Sequence[TokenText]) -> int:
    """The tokens that any computation over these texts has to read: each beginning that they share counts once."""
    total, last = 0, list[int]()
    for keys in sorted(text.keys for text in texts):
        total += len(keys) - _common(last, keys)
        last = keys
    return total


def padded_tokens(rows: Sequence[Row]) -> int:
    """The tokens of a forward pass over these rows, padding included."""
    return len(rows) * max(len(row.ids) for row in rows)


def microbatches(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows of similar length together, each group at most ``max_tokens`` with padding (a longer row goes alone)."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: len(r.ids)):
        # Ascending order: the newest row is the longest, so it sets the padded width of its group.
        if groups and len(row.ids) * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def minibatches(sessions: Sequence[str], size: int, seed: int, batch: int, epoch: int) -> list[list[int]]:
    """Sample indices of each optimiser step of an epoch, ``sessions[i]`` being that of sample i.

    The order of the sessions is a shuffle fixed by the arguments, cut into steps of about ``size`` samples as evenly as
    it goes: a remainder of one sample would move the weights as far as a full step does. A session's turns stay
    together, so that what they share is read once; one of more than ``size`` turns is a longer step.
    """
    turns: dict[str, list[int]] = {}
    for i, session in enumerate(sessions):
        turns.setdefault(session, []).append(i)
    order = _shuffled(list(turns.values()), seed, batch, epoch)
    count, before = len(sessions), 0
    parts = -(-count // size)
    steps: list[list[int]] = [[] for _ in range(parts)]
    for together in order:
        # Part p holds the samples from count * p // parts on.
        steps[-(-(before + 1) * parts // count) - 1] += together
        before += len(together)
    return [step for step in steps if step]


def group_minibatches(groups: Sequence[str], most: int, seed: int, batch: int, epoch: int) -> list[list[int]]:
    """The same with ``groups[i]`` that of sample i: steps of at most ``most`` whole groups, as even as it goes.

    What a group's rollouts say they say beside each other, so none of it ever stands in two steps.
    """
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    order = _shuffled(list(members.values()), seed, batch, epoch)
    parts = -(-len(order) // most)
    cut = [order[len(order) * p // parts : len(order) * (p + 1) // parts] for p in range(parts)]
    return [[i for group in step for i in group] for step in cut]


def _shuffled(together: list[list[int]], seed: int, batch: int, epoch: int) -> list[list[int]]:
    # sha256, because Python's own hash of a tuple is not promised to stay the same between releases.
    digest = hashlib.sha256(f"{seed}/{batch}/{epoch}".encode()).digest()
    random.Random(digest).shuffle(together)
    return together
