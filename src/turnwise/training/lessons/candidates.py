"""The ways in which the base model comes to an answer in the wished form, each of which it may be able to go or not.

It puts its own answer into that form, it goes on with its answer as it stands from the word that the wish makes
likeliest, and it answers a question that it is asked together with the wish, for where both lead to few lessons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.asking import GivenAnswer, sample_answers
from turnwise.training.batching import Row, Span, microbatches
from turnwise.training.lessons.questions import OpenQuestion
from turnwise.training.lessons.quoted import rank
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

REWRITE = """Question: {question}
Answer: {answer}

Rewrite this answer so that it follows the wish, and keep its content. Wish: {wish}
Write only the new answer."""
TEMPERATURE = 0.0
"""Greedy: a sampled token that goes astray takes the content with it (docs/decisions/0013-lessons.md)."""
PLAUSIBLE = 0.02
"""Share of the likeliest token's probability that a token needs to be one that an answer may go on with."""
UNFINISHED = 0.6
"""Share of what may follow words, the likeliest tokens, that goes on with a word: from there on they ask for more.

It is a mean over questions with the wish and without it. Of 22 phrases that open or close an answer and end in a letter
none is beyond it for the embedded model; of 19 that introduce something 14 are, and three of the others are those that
a comma follows ("For instance").
"""
OPENS = "\"“„«‘'"
"""With these a complement may begin as well."""
LIKELIEST = 20
"""Tokens behind words that are looked at: the others are too unlikely to say how they go on."""
GOES_ON = 24
"""Most tokens behind the first one with which a plain answer goes on."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question, the same when the wish is told, another one when it is told, and what the base model answers.

    It answers the bare question.
    """

    question: OpenQuestion
    told: OpenQuestion
    other: OpenQuestion
    plain: list[int]
    ended: bool


class Tried(NamedTuple):
    """Candidates (question, answer): put into the wished form or gone on with, and, apart, given when told the wish."""

    made: list[tuple[int, list[int]]]
    as_told: list[tuple[int, list[int]]]


def tried(
    policy: Policy, renderer: PromptRenderer, asked: Sequence[Answered], wish: str, longest: int, tick: Tick
) -> Tried:
    """What the base model makes in each way of the questions and its plain answers to them.

    It puts a plain answer into the form that was wished for. A small model that cannot rewrite an answer with "over and
    out" at its end can still write these words behind it, where it has an end. And a list that it cannot make of an
    answer, it can still answer with when it is told: that has less of what the plain answer says. All are sampled at
    once: a token of 32 answers takes the 0.5B model 184 ms on a core with AMX, one of 16 takes it 141.
    """
    begun = going_on(policy, [i for i, a in enumerate(asked) if a.ended], asked, tick)
    given = sample_all(
        policy,
        {
            "rewriting": (_rewriting(policy, renderer, asked, wish), longest),
            "going on": ([[*asked[i].told.ids, *answer] for i, answer in begun.items()], GOES_ON),
            "answering as told": ([one.told.ids for one in asked], longest),
        },
        tick,
    )
    rewritten, gone_on, as_told = ([answer.ids for answer in answers] for answers in given)
    gone_on = [(i, [*answer, *more]) for (i, answer), more in zip(begun.items(), gone_on, strict=True)]
    return Tried([*enumerate(rewritten), *gone_on], [*enumerate(as_told)])


def _rewriting(policy: Policy, renderer: PromptRenderer, asked: Sequence[Answered], wish: str) -> list[list[int]]:
    """Prompts that ask for the plain answers in the form that was wished for."""
    prompts = []
    for one in asked:
        said = renderer.decode(policy.without_end(one.plain)).strip()
        request = REWRITE.format(question=one.question.text, answer=said, wish=wish)
        prompts.append(renderer.render([saying("user", request)], None).ids)
    return prompts


def without(
    words: Sequence[str], renderer: PromptRenderer, questions: int, candidates: Sequence[tuple[int, list[int]]]
) -> list[int]:
    """Those of so many questions of whose candidates none has all the words."""
    having = {i for i, answer in candidates if rank(words, renderer.decode(answer)) == len(words)}
    return [i for i in range(questions) if i not in having]


@torch.no_grad()
def going_on(policy: Policy, which: Sequence[int], asked: Sequence[Answered], tick: Tick) -> dict[int, list[int]]:
    """The plain answers to the questions at ``which``, each with the token behind it that gains most by the wish.

    It is one of those that are plausible there when told. An end is none: where nothing else is plausible, nothing is
    gone on with.
    """
    plain = {i: policy.without_end(asked[i].plain) for i in which}
    if not plain:
        return {}
    tick("going on", 0, 1)
    knowing = _behind(policy, [[*asked[i].told.ids, *answer] for i, answer in plain.items()])
    bare = _behind(policy, [[*asked[i].question.ids, *answer] for i, answer in plain.items()])
    able = knowing >= knowing.max(-1, keepdim=True).values + math.log(PLAUSIBLE)
    able[:, policy.ends] = False
    best = (knowing - bare).masked_fill(~able, float("-inf")).argmax(-1).tolist()
    some = able.any(-1).tolist()
    return {i: [*plain[i], token] for i, token, is_any in zip(plain, best, some, strict=True) if is_any}


def _behind(policy: Policy, contexts: Sequence[list[int]], at_once: int = 2048) -> Tensor:
    """log p [n, V] of the token behind each of n contexts."""
    rows = [Row(ids, [Span(n, len(ids), len(ids) + 1)]) for n, ids in enumerate(contexts)]
    groups = microbatches(rows, at_once)
    hidden = torch.cat([policy.hidden(group) for group in groups])
    order = [span.sample for group in groups for row in group for span in row.spans]
    table = policy.log_softmax(hidden, torch.ones(len(rows), device=policy.device))
    return table[torch.tensor(order, device=policy.device).argsort()]


def ask_for_more(
    policy: Policy, renderer: PromptRenderer, asked: Sequence[Answered], words: Sequence[str], tick: Tick
) -> list[bool]:
    """Which of the words are no whole saying: "Not to be confused with", which no plain answer can follow.

    Those that end in a mark are one, as the person wrote them.
    """
    tick("looking at quoted words", 0, len(words))
    return [bool(one) and one[-1].isalnum() and _unfinished(policy, renderer, asked, one) for one in words]


@torch.no_grad()
def _unfinished(policy: Policy, renderer: PromptRenderer, asked: Sequence[Answered], words: str) -> bool:
    begun = renderer.encode(words)
    questions = [question for one in asked for question in (one.told, one.question)]
    likely = _behind(policy, [[*question.ids, *begun] for question in questions]).exp().mean(0).topk(LIKELIEST)
    firsts = [renderer.decode([i]).lstrip()[:1] for i in likely.indices.tolist()]
    goes_on = torch.tensor([first.isalnum() or (first != "" and first in OPENS) for first in firsts])
    return float(likely.values.cpu()[goes_on].sum() / likely.values.sum()) > UNFINISHED


def sample(policy: Policy, prompts: Sequence[list[int]], longest: int, phase: str, tick: Tick) -> list[GivenAnswer]:
    """Greedy answers of the weights in the policy, of at most ``longest`` tokens."""
    return _sampled(policy, prompts, [longest] * len(prompts), phase, tick)


def sample_all(
    policy: Policy, asked: Mapping[str, tuple[Sequence[list[int]], int]], tick: Tick
) -> list[list[GivenAnswer]]:
    """The same to prompts of several kinds, each with its longest answer, sampled at once."""
    prompts = [prompt for some, _ in asked.values() for prompt in some]
    longest = [most for some, most in asked.values() for _ in some]
    given = iter(_sampled(policy, prompts, longest, "making lessons", tick))
    return [[*islice(given, len(some))] for some, _ in asked.values()]


def _sampled(
    policy: Policy, prompts: Sequence[list[int]], longest: Sequence[int], phase: str, tick: Tick
) -> list[GivenAnswer]:
    given = sample_answers(
        policy, prompts, longest, 0, temperature=TEMPERATURE, alive=lambda: tick(phase, 0, len(prompts))
    )
    assert given is not None  # there is no limit of time; a tick ends what takes too long
    return given
