"""Lessons: answers as the person wished for, to questions that are asked without the wish.

The policy's own answers reach only what it sometimes says already. A phrase or a form that it never uses has to be
shown: the base model answers a question, is told the standing wishes and puts its answer into that form; what it then
wrote becomes the target of the bare question (hindsight; docs/training.md). Its own answer stands in its context, so
that the content stays and the form alone changes. The questions are the person's own, and a fixed set of everyday
ones: a wish that is learned on eight questions alone is learned of those eight.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import torch

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.asking import repetition, sample_answers
from turnwise.training.batching import microbatches, row_of
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy, hinted_prompt
from turnwise.training.step import Tick
from turnwise.types import Sample

REWRITE = """Question: {question}
Answer: {answer}

Rewrite this answer so that it follows the wish, and keep its content. Wish: {wish}
Write only the new answer."""
TEMPERATURE = 0.0
"""Greedy: a sampled token that goes astray takes the content with it (docs/decisions/0013-lessons.md)."""
LONGEST_QUESTION = 200
"""Tokens of a question that is answered and rewritten; a pasted page is neither."""
FOLLOWS = 2.0
"""Nats by which an answer has to be likelier with the wish in its context than without: else it does not follow it."""
ON_TOPIC = 8.0
"""Nats by which an answer has to be likelier under its own question than under another one: else it has lost it."""
LOOPS = 0.3
"""Share of an answer's 4-grams that may be repetitions; what goes on for ever is learned first of all."""


MOST_LOOKED_AT = 24
"""Answers of which it is asked, for each batch, whether they follow an earlier wish."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A context that ends where an answer begins, and its last question as text. ``hint_at``: where a hint would go."""

    ids: list[int]
    text: str
    hint_at: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """``answer`` is what the student shall say in ``asked``, as the teacher said it in ``told``; all are token ids."""

    asked: list[int]
    told: list[int]
    answer: list[int]


@cache
def everyday_questions() -> list[str]:
    """The questions that ship with the package, one a line."""
    text = (files("turnwise.training.lessons") / "questions.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line]


def questions_of(
    samples: Sequence[Sample], renderer: PromptRenderer, count: int, longest_prompt: int, seed: str, spare: int = 0
) -> list[OpenQuestion]:
    """About ``count`` questions: those of the samples that are short enough, one a session, and everyday ones.

    Behind them stand ``spare`` more everyday ones.
    """
    own: dict[str, OpenQuestion] = {}
    for sample in samples:
        question = _own_question(sample, renderer) if len(sample.prompt_ids) <= longest_prompt else None
        if question is not None:
            own.setdefault(sample.session_id, question)
    asked = list(own.values())[: count // 2]
    order = list(everyday_questions())
    random.Random(hashlib.sha256(seed.encode()).digest()).shuffle(order)
    for text in order[: count + spare - len(asked)]:
        prompt = renderer.render([saying("user", text)], None)
        if prompt.hint_at is not None:
            asked.append(OpenQuestion(prompt.ids, text, prompt.hint_at))
    return asked


def _own_question(sample: Sample, renderer: PromptRenderer) -> OpenQuestion | None:
    """The last question of a turn. Its text is what is new since the last answer began, without its markup."""
    if sample.hint_at is None or not sample.question:
        return None
    if len(renderer.encode(sample.question)) > LONGEST_QUESTION:
        return None
    return OpenQuestion(sample.prompt_ids, sample.question, sample.hint_at)


def make_lessons(
    policy: Policy,
    renderer: PromptRenderer,
    questions: Sequence[OpenQuestion],
    standing: Standing,
    longest: int,
    seed: int,
    tick: Tick,
) -> list[Lesson]:
    """Lessons of these questions in the standing wishes: those that follow the wishes and stay with their question.
    Where a wish was taken back, the base model's own answers that the policy would not give any more are lessons, too.

    Answers have at most ``longest`` tokens. The base model plays both parts; weights and random state stay as they are.
    """
    if not questions:
        return []
    with policy.reference():
        plain = _sample(policy, [q.ids for q in questions], longest, seed, "answering", tick)
        lessons = _rewritten(policy, renderer, questions, plain, standing.wishes, longest, seed, tick)
    if standing.taken_back:
        taught = {tuple(lesson.asked) for lesson in lessons}
        lessons += [
            Lesson(question.ids, question.ids, answer)
            for question, answer, lost in zip(questions, plain, _lost(policy, questions, plain, tick), strict=True)
            if lost and tuple(question.ids) not in taught
        ]
    return lessons


def _rewritten(
    policy: Policy,
    renderer: PromptRenderer,
    questions: Sequence[OpenQuestion],
    plain: Sequence[list[int]],
    wishes: Sequence[str],
    longest: int,
    seed: int,
    tick: Tick,
) -> list[Lesson]:
    """Lessons of the answers that follow the wishes, when the plain ones are put into that form."""
    if not wishes:
        return []
    wish = " ".join(wishes)
    told = [OpenQuestion(hinted_prompt(q.ids, wish, q.hint_at, policy.tokenizer), q.text, q.hint_at) for q in questions]
    rewriting = []
    for question, answer in zip(questions, plain, strict=True):
        said = renderer.decode(policy.without_end(answer)).strip()
        request = REWRITE.format(question=question.text, answer=said, wish=wish)
        rewriting.append(renderer.render([saying("user", request)], None).ids)
    answers = _sample(policy, rewriting, longest, seed, "rewriting", tick)
    fit = _fitting(policy, questions, told, answers, tick)
    return [
        Lesson(question.ids, prompt, answer)
        for question, prompt, answer, fits in zip(questions, rewriting, answers, fit, strict=True)
        if fits
    ]


def _fitting(
    policy: Policy,
    questions: Sequence[OpenQuestion],
    told: Sequence[OpenQuestion],
    answers: Sequence[list[int]],
    tick: Tick,
) -> list[bool]:
    """Whether each answer follows the wish, and is about its question rather than about the next one."""
    with_wish = _likelihood(policy, told, answers, tick)
    without = _likelihood(policy, questions, answers, tick)
    elsewhere = _likelihood(policy, [*told[1:], told[0]], answers, tick)
    return [
        bool(answer)
        and told_ - plain > FOLLOWS
        and told_ - foreign > ON_TOPIC
        and (repetition([answer]) or 0.0) <= LOOPS
        for answer, told_, plain, foreign in zip(answers, with_wish, without, elsewhere, strict=True)
    ]


def _lost(policy: Policy, questions: Sequence[OpenQuestion], answers: Sequence[list[int]], tick: Tick) -> list[bool]:
    """Whether the policy would hardly say any more what the base model answers, though nothing is wrong with it."""
    with policy.reference():
        base = _likelihood(policy, questions, answers, tick)
    now = _likelihood(policy, questions, answers, tick)
    return [
        bool(answer) and before - after > FOLLOWS and (repetition([answer]) or 0.0) <= LOOPS
        for answer, before, after in zip(answers, base, now, strict=True)
    ]


def followed(
    policy: Policy, samples: Sequence[Sample | None], wishes: Sequence[str], longest_prompt: int, tick: Tick
) -> list[bool]:
    """Whether the answer of each sample follows the wish beside it: it is likelier for the base model when it is told.

    False where there is no sample, or its prompt is longer than ``longest_prompt``; of more than MOST_LOOKED_AT the
    later ones are looked at.
    """
    able = [
        (at, sample, wish)
        for at, (sample, wish) in enumerate(zip(samples, wishes, strict=True))
        if sample is not None and sample.hint_at is not None and len(sample.prompt_ids) <= longest_prompt
    ][-MOST_LOOKED_AT:]
    bare = [OpenQuestion(sample.prompt_ids, "", sample.hint_at or 0) for _, sample, _ in able]
    told = [
        OpenQuestion(hinted_prompt(q.ids, wish, q.hint_at, policy.tokenizer), "", q.hint_at)
        for q, (_, _, wish) in zip(bare, able, strict=True)
    ]
    answers = [sample.response_ids for _, sample, _ in able]
    with policy.reference():
        gained = zip(_likelihood(policy, told, answers, tick), _likelihood(policy, bare, answers, tick), strict=True)
        yes = {
            at for (at, _, _), (with_wish, without) in zip(able, gained, strict=True) if with_wish - without > FOLLOWS
        }
    return [at in yes for at in range(len(samples))]


def _sample(
    policy: Policy, prompts: Sequence[list[int]], longest: int, seed: int, phase: str, tick: Tick
) -> list[list[int]]:
    given = sample_answers(
        policy, prompts, longest, seed, temperature=TEMPERATURE, alive=lambda: tick(phase, 0, len(prompts))
    )
    assert given is not None  # there is no limit of time; a tick ends what takes too long
    return [answer.ids for answer in given]


@torch.no_grad()
def _likelihood(
    policy: Policy, contexts: Sequence[OpenQuestion], answers: Sequence[list[int]], tick: Tick, at_once: int = 2048
) -> list[float]:
    """log p of each answer in its context, in nats; 0 for an empty one."""
    found = [0.0] * len(answers)
    rows = [row_of(i, c.ids, a) for i, (c, a) in enumerate(zip(contexts, answers, strict=True)) if a]
    for group in microbatches(rows, at_once):
        tick("comparing", 0, 1)
        spans = [span for row in group for span in row.spans]
        tokens = torch.tensor([y for s in spans for y in answers[s.sample]], device=policy.device)
        logprobs = policy.token_logprobs(policy.hidden(group), torch.ones(len(tokens), device=policy.device), tokens)
        for span, part in zip(spans, logprobs.split([s.end - s.start for s in spans]), strict=True):
            found[span.sample] = float(part.sum())
    return found
