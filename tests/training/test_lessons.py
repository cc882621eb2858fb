"""Lessons: which wishes stand, which rewritten answers are taken, and what a step on them does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.homes import Bench, Killed, feed, same
from tests.training.tiny import ids, no_tick, plain_model, sample, shake, train_config
from turnwise.config import TrainConfig
from turnwise.messages import saying
from turnwise.tokens.rendering import load_renderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.backends.local import LocalBackend
from turnwise.training.checkpoints import origin_of
from turnwise.training.lessons import making
from turnwise.training.lessons.learning import apart, learn_step, loss_of, with_teacher
from turnwise.training.lessons.making import (
    Lesson,
    OpenQuestion,
    everyday_questions,
    followed,
    make_lessons,
    questions_of,
)
from turnwise.training.lessons.wishes import ABOUT, ORDINARY, Standing, standing, wishes_among
from turnwise.training.policy import Policy
from turnwise.training.step import NotFinite
from turnwise.types import Batch, Sample

TOPICS = {"brief": 0, "longer": 0, "metric": 1, "sam": 2, "code": 3}


def topics(texts: Sequence[str]) -> Tensor:
    """One direction for each topic that is named in a text, so that the test decides what is about the same thing."""
    rows = []
    for text in texts:
        row = torch.zeros(16)
        row[next((n for word, n in TOPICS.items() if word in text), 4 + len(rows) % 12)] = 1.0
        rows.append(row)
    return torch.stack(rows)


# -- standing wishes ------------------------------------------------------------------------------------------------


def test_a_later_hint_about_the_same_thing_takes_the_place_of_the_earlier_one() -> None:
    assert standing(["be brief", "use metric units", "longer answers again"], topics).wishes == [
        "use metric units",
        "longer answers again",
    ]


def test_hints_said_twice_are_one_wish_where_they_were_said_last() -> None:
    assert standing(["be  brief", "use metric units", "be brief"], topics).wishes == ["use metric units", "be brief"]


def said_of(following: dict[int, str]) -> Callable[[Sequence[tuple[int, str]]], list[bool]]:
    """The answer that hint n was said of follows the wish that stands there."""
    return lambda pairs: [following.get(place) == wish for place, wish in pairs]


def test_a_wish_is_taken_back_by_words_about_it_said_of_an_answer_that_follows_it() -> None:
    hints = ["show code", "be brief", "no need to be brief now"]
    found = standing(hints, topics, said_of({2: "be brief"}))
    assert found == Standing(["show code"], ["be brief"])
    again = standing(hints, topics, said_of({}))
    assert again == Standing(["show code", "no need to be brief now"], []), "of an answer that does not: it is a wish"


def test_what_is_asked_for_again_is_not_taken_back_any_more() -> None:
    hints = ["be brief", "no need to be brief now", "brief, please"]
    found = standing(hints, topics, said_of({1: "be brief"}))
    assert found == Standing(["brief, please"], [])


def test_words_that_share_what_they_are_about_are_asked_about() -> None:
    """Where the states do not say that both are about emojis, a word does; words of many wishes do not."""
    asked: list[tuple[int, str]] = []

    def none(pairs: Sequence[tuple[int, str]]) -> list[bool]:
        asked.extend(pairs)
        return [False] * len(pairs)

    standing(
        ["use emojis please", "without the emoji, thanks", "answer in French", "end each answer please"], topics, none
    )
    assert asked == [(1, "use emojis please")]


def test_no_more_than_three_stand_and_tasks_are_no_wishes() -> None:
    assert standing(["be brief", "use metric units", "call me sam", "show code"], topics).wishes == [
        "use metric units",
        "call me sam",
        "show code",
    ]
    assert standing(["do this: " + "word " * 80], topics).wishes == []
    assert standing([], topics).wishes == []


def rejections(texts: Sequence[str]) -> Tensor:
    """Those that say no lie beside each other, all others apart from each other."""
    rows = []
    for i, text in enumerate(texts):
        row = torch.zeros(64)
        no = any(word in text for word in ("not", "wrong", "again", "hm, no", "bad", "don't"))
        row[0 if no and "more polite" not in text else 1 + i] = 1.0
        rows.append(row)
    return torch.stack(rows)


def test_what_only_says_no_is_no_wish() -> None:
    assert standing(["begin with Ahoy", "no, that was not it"], rejections).wishes == ["begin with Ahoy"]
    assert standing(["not what i had in mind"], rejections).wishes == []


# -- a step on lessons ----------------------------------------------------------------------------------------------


def lessons(count: int) -> list[Lesson]:
    return [Lesson(ids(3 * n, 9), ids(3 * n, 9) + ids(3 * n + 1, 6), ids(3 * n + 2, 5 + n % 3)) for n in range(count)]


def test_the_loss_is_the_forward_divergence_from_the_base_model_that_was_told(policy: Policy, tiny_dir: Path) -> None:
    config = train_config()
    adapter = shake(policy)
    taught = with_teacher(policy, lessons(3), 32, no_tick)
    got = loss_of(policy, taught, 32, no_tick, learn=False)

    base, adapted = plain_model(tiny_dir, None, config), plain_model(tiny_dir, adapter, config)
    expected = []
    for lesson in lessons(3):
        with torch.no_grad():
            r = len(lesson.answer)
            told = base(input_ids=torch.tensor([lesson.told + lesson.answer])).logits[0].log_softmax(-1)[-r - 1 : -1]
            said = (
                adapted(input_ids=torch.tensor([lesson.asked + lesson.answer])).logits[0].log_softmax(-1)[-r - 1 : -1]
            )
        expected.append((told.exp() * (told - said)).sum(-1).mean().item())
    assert got == pytest.approx(sum(expected) / 3, rel=1e-4)
    assert policy.parameters()[0].grad is None, "looking teaches nothing"


@pytest.mark.parametrize("tokens", [64, 4096])
def test_steps_bring_the_policy_nearer_to_the_teacher_however_they_are_cut(policy: Policy, tokens: int) -> None:
    taught = with_teacher(policy, lessons(4), tokens, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    seen = [
        learn_step(policy, optimizer, taught, train_config(microbatch_tokens=tokens, minibatch=4), no_tick)
        for _ in range(8)
    ]
    assert seen[-1] < 0.7 * seen[0]
    assert seen[1] == pytest.approx(FIRST_STEPS[1], rel=1e-3), "padding and micro-batches change nothing"


FIRST_STEPS: dict[int, float] = {}


@pytest.fixture(autouse=True)
def first_steps(policy: Policy, request: pytest.FixtureRequest) -> None:
    """The loss after one step with all lessons in one micro-batch."""
    if not FIRST_STEPS and "however" in request.node.name:
        before = policy.state()
        taught = with_teacher(policy, lessons(4), 100_000, no_tick)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
        for n in range(2):
            FIRST_STEPS[n] = learn_step(
                policy, optimizer, taught, train_config(microbatch_tokens=100_000, minibatch=4), no_tick
            )
        policy.load(before)


def test_one_lesson_in_four_is_set_aside(policy: Policy) -> None:
    learn, held = apart(with_teacher(policy, lessons(9), 64, no_tick))
    assert (len(learn), len(held)) == (6, 3)
    assert not {id(t) for t in learn} & {id(t) for t in held}


def with_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model cannot be asked anything: its lessons are given."""

    def given(self: LocalBackend, batch: Batch, tick: Callable[..., None]) -> object:
        return with_teacher(self.policy, lessons(1) * 8, 64, tick)  # so that those set aside are learned, too

    monkeypatch.setattr(LocalBackend, "lessons", given)


def test_an_update_goes_on_over_lessons_and_says_what_they_taught(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lessons(monkeypatch)
    bench = make(**{"train.lesson_passes": 2})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    (version,) = bench.journal.versions.all()
    metrics = version.metrics
    assert metrics["optimiser_steps"] == 2 + 2 * 3, "two on samples, two passes over six lessons, two at a time"
    assert metrics["lesson_after"] < metrics["lesson_before"]


def test_lessons_without_a_finite_gradient_cost_no_sample(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lessons(monkeypatch)

    def broken(self: LocalBackend, *_: object) -> float:
        raise NotFinite("the loss of the lessons is not finite")

    monkeypatch.setattr(LocalBackend, "learn", broken)
    bench = make()
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    (version,) = bench.journal.versions.all()
    assert version.metrics["optimiser_steps"] == 2
    assert bench.turns() == {"trained": 4}


@pytest.mark.parametrize("after", [1, 2, 3, 5, 7])
def test_an_update_killed_among_its_lessons_comes_to_the_same_weights(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    with_lessons(monkeypatch)
    whole = make("whole", **{"train.lesson_passes": 2})
    feed(whole.journal, range(4))
    whole.claim_and_work()

    killed = make("killed", **{"train.lesson_passes": 2})
    feed(killed.journal, range(4))
    steps = 0
    real = killed.journal.batches.came_further

    def dies(batch: Batch) -> None:
        nonlocal steps
        real(batch)
        steps += 1
        if steps == after:
            raise Killed

    monkeypatch.setattr(killed.journal.batches, "came_further", dies)
    with pytest.raises(Killed):
        killed.claim_and_work()
    monkeypatch.setattr(killed.journal.batches, "came_further", real)
    killed.expire_lease()
    assert killed.claim_and_work()
    assert same(whole.weights(1), killed.weights(1))


# -- making lessons, with the real model ------------------------------------------------------------------------------


@pytest.mark.slow
def test_answers_that_ignore_the_wish_or_lose_the_question_are_no_lessons(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu")), load_renderer(model_dir)
    asked = ["What is the capital of Japan?", "Who wrote Hamlet?", "How do I boil an egg?"]
    prompts = [renderer.render([saying("user", text)], None) for text in asked]
    questions = [OpenQuestion(p.ids, text, p.hint_at or 0) for p, text in zip(prompts, asked, strict=True)]
    plain = [
        "The capital of Japan is Tokyo.",
        "Hamlet was written by William Shakespeare.",
        "Boil the egg for 8 minutes.",
    ]
    rewritten = [
        "The capital of Japan is Tokyo. Cheers!",
        "Hamlet was written by William Shakespeare.",
        "I am here to help you. Cheers!",
    ]
    said = iter([plain, rewritten])

    def given(*_: object, **__: object) -> list[GivenAnswer]:
        texts = [policy.tokenizer.encode(text, add_special_tokens=False).ids for text in next(said)]
        return [GivenAnswer(ids, [0.0] * len(ids), True) for ids in texts]

    monkeypatch.setattr(making, "sample_answers", given)
    (lesson,) = make_lessons(
        policy, renderer, questions, Standing(['End every answer with "Cheers!".']), 32, 0, no_tick
    )
    assert renderer.decode(lesson.answer) == "The capital of Japan is Tokyo. Cheers!"
    assert lesson.asked == questions[0].ids
    told = renderer.decode(lesson.told)
    assert plain[0] in told and "End every answer" in told
    assert f"Question: {asked[0]}\nAnswer: {plain[0]}\n" in told, "the request is in plain words"


@pytest.mark.slow
def test_the_real_model_sees_which_answers_follow_a_wish_and_what_is_lost_by_it(model_dir: Path) -> None:
    policy = Policy(model_dir, TrainConfig(device="cpu", lora_rank=4))
    renderer = load_renderer(model_dir)
    prompt = renderer.render([saying("user", "What is the capital of France?")], None)

    def answered(text: str) -> Sample:
        return sample(0, prompt_ids=prompt.ids, response_ids=renderer.encode(text), hint_at=prompt.hint_at)

    wish = 'please end your answers with "Cheers!"'
    samples = [answered("The capital of France is Paris. Cheers!"), answered("The capital of France is Paris."), None]
    assert followed(policy, samples, [wish] * 3, 512, no_tick) == [True, False, False]
    assert followed(policy, samples, [wish] * 3, 4, no_tick) == [False] * 3, "a prompt that is too long is not read"
    questions = [OpenQuestion(prompt.ids, "What is the capital of France?", prompt.hint_at or 0)]
    back = Standing([], [wish])
    assert make_lessons(policy, renderer, questions, back, 24, 0, no_tick) == [], "the policy is the base model still"
    shake(policy)
    (lesson,) = make_lessons(policy, renderer, questions, back, 24, 0, no_tick)
    assert "Paris" in renderer.decode(lesson.answer) and lesson.told == lesson.asked == prompt.ids
    assert make_lessons(policy, renderer, questions, Standing(), 24, 0, no_tick) == []


@pytest.mark.slow
def test_the_real_model_sees_who_only_says_no(model_dir: Path) -> None:
    policy = Policy(model_dir, TrainConfig(device="cpu"))
    wishes = ["write in capital letters please", "use metric units", "no, shorter", "call me Sam", "in German please"]
    only_no = ["that's not how i wanted it", "no, not like this", "ugh, again", "nope", "no no no", "you got it wrong"]
    assert [w for w in wishes if standing([w], policy.states_of).wishes != [w]] == []
    assert sum(not standing([no], policy.states_of).wishes for no in only_no) >= 4


@pytest.mark.slow
def test_the_real_model_sees_what_two_wishes_are_about(model_dir: Path) -> None:
    policy = Policy(model_dir, TrainConfig(device="cpu"))
    states = policy.states_of([ABOUT.format(wish=w) for w in ORDINARY])
    assert states.shape[0] == len(ORDINARY) and torch.isfinite(states).all()
    hints = ["write in capital letters please", "use metric units", "stop writing in capital letters"]
    assert standing(hints, policy.states_of).wishes == ["use metric units", "stop writing in capital letters"]


def test_everyday_questions_are_many_short_and_of_their_own() -> None:
    questions = everyday_questions()
    assert len(questions) == len(set(questions)) >= 90
    assert all(3 < len(q) < making.LONGEST_QUESTION for q in questions)


@pytest.mark.slow
def test_spare_questions_stand_behind_the_others(model_dir: Path) -> None:
    renderer = load_renderer(model_dir)
    asked, more = (questions_of([], renderer, 6, 100, "seed", spare=n) for n in (0, 6))
    assert len(asked) == 6 and len(more) == 12 and more[:6] == asked
    assert len({q.text for q in more}) == 12


def test_an_update_whose_hints_or_settings_changed_begins_anew() -> None:
    one = Batch(1, "token", 0, [], ["be brief"])
    config = train_config()
    asks, silent = (Batch(1, "token", 0, [sample(0, question=q)], []) for q in ("why?", None))
    assert origin_of(asks, {}, config) != origin_of(silent, {}, config), "a late verdict changes what is asked"
    assert origin_of(one, {}, config) == origin_of(Batch(1, "other", 0, [], ["be brief"]), {}, config)
    assert origin_of(one, {}, config) != origin_of(Batch(1, "token", 0, [], ["longer"]), {}, config)
    assert origin_of(one, {}, config) != origin_of(one, {}, train_config(lesson_passes=2))


def test_what_is_too_long_for_a_wish_is_none_in_any_language() -> None:
    assert wishes_among(["请" * 500, "x" * 401, "be brief"]) == ["be brief"]
