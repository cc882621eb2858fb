"""Labels that announce something: "My advice:" wants advice behind it, beside the answer.

A plain answer behind such a label is likely to a small model, has the words, and says nothing that was asked for. The
lesson is the plain answer with the label below it, and what the model that knows the wish goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.lessons.candidates import OPENS, Answered, sample
from turnwise.training.lessons.echoes import WORD
from turnwise.training.lessons.opening import place_said
from turnwise.training.lessons.quoted import (
    MARKS,
    end_of,
    places_in,
    quoted_words,
    same_words,
    with_marks,
)
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

LONGEST = 32
"""Tokens behind a label."""
BETWEEN = "\n\n"
"""What stands between a plain answer and a label: of a space, a line's end and an empty line this is the likeliest one
to the 0.5B model for 8 of 10 wishes and to the embedded model for 5, the end of a line for none."""
MOST = 3
"""Labels of one wish that are looked at."""
CLEARLY = -1.25
"""A margin below this says clearly that a label announces nothing: "it just goes in front" has -1.6 with the 0.5B
model, and what only says that a label is missing -0.2 to -1.2."""
Announces = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
"""Says of pairs (label, wish that quotes it) by how much the label announces something beside the answer: above 0 it
does."""


def is_label(words: str) -> bool:
    """Whether words may announce something."""
    return words.endswith(":") and WORD.search(words) is not None


def with_announced(said: Standing, announces: Announces) -> Standing:
    """The wishes with the labels that announce something.

    Half of the wordings of a wish that have a label have to say so, and the last words not clearly the opposite. A wish
    whose last words have the label and say less of it ("it is missing again, add it always") is told in the wording
    that says it most clearly. A label that some words have without quotation marks gets them.
    """
    every = [
        [Wording(wish, places), *before]
        for wish, places, before in zip(said.wishes, said.said, said.before, strict=True)
    ]
    asked = {(n, label, k): text for n, some in enumerate(every) for label, k, text in _labelled(some)}
    if not asked:
        return said
    margins = dict(zip(asked, announces([(label, text) for (_, label, _), text in asked.items()]), strict=True))
    wishes, at, before, announced = [*said.wishes], [*said.said], [*said.before], [*said.announced]
    for n, some in enumerate(every):
        of: dict[str, dict[int, float]] = {}
        for (m, label, k), margin in margins.items():
            if m == n:
                of.setdefault(label, {})[k] = margin
        of = {label: by for label, by in of.items() if _is_announced(by)}
        announced += [same_words(label) for label in of]
        last = {label: by for label, by in of.items() if 0 in by}
        if not last:
            continue
        able = [k for k in range(len(some)) if all(k in by for by in last.values())]
        says_it = min(by[0] for by in last.values()) > 0
        best = 0 if says_it else max(able, key=lambda k: sum(by[k] for by in last.values()))
        marked = [
            Wording(next((asked[n, label, k] for label in last if (n, label, k) in asked), one.text), one.places)
            for k, one in enumerate(some)
        ]
        wishes[n], before[n] = marked[best].text, [*marked[:best], *marked[best + 1 :]]
        at[n] = sorted({*some[0].places, *some[best].places})  # the last words say it as well
    return replace(said, wishes=wishes, said=at, before=before, announced=list(dict.fromkeys(announced)))


def _is_announced(by: dict[int, float]) -> bool:
    """Whether a label announces something, of which the wordings at these places say this much; the last one is 0."""
    yes = sum(margin > 0 for margin in by.values())
    return yes > 0 and 2 * yes >= len(by) and by.get(0, 0.0) > CLEARLY


def _labelled(wordings: Sequence[Wording]) -> list[tuple[str, int, str]]:
    """The labels of a wish, each with the places of the wordings that have it, and these with their marks."""
    quoted = [words for one in wordings for words in quoted_words([one.text]) if is_label(words)]
    labels = list({same_words(words): words for words in reversed(quoted)}.values())[-MOST:]
    marked = [(label, k, with_marks(label, one.text)) for label in labels for k, one in enumerate(wordings)]
    return [(label, k, text) for label, k, text in marked if _quotes(label, text)]


def _quotes(label: str, wish: str) -> bool:
    """Whether a wish quotes a label, with its colon."""
    return any(is_label(words) and same_words(words) == same_words(label) for words in quoted_words([wish]))


def still_announced(wish: str, announced: Sequence[str], announces: Announces) -> bool:
    """Whether a wish in other words says of each label that was ``announced``, and that it quotes, that it announces
    something: 'Include "My advice:" in every answer.' leaves out what the advice is about."""
    asked = [(label, wish) for label in quoted_words([wish]) if same_words(label) in announced]
    return all(margin > 0 for margin in announces(asked)) if asked else True


def announced_labels(words: Sequence[str], said: Standing) -> list[str]:
    """Those of the words that are labels which announce something."""
    return [one for one in words if is_label(one) and same_words(one) in said.announced]


def first_labels(labels: Sequence[str], said: Standing) -> list[str]:
    """Those of the labels that an answer is to begin with, as the person wrote: "open with "Good news:""."""
    return [label for label in labels if place_said(label, said.wishes) > 0]


def in_place(first: Sequence[str], answer: str) -> bool:
    """Whether an answer begins with one of the ``first`` labels, if there are such."""
    return not first or any(end_of(label, answer) > 0 for label in first)


def says_more(label: str, answer: str, plain: str, question: str) -> bool:
    """Whether an answer says behind a label, which it has once, what neither the plain answer nor the question says.

    That is a word of two letters or more, or a number, a letter or a sign that stands alone.
    """
    if len(places := places_in(label, answer)) != 1:
        return False
    known = " ".join((plain, question, label)).casefold()
    words, alone = {*WORD.findall(known)}, {*map(_bare, known.split())}

    def new(piece: str) -> bool:
        if len(piece) == 1 or not WORD.search(piece):
            return piece not in alone and not (piece.isascii() and not piece.isalnum())
        return any((len(word) > 1 or word.isdigit()) and word not in words for word in WORD.findall(piece))

    behind = " ".join(answer.casefold().split())[places[0][1] :]
    return any(map(new, filter(None, map(_bare, behind.split()))))


def _bare(piece: str) -> str:
    return piece.strip(MARKS + OPENS + "*_()[]”»’")


def beside(labels: Sequence[str], answer: str) -> str:
    """The answer in small letters without what its lines say from a label on, or the next line where one ends there."""
    lines = [" ".join(line.split()) for line in answer.casefold().splitlines() if line.strip()]
    for label in labels:
        kept, ends = [], False
        for line in lines:
            places = places_in(label, line)
            rest = line[: places[0][0]] if places else "" if ends else line
            ends = bool(places) and not line[places[0][1] :].strip()
            kept.append(rest)
        lines = [line for line in kept if line]
    return "\n".join(lines)


def labelled_answers(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    labels: Sequence[str],
    first: Sequence[str],
    tick: Tick,
) -> list[tuple[int, list[int]]]:
    """The plain answers that have an end, each with the labels and what the model says behind them that was told.

    They stand below the answer, or above it where they are among the ``first`` words of an answer.
    """
    plain = {i: renderer.decode(policy.without_end(one.plain)).strip() for i, one in enumerate(asked) if one.ended}
    texts = {i: text for i, text in plain.items() if text}
    for label in labels:
        above = label in first
        begun = {i: label if above else f"{text}{BETWEEN}{label}" for i, text in texts.items()}
        prompts = [[*asked[i].told.ids, *renderer.encode(text)] for i, text in begun.items()]
        more = sample(policy, prompts, LONGEST, "going on", tick)
        lines: dict[int, str] = {}
        for i, given in zip(begun, more, strict=True):
            line, end, _ = renderer.decode(policy.without_end(given.ids)).partition("\n")
            if line.strip() and not line.rstrip().endswith(":") and (end or given.ended):
                lines[i] = begun[i] + line.rstrip()
        texts = {i: f"{line}{BETWEEN}{texts[i]}" if above else line for i, line in lines.items()}
    return [(i, [*renderer.encode(text), *_end(policy, asked[i])]) for i, text in texts.items()] if labels else []


def _end(policy: Policy, one: Answered) -> list[int]:
    return one.plain[len(policy.without_end(one.plain)) :]
