"""Whether weights keep a wish that they are not told: what they answer, as the base model sees it.

Lessons are made of all standing wishes at once, and the gate may let a part of a step pass: so of the weights that are
published each wish is asked for by itself. By this a wish is told in prompts, or no longer (journal/skills/taught.py).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.asking import sample_answers
from turnwise.training.lessons.comparing import follows, loops, token_likelihoods
from turnwise.training.lessons.questions import OpenQuestion, everyday_questions, told
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

ASKED = 8
"""Everyday questions that are answered; lessons may have some of them, which is one in ten."""


def kept_shares(
    policy: Policy, renderer: PromptRenderer, wishes: Sequence[str], longest: int, tick: Tick
) -> list[float]:
    """Of the answers, at most ``longest`` tokens each, that the weights in the policy give at temperature 0, the share
    that follows each wish. Those that go on saying the same follow none."""
    questions = _questions(renderer)
    prompts = [question.ids for question in questions]
    given = sample_answers(
        policy, prompts, longest, 0, temperature=0.0, alive=lambda: tick("asking for wishes", 0, len(prompts))
    )
    assert given is not None  # there is no limit of time; a tick ends what takes too long
    answers = [[] if loops(answer.ids) else answer.ids for answer in given]
    shares = []
    with policy.reference():
        bare = token_likelihoods(policy, questions, answers, tick)
        for wish in wishes:
            knowing = [told(question, wish, policy.tokenizer) for question in questions]
            said = token_likelihoods(policy, knowing, answers, tick)
            followed = [follows(with_wish - without) for with_wish, without in zip(said, bare, strict=True)]
            shares.append(sum(followed) / len(followed))
    return shares


def _questions(renderer: PromptRenderer) -> list[OpenQuestion]:
    """The same ones at each update, so that updates can be compared."""
    order = list(everyday_questions())
    random.Random(hashlib.sha256(b"kept").digest()).shuffle(order)
    prompts = [(renderer.render([saying("user", text)], None), text) for text in order[:ASKED]]
    return [OpenQuestion(p.ids, text, p.hint_at) for p, text in prompts if p.hint_at is not None]
