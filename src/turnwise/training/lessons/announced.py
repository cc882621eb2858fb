"""What labels announce: "My advice:" wants advice behind it, beside the answer, and no plain answer behind the label.

A plain answer behind such a label is likely to a small model, has the words, and says nothing that was asked for. The
lesson is the plain answer with the label behind it, and what the model that knows the wish goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.lessons.candidates import Answered, sample
from turnwise.training.lessons.echoes import WORD
from turnwise.training.lessons.quoted import quoted_words, same_words, times, with_marks
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

LONGEST = 32
"""Tokens behind a label."""
BEFORE = "\n\n"
"""Before a label: told ten wishes, both embedded models have a paragraph of its own likelier than a line, and likelier
than the same line in 7 and 5."""
Announces = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
"""Says of pairs (label, wish that quotes it) by how much the label announces something beside the answer: above 0."""


def label_of(words: str) -> bool:
    """Whether words are a label, which may announce something."""
    return words.endswith(":")


def with_announced(said: Standing, announces: Announces) -> Standing:
    """The wishes with the labels that announce something, each in that of its wordings that says it most clearly.

    Half of the wordings that have a label have to: "it is missing again, add it always" says nothing of what was to be
    added.
    """
    every = [
        [Wording(wish, places), *before]
        for wish, places, before in zip(said.wishes, said.said, said.before, strict=True)
    ]
    asked = [(n, label, k, text) for n, some in enumerate(every) for label, k, text in _labelled(some)]
    told = announces([(label, text) for _, label, _, text in asked]) if asked else []
    wishes, at, before, announced = [*said.wishes], [*said.said], [*said.before], [*said.announced]
    for n, label in dict.fromkeys((n, label) for n, label, _, _ in asked):
        of = {k: (by, text) for (m, one, k, text), by in zip(asked, told, strict=True) if (m, one) == (n, label)}
        if 2 * sum(by > 0 for by, _ in of.values()) >= len(of):
            announced.append(same_words(label))
            most, some = max(of, key=lambda k: of[k][0]), every[n]
            wishes[n], at[n] = of[most][1], some[most].places
            before[n] = [*some[:most], *some[most + 1 :]]
    return replace(said, wishes=wishes, said=at, before=before, announced=announced)


def _labelled(wordings: Sequence[Wording]) -> list[tuple[str, int, str]]:
    """The labels of a wish, each with the places of the wordings that have it, and these with their marks."""
    labels = [words for words in quoted_words([one.text for one in wordings]) if label_of(words)]
    marked = [(label, k, with_marks(label, one.text)) for label in labels for k, one in enumerate(wordings)]
    return [one for one in marked if same_words(one[0]) in map(same_words, quoted_words([one[2]]))]


def still_announced(said: Standing, announced: Sequence[str], announces: Announces) -> bool:
    """Whether wishes in other words say with each label that was ``announced``, and that they quote, that it announces
    something: 'Include "My advice:" in every answer.' leaves out what the advice is about."""
    quoted = [(label, wish) for wish in said.wishes for label in quoted_words([wish])]
    asked = [(label, wish) for label, wish in quoted if same_words(label) in announced]
    return all(margin > 0 for margin in announces(asked)) if asked else True


def says_more(label: str, answer: str, plain: str, question: str) -> bool:
    """Whether an answer says behind a label, which it has once, what neither the plain answer nor the question says."""
    if times(label, answer) != 1:
        return False
    _, _, behind = " ".join(answer.casefold().split()).partition(label.casefold())
    known = {word for text in (plain, question, label) for word in WORD.findall(text.casefold())}
    return any(len(word) > 1 and word not in known for word in WORD.findall(behind))


def beside(labels: Sequence[str], answer: str) -> str:
    """The answer in small letters without what its lines say from a label on."""
    lines = [" ".join(line.split()) for line in answer.casefold().splitlines()]
    for label in labels:
        lines = [line.partition(label.casefold())[0] for line in lines]
    return "\n".join(filter(None, lines))


def announcing(
    policy: Policy, renderer: PromptRenderer, asked: Sequence[Answered], labels: Sequence[str], tick: Tick
) -> list[tuple[int, list[int]]]:
    """The plain answers that have an end, each with the labels and what the model says behind them that was told."""
    plain = {i: renderer.decode(policy.without_end(one.plain)).strip() for i, one in enumerate(asked) if one.ended}
    texts = {i: text for i, text in plain.items() if text}
    for label in labels:
        begun = {i: f"{text}{BEFORE}{label}" for i, text in texts.items()}
        prompts = [[*asked[i].told.ids, *renderer.encode(text)] for i, text in begun.items()]
        more = sample(policy, prompts, LONGEST, "going on", tick)
        texts = {}
        for (i, text), given in zip(begun.items(), more, strict=True):
            line, end, _ = renderer.decode(policy.without_end(given.ids)).partition("\n")
            if line.strip() and not line.rstrip().endswith(":") and (end or given.ended):
                texts[i] = text + line.rstrip()
    return [(i, [*renderer.encode(text), *_end(policy, asked[i])]) for i, text in texts.items()] if labels else []


def _end(policy: Policy, one: Answered) -> list[int]:
    return one.plain[len(policy.without_end(one.plain)) :]
