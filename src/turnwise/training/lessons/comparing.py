"""Comparing: how likely answers are in one context and in another, token by token.

What a wish gains a token is by how many nats the base model finds it likelier when it was told the wish. The few tokens
that make an answer one that follows the wish gain much; those of its content gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.training.asking import repetition
from turnwise.training.batching import TokenText, microbatches
from turnwise.training.lessons.questions import OpenQuestion, told
from turnwise.training.policy import Policy
from turnwise.training.step import Tick
from turnwise.types import Sample

FOLLOWS = 4.0
"""Nats that some token of an answer has to gain by the wish: else the answer does not follow it."""
UNCLEAR = 1.0
"""Nats from which it may follow the wish in part."""
LOST = 2.0
"""Nats by which an answer of the base model has to be less likely to the policy, to be one that it would not give."""
LOOPS = 0.3
"""Share of an answer's 4-grams that may be repetitions; what goes on for ever is learned first of all."""
MOST_LOOKED_AT = 24
"""Answers of which it is asked, for each batch, whether they follow an earlier wish."""


@torch.no_grad()
def token_likelihoods(
    policy: Policy, contexts: Sequence[OpenQuestion], answers: Sequence[list[int]], tick: Tick, at_once: int = 2048
) -> list[Tensor]:
    """log p [R] of the R tokens of each answer in its context, in nats, on the CPU; [0] for an empty answer."""
    found = [torch.zeros(0)] * len(answers)
    texts = [TokenText(i, c.ids, a) for i, (c, a) in enumerate(zip(contexts, answers, strict=True)) if a]
    rows = policy.rows_of(texts)
    groups = microbatches(rows, at_once)
    for done, group in enumerate(groups):
        tick("comparing", done, len(groups))
        spans = [span for row in group for span in row.spans]
        tokens = torch.tensor([y for s in spans for y in answers[s.sample]], device=policy.device)
        logprobs = policy.token_logprobs(policy.hidden(group), torch.ones(len(tokens), device=policy.device), tokens)
        parts = logprobs.cpu().split([s.end - s.start for s in spans])
        for span, part in zip(spans, parts, strict=True):
            found[span.sample] = part
    return found


def gains(
    policy: Policy,
    asked: Sequence[OpenQuestion],
    with_wish: Sequence[OpenQuestion],
    answers: Sequence[list[int]],
    tick: Tick,
) -> list[Tensor]:
    """What each token of each answer gains [R], in nats, by the wish in its context."""
    both = token_likelihoods(policy, [*with_wish, *asked], [*answers, *answers], tick)
    return [knowing - bare for knowing, bare in zip(both[: len(answers)], both[len(answers) :], strict=True)]


def follows(gain: Tensor) -> bool:
    """Whether an answer whose tokens gain this much [R] follows the wish."""
    return bool((gain >= FOLLOWS).any())


def loops(answer: Sequence[int]) -> bool:
    """Whether an answer goes on saying what it has said."""
    return (repetition([answer]) or 0.0) > LOOPS


def lost(policy: Policy, questions: Sequence[OpenQuestion], answers: Sequence[list[int]], tick: Tick) -> list[bool]:
    """Whether the policy would hardly say any more what the base model answers, though nothing is wrong with it."""
    with policy.reference():
        base = token_likelihoods(policy, questions, answers, tick)
    now = token_likelihoods(policy, questions, answers, tick)
    return [
        bool(answer) and float((before - after).sum()) > LOST and not loops(answer)
        for answer, before, after in zip(answers, base, now, strict=True)
    ]


def followed(
    policy: Policy,
    samples: Sequence[Sample | None],
    wishes: Sequence[str],
    longest_prompt: int,
    tick: Tick,
    known: dict[tuple[str, str], bool | None],
) -> list[bool | None]:
    """Whether the answer of each sample follows the wish beside it, as the base model sees it.

    None where that is not clear, where there is no sample, or where its prompt is longer than ``longest_prompt``; of
    more than MOST_LOOKED_AT the later ones are looked at. ``known``: what was found before of turns and wishes, to
    which is added what is new.
    """
    able = [
        (at, sample, wish)
        for at, (sample, wish) in enumerate(zip(samples, wishes, strict=True))
        if sample is not None and sample.hint_at is not None and len(sample.prompt_ids) <= longest_prompt
    ][-MOST_LOOKED_AT:]
    of = {at: (sample.turn_id, wish) for at, sample, wish in able}
    able = [(at, sample, wish) for at, sample, wish in able if of[at] not in known]
    bare = [OpenQuestion(sample.prompt_ids, "", sample.hint_at or 0) for _, sample, _ in able]
    knowing = [told(q, wish, policy.tokenizer) for q, (_, _, wish) in zip(bare, able, strict=True)]
    with policy.reference():
        gained = gains(policy, bare, knowing, [sample.response_ids for _, sample, _ in able], tick)
    for (at, _, _), gain in zip(able, gained, strict=True):
        known[of[at]] = follows(gain) or (None if bool((gain >= UNCLEAR).any()) else False)
    return [known[of[at]] if at in of else None for at in range(len(samples))]
