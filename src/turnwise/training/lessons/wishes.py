"""Standing wishes: what the person asked for that is true of their other turns, too.

A hint was said about one answer. "Use metric units" holds for the next one as well, until the person says otherwise:
of two hints about the same thing the later one counts, so that a wish is replaced by its opposite. "No more Cheers,
please", said of an answer that ends with "Cheers!", takes a wish back: what is to be learned then is what the base
model says without it. And a person who was not given what they asked for asks for it in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from turnwise.patterns import pattern
from turnwise.skills.opposed import opposed
from turnwise.training.lessons.quoted import (
    Reaction,
    labels_said,
    named_at,
    quoted_words,
    same_words,
    times,
    with_marks,
)

ABOUT = 'The wish "{wish}" in one word is about'
"""The state after this text says what a wish is about, whichever way it goes: "be brief" and "longer, please" are near.

Measured on 25 wishes of 12 kinds: pairs about one thing are told from others with an area under the curve of 0.91 by
the 0.5B model's last layer and 0.86 by the embedded model's; 0.83 and 0.72 without the words around the wish.
"""
SAME = 0.3
"""Cosine between centred states from which two wishes are about the same thing (5 % of other pairs reach it)."""
MOST = 3
"""Wishes that stand at once. A small model told more of them follows none."""
MOST_BEFORE = 2
"""Earlier wordings of one wish that are looked at."""
LONGEST = 400
"""A hint with more characters than this is a task, or something pasted, rather than a wish."""


class Wording(NamedTuple):
    """One wording of a wish, and the places of the hints that say it so."""

    text: str
    places: list[int]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person wishes for now. ``wishes``: those that stand, oldest first, in their last words, or in the ones
    before where these alone quote some; ``taken_back``: those that the person does not want any more, and that the
    policy may have learned. ``said``: the places of the hints that say each wish in these words. ``before``: the other
    words in which each was said, the last ones first.
    ``judged``: for each wish the answers of late that were judged since it was said, which show where words that it
    quotes belong. ``wanted``: words that wishes quote, in whichever wording, and that the person wants said, as answers
    show. ``announced``: labels, in small letters without their colon, before something that the person wants said
    beside the answer.
    """

    wishes: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    said: list[list[int]] = field(default_factory=list, compare=False)
    before: list[list[Wording]] = field(default_factory=list, compare=False)
    judged: list[list[Reaction]] = field(default_factory=list, compare=False)
    wanted: list[str] = field(default_factory=list, compare=False)
    announced: list[str] = field(default_factory=list, compare=False)

    def reworded(self) -> Iterator[tuple[Standing, list[str]]]:
        """The same with one of the wishes in earlier words, and beside it the other wishes alone.

        A small model may follow a wish in one wording and not in another, whichever was said last. What was said last
        comes first.
        """
        for n in reversed(range(len(self.before))):
            for text, places in self.before[n]:
                wishes, said = [*self.wishes], [*self.said]
                wishes[n], said[n] = text, places
                yield replace(self, wishes=wishes, said=said), [*self.wishes[:n], *self.wishes[n + 1 :]]

    def said_at(self, wish: int) -> list[int]:
        """The places of the hints that say one of the wishes, in whichever of its wordings."""
        return [*self.said[wish], *(place for one in self.before[wish] for place in one.places)]

    def in_words(self, others: Sequence[str | None]) -> Standing:
        """The same, each wish in other words, where there are some; those that come to the same words are one."""
        of: dict[str, list[int]] = {}
        for n, (wish, other) in enumerate(zip(self.wishes, others, strict=True)):
            of.setdefault(other or wish, []).append(n)
        said = [[place for n in ns for place in self.said[n]] for ns in of.values()]
        before = [[one for n in ns for one in self.before[n]] for ns in of.values()]
        judged = [_together([self.judged[n] for n in ns]) for ns in of.values()] if self.judged else []
        return replace(self, wishes=list(of), said=said, before=before, judged=judged)


def standing(
    hints: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    followed: Callable[[Sequence[tuple[int, str]]], Sequence[bool | None]] | None = None,
    cancels: Callable[[Sequence[tuple[str, str]]], Sequence[bool]] | None = None,
    lasts: Callable[[Sequence[str]], Sequence[bool]] | None = None,
) -> Standing:
    """The wishes that stand, of hints in the order in which they were said.

    ``embed`` gives a state [n, H] for each of n texts. Two hints are about one thing where these are near, or where
    they quote the same words, or one says without marks what the other quotes, or both say the same label so, or where
    the words that may name what they are about are the same, or where no answer meets both, as their words say
    (`opposed`): then the later one takes the place of the other, whatever else is asked about the two. ``lasts`` says
    which hints are wishes about other answers, too. ``followed`` says of pairs (place of a hint, earlier wish with its
    marks) whether the answer that the hint was said of follows the earlier wish (None: that is not clear), and
    ``cancels`` of pairs (earlier wish, hint) whether the hint ends it rather than says more about it. Where both are
    so, the hint takes that wish back, and is no wish itself, for without the other there is nothing to leave out.
    Where neither is, and both are about one thing,
    the hint says the wish again: who wants the opposite of it has little to say of an answer that does not follow it.
    Of its wordings the last one counts, or the one before it where that alone quotes words.
    What one hint quotes is put into marks in another one that says it without. Without ``followed`` or ``cancels``
    nothing is taken back, nor said again; without ``lasts`` every hint is a wish.
    """
    said = _said(hints, embed, lasts)
    forms = {same_words(words): words for words in quoted_words(said.texts)}
    alike = (said.states @ said.states.T >= SAME).tolist()
    labels = [{same_words(label): label} if label else {} for label in labels_said(said.texts)]
    quoted = [some or {*label} for some, label in zip(_quoted(said.texts, forms, alike), labels, strict=True)]
    forms |= {words: label for one in labels for words, label in one.items()}

    def marked(i: int) -> str:
        known = max(sorted(quoted[i]), key=len, default=None)
        return said.texts[i] if known is None else with_marks(known, said.texts[i], forms[known])

    every = range(len(said.texts))
    against = [[opposed(said.texts[i], said.texts[j]) for j in every] for i in every]
    words = [_telling(text) for text in said.texts]

    def same(i: int, j: int) -> bool:
        return any(some[i] and some[i] == some[j] for some in (quoted, words))

    near = [[alike[i][j] or against[i][j] or same(i, j) for j in every] for i in every]
    related = [
        (i, j)
        for i in every
        for j in range(i)
        if not against[i][j] and (near[i][j] or not words[i].isdisjoint(words[j]))
    ]
    met: dict[tuple[int, int], bool | None] = {}
    takes_back: set[tuple[int, int]] = set()
    if followed and cancels and related:
        asked = followed([(said.places[i], marked(j)) for i, j in related])
        met = dict(zip(related, asked, strict=True))
        related = [pair for pair in related if met[pair]]
        ends = cancels([(said.texts[j], said.texts[i]) for i, j in related]) if related else []
        takes_back = {pair for pair, yes in zip(related, ends, strict=True) if yes}
    stand: list[int] = []
    gone: list[int] = []
    replaced: dict[int, list[int]] = {}
    for i in range(len(said.texts)):
        ended = [j for j in stand if (i, j) in takes_back]
        gone += ended
        last = [j for j in reversed(stand) if j not in ended and near[i][j]]
        replaced[i] = [k for j in last for k in (j, *replaced[j])]
        stand = [j for j in stand if j not in ended and j not in last]
        if not ended:
            stand.append(i)
            gone = [j for j in gone if not near[i][j]]  # what is asked for again is not taken back any more

    def before(i: int) -> list[int]:
        again = list(takewhile(lambda k: near[i][k] and met.get((i, k)) is False, replaced[i]))[:MOST_BEFORE]
        ends = cancels([(said.texts[k], said.texts[i]) for k in again]) if cancels and again else []
        return [k for k, ended in zip(again, ends, strict=True) if not ended]

    def wording(i: int) -> Wording:
        return Wording(marked(i), [place for place, hint in enumerate(hints) if _as_wish(hint) == said.texts[i]])

    def wordings(i: int) -> list[Wording]:
        """The last one first, or the one before it where that quotes words and the last one does not."""
        last, *again = i, *before(i)
        if again and quoted[again[0]] and not quoted[last]:  # "Alas, what prose!" may be no wish
            last, again[0] = again[0], last
        return [wording(k) for k in (last, *again)]

    worded = [wordings(i) for i in stand[-MOST:]]
    return Standing(
        [last.text for last, *_ in worded],
        [said.texts[i] for i in gone],
        [last.places for last, *_ in worded],
        [earlier for _, *earlier in worded],
    )


def _together(judged: Sequence[list[Reaction]]) -> list[Reaction]:
    """What came back on answers since the first of some wishes was said; since each of them it is an end of that."""
    longest = max(judged, key=len)
    asked = [any(ends) for ends in zip_longest(*([one.asked for one in reversed(some)] for some in judged))]
    return [one._replace(asked=again) for one, again in zip(longest, reversed(asked), strict=True)]


def _quoted(texts: Sequence[str], forms: dict[str, str], alike: Sequence[Sequence[bool]]) -> list[set[str]]:
    """What each text quotes, or, where it quotes nothing, which of the others' quotations it has without marks.

    These have three words or more, or stand there as words to be said, as they are spelled in ``forms``: other short
    ones ("of course") stand in a text by chance. Less is needed of a text that is ``alike`` to one that quotes them.
    """
    own = [{same_words(words) for words in quoted_words([text])} for text in texts]

    def has(words: str, i: int) -> bool:
        near = any(alike[i][j] and words in some for j, some in enumerate(own))
        there = len(words.split()) > 2 and times(words, texts[i]) > 0
        return there or named_at(forms[words], texts[i], near) is not None

    return [some or {words for words in forms if has(words, i)} for i, some in enumerate(own)]


@dataclass(frozen=True, slots=True)
class _Said:
    """Hints that name a wish, oldest first: where each was said last, and what it is about [n, H], of length 1."""

    texts: list[str]
    places: list[int]
    states: Tensor


def _said(
    hints: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    lasts: Callable[[Sequence[str]], Sequence[bool]] | None,
) -> _Said:
    last = {text: place for place, hint in enumerate(hints) if (text := _as_wish(hint)) is not None}
    texts = sorted(last, key=last.__getitem__)
    if lasts and texts:
        texts = [text for text, yes in zip(texts, lasts(texts), strict=True) if yes]
    if not texts:
        return _Said([], [], torch.zeros(0, 1))
    states = embed([ABOUT.format(wish=h) for h in (*texts, *ORDINARY)])
    centred = torch.nn.functional.normalize(states - states.mean(0), dim=-1)
    return _Said(texts, [last[text] for text in texts], centred[: len(texts)])


def wishes_among(hints: Sequence[str]) -> list[str]:
    """The hints that may be wishes, in one layout."""
    return [wish for hint in hints if (wish := _as_wish(hint)) is not None]


def _as_wish(hint: str) -> str | None:
    """A hint in one layout, where it may be a wish."""
    text = " ".join(hint.split())
    return text if 0 < len(text) <= LONGEST else None


def _telling(wish: str) -> frozenset[str]:
    """The words of a wish that may name what it is about, without the end that tells one from several."""
    return frozenset(word.lower().rstrip("s") for word in _WORD.findall(wish)) - COMMON


_WORD = pattern(r"[^\W\d_]{4,}")
_LIST = """
    always answer anymore begin every from give just keep leave like longer more much need only please stop sentence
    short start that them thank want when with without word write your
"""
COMMON = frozenset(_LIST.split())
"""Words of many wishes: two that share one of these are not about one thing for it."""
ORDINARY = (
    "be more polite",
    "show me code",
    "answer in French",
    "use bullet points",
    "keep it short",
    "explain every step",
    "tell me your sources",
    "no emojis, please",
    "use my first name",
    "give prices in euros",
)
"""Wishes of ten kinds: the mean state of a few wishes of one person would be what they share, and be taken away."""
