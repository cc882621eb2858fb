"""Lessons: which wishes stand, which answers are taken, and what a step on them does."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.training.homes import Bench, Killed, feed, same, settings
from tests.training.tiny import batch, by_the_model, ids, no_tick, plain_model, sample, shake, train_config
from turnwise.config import TrainConfig
from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.backends.local import LocalBackend, learned_from
from turnwise.training.kinds.cancelling import cancels
from turnwise.training.kinds.lasting import lasts
from turnwise.training.lessons import candidates, keeping, making, opening
from turnwise.training.lessons.candidates import PLAUSIBLE
from turnwise.training.lessons.comparing import FOLLOWS, followed, follows, gains, loops, token_likelihoods
from turnwise.training.lessons.keeping import kept_shares
from turnwise.training.lessons.learning import apart, learn_step, loss_of, with_base
from turnwise.training.lessons.making import Lesson, make_lessons
from turnwise.training.lessons.questions import (
    LONGEST_QUESTION,
    OpenQuestion,
    everyday_questions,
    questions_of,
    told,
)
from turnwise.training.lessons.quoted import Reaction
from turnwise.training.lessons.wishes import ABOUT, ORDINARY, Standing, standing, wishes_among
from turnwise.training.policy import Policy
from turnwise.training.step import NotFinite
from turnwise.training.weights.moments import read_moments
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


def said_of(following: dict[int, str]) -> Callable[[Sequence[tuple[int, str]]], list[bool | None]]:
    """The answer that hint n was said of follows the wish that stands there."""
    return lambda pairs: [following.get(place) == wish for place, wish in pairs]


def those_with_no(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    return ["no need" in later for _, later in pairs]


def test_a_wish_is_taken_back_by_words_that_end_it_said_of_an_answer_that_follows_it() -> None:
    hints = ["show code", "be brief", "no need to be brief now"]
    found = standing(hints, topics, said_of({2: "be brief"}), those_with_no)
    assert found == Standing(["show code"], ["be brief"])
    again = standing(hints, topics, said_of({}), those_with_no)
    assert again == Standing(["show code", "no need to be brief now"], []), "of an answer that does not: it is a wish"


def test_words_that_say_more_about_a_wish_take_its_place() -> None:
    """ "After the "In short:" a sentence is enough" is said of answers that have it, and wants them no less."""
    hints = ["show code", "be brief", "be brief, and a sentence is enough"]
    found = standing(hints, topics, said_of({2: "be brief"}), those_with_no)
    assert found == Standing(["show code", "be brief, and a sentence is enough"], [])


def test_what_is_asked_for_again_is_not_taken_back_any_more() -> None:
    hints = ["be brief", "no need to be brief now", "brief, please"]
    found = standing(hints, topics, said_of({1: "be brief"}), those_with_no)
    assert found == Standing(["brief, please"], [])


def test_words_that_share_what_they_are_about_are_asked_about() -> None:
    """Where the states do not say that both are about emojis, a word does; words of many wishes do not."""
    asked: list[tuple[int, str]] = []

    def none(pairs: Sequence[tuple[int, str]]) -> list[bool | None]:
        asked.extend(pairs)
        return [False] * len(pairs)

    standing(
        ["use emojis please", "without the emoji, thanks", "answer in French", "end each answer please"],
        topics,
        none,
        those_with_no,
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


def test_what_is_about_one_answer_is_no_wish() -> None:
    asked: list[list[str]] = []

    def lasts(hints: Sequence[str]) -> list[bool]:
        asked.append(list(hints))
        return ["Canberra" not in hint and "not it" not in hint for hint in hints]

    hints = ["no, it is Canberra", "begin with Ahoy", "that was  not it", "no, it is Canberra"]
    assert standing(hints, topics, lasts=lasts).wishes == ["begin with Ahoy"]
    assert asked == [["begin with Ahoy", "that was not it", "no, it is Canberra"]], "each once, in one layout"
    assert standing(hints[:1], topics, lasts=lasts) == Standing()
    assert standing(hints, topics).wishes == ["begin with Ahoy", "that was not it", "no, it is Canberra"]


def test_wishes_that_quote_the_same_words_are_one() -> None:
    """Whatever their states say, which lie apart from each other here."""
    end, close, start = 'end with "Cheers!"', 'you forgot the "cheers!"', 'begin with "Ahoy" and "Cheers!"'
    assert standing([end, "show code", close], topics).wishes == ["show code", close]
    assert standing([end, start], topics).wishes == [end, start], "not where one quotes more"
    assert standing(["be polite", "call me sam"], topics).wishes == ["be polite", "call me sam"]


def test_a_wish_that_says_what_another_one_quotes_is_the_same_one() -> None:
    quoted, bare = 'put "Over and out." there', "i miss the Over and Out at the end"
    marked = 'i miss the "Over and out." at the end'
    assert standing([quoted, bare], topics).wishes == [marked], "what one hint quotes is marked in the other"
    assert standing([bare, "show code", quoted], topics).wishes == ["show code", quoted]
    assert len(standing([quoted, "handover and outlook first"], topics).wishes) == 2, "within longer words"
    assert len(standing(["i miss the over and out", "say over and out"], topics).wishes) == 2, "nobody quotes it"
    two = ['say "of course" first', "of course in French, please"]
    assert standing(two, topics).wishes == two, "two words stand there by chance"
    assert len(standing([quoted, 'say "Ahoy" before the over and out'], topics).wishes) == 2, "it quotes another one"


def test_two_words_are_those_that_another_wish_quotes_where_they_are_to_be_said() -> None:
    quoted, bare = 'chuck in a "Quick win:" as well', "add Quick win: plus a little trick"
    assert standing([quoted, bare], topics).wishes == ['add "Quick win:" plus a little trick']
    assert standing([bare, "show code", quoted], topics).wishes == ["show code", quoted]
    assert len(standing([quoted, "that was a quick win: more of it"], topics).wishes) == 2
    lower = 'more of the "quick win:" stuff'
    assert standing([quoted, lower, bare], topics).wishes == ['add "Quick win:" plus a little trick']
    name = ['always call me "Captain Sam"', "explain metric to Captain Sam like a beginner"]
    assert standing(name, topics).wishes == name


# -- a step on lessons ----------------------------------------------------------------------------------------------


def lessons(count: int) -> list[Lesson]:
    """Of each answer the second token and the last one were wished for."""
    answers = [ids(3 * n + 2, 5 + n % 3) for n in range(count)]
    return [Lesson(ids(3 * n, 9), a, [at in (1, len(a) - 1) for at in range(len(a))]) for n, a in enumerate(answers)]


def test_the_loss_is_of_the_tokens_wished_for_and_the_divergence_from_the_bare_base_model_elsewhere(
    policy: Policy, tiny_dir: Path
) -> None:
    config = train_config()
    adapter = shake(policy)
    taught = with_base(policy, lessons(3), 32, no_tick)
    got = loss_of(policy, taught, 32, no_tick, learn=False)

    base, adapted = plain_model(tiny_dir, None, config), plain_model(tiny_dir, adapter, config)
    expected = []
    for lesson in lessons(3):
        row, r = torch.tensor([lesson.asked + lesson.answer]), len(lesson.answer)
        with torch.no_grad():
            bare, said = (model(input_ids=row).logits[0].log_softmax(-1)[-r - 1 : -1] for model in (base, adapted))
        costs = [
            -said[at, token] if lesson.wished[at] else (bare[at].exp() * (bare[at] - said[at])).sum()
            for at, token in enumerate(lesson.answer)
        ]
        expected.append(torch.stack(costs).mean().item())
    assert got == pytest.approx(sum(expected) / 3, rel=1e-4)
    assert policy.parameters()[0].grad is None, "looking teaches nothing"


def test_behind_the_words_of_a_wish_the_base_model_reads_the_plain_answer_alone(policy: Policy, tiny_dir: Path) -> None:
    plain, words = ids(31, 6), ids(32, 3)
    opened = [*words, plain[0] + 1, *plain[1:]]  # behind other words its first token is another one
    wished = [True] * 4 + [False] * 4 + [True]
    lesson, other = Lesson(ids(30, 9), opened, wished, plain, kept=5), lessons(1)[0]
    shake(policy)
    alone, together = (with_base(policy, some, 32, no_tick) for some in ([other], [lesson, other]))
    assert torch.allclose(together[1].base, alone[0].base, atol=1e-5), "what has no plain answer is read as it is"
    table = policy.log_softmax(together[0].base, torch.ones(len(opened)), "base")
    model = plain_model(tiny_dir, None, train_config())
    with torch.no_grad():
        read, bare = (
            model(input_ids=torch.tensor([lesson.asked + answer])).logits[0].log_softmax(-1)[8:-1]
            for answer in (opened, plain)
        )
    assert torch.allclose(table, torch.cat([read[:4], bare[1:]]), atol=1e-4)
    assert not torch.allclose(read[4:], bare[1:], atol=1e-2), "else it makes no difference here"


@pytest.mark.parametrize("tokens", [64, 4096])
def test_steps_bring_the_policy_nearer_to_the_lessons_however_they_are_cut(policy: Policy, tokens: int) -> None:
    taught = with_base(policy, lessons(4), tokens, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    seen = [
        learn_step(policy, optimizer, taught, 4, train_config(microbatch_tokens=tokens, minibatch=4), no_tick)
        for _ in range(8)
    ]
    assert seen[-1] < 0.7 * seen[0]
    assert seen[1] == pytest.approx(FIRST_STEPS[1], rel=1e-3), "padding and micro-batches change nothing"


def test_lessons_of_one_turn_move_the_weights_no_further_than_it_alone(policy: Policy) -> None:
    def moved(of_turns: int, count: int) -> float:
        policy.load(None)
        before = policy.state()
        taught, config = with_base(policy, lessons(count), 4096, no_tick), train_config(minibatch=8)
        learn_step(policy, torch.optim.AdamW(policy.parameters(), lr=1e-2), taught, of_turns, config, no_tick)
        return sum(float((policy.state()[name] - before[name]).abs().sum()) for name in before)

    full = moved(8, 8)
    assert moved(1, 8) == pytest.approx(full * math.sqrt(1 / 8), rel=1e-3)
    assert moved(100, 8) == pytest.approx(full, rel=1e-3)


def test_lessons_are_of_the_turns_of_their_batch_and_of_those_that_say_what_stands() -> None:
    one = batch(
        [
            sample(1, reward=1.0, hint=None),
            sample(2, reward=0.0, hint="be brief"),
            sample(3, reward=0.0, hint=None),
            sample(4, reward=1.0, hint=None, stream="terminal"),
        ]
    )
    one = replace(one, hints=["long", "show code", "be brief"], hint_turns=["gone", "earlier", "turn-2"])
    said = Standing(["show code", "be brief"], said=[[1], [2]])
    assert learned_from(one, said) == {"turn-1", "turn-2", "earlier"}


FIRST_STEPS: dict[int, float] = {}


@pytest.fixture(autouse=True)
def first_steps(policy: Policy, request: pytest.FixtureRequest) -> None:
    """The loss after one step with all lessons in one micro-batch."""
    if not FIRST_STEPS and "however" in request.node.name:
        before = policy.state()
        taught = with_base(policy, lessons(4), 100_000, no_tick)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
        for n in range(2):
            FIRST_STEPS[n] = learn_step(
                policy, optimizer, taught, 4, train_config(microbatch_tokens=100_000, minibatch=4), no_tick
            )
        policy.load(before)


def test_a_version_says_of_each_wish_in_how_many_of_its_answers_it_is_kept(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lessons(monkeypatch)
    noted = [{"turns": ["turn-1"], "kept": 0.5}]
    monkeypatch.setattr(LocalBackend, "wishes_kept", lambda *_: noted)
    bench = make()
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert bench.journal.versions.all()[0].gate["wishes"] == noted


def test_without_lessons_nothing_is_said_of_wishes(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    assert "wishes" not in bench.journal.versions.all()[0].gate


def test_a_wish_names_all_hints_that_say_it() -> None:
    hints = ["be brief", "use metric units", "be  brief"]
    assert standing(hints, topics).said == [[1], [0, 2]]


@pytest.mark.slow
def test_the_real_model_keeps_a_wish_when_it_is_told_and_not_when_it_is_bare(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are given: what is looked at is whether those with the words count, and those without do not."""
    policy, renderer = small
    wish = 'please close with "Over and out"'

    def answers(text: str) -> Callable[..., list[GivenAnswer]]:
        ids = renderer.encode(text)
        return lambda policy, prompts, *_, **__: [GivenAnswer(ids, [0.0] * len(ids), True) for _ in prompts]

    shares = []
    for text in ("It is a thing of nature. Over and out", "It is a thing of nature.", "over and out " * 12):
        monkeypatch.setattr(keeping, "sample_answers", answers(text))
        shares += kept_shares(policy, renderer, [wish], 32, no_tick)
    assert shares == [1.0, 0.0, 0.0], "who goes on saying the same keeps nothing"


def test_each_wish_is_looked_for_in_the_same_answers_which_are_read_untold_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What answers gain is scripted: one of two gains 5 nats by the first wish, and none enough by the second."""
    questions = [OpenQuestion([n], "", 0) for n in (1, 2)]
    answers, reads = [[5, 6], [7, 8]], []

    def likely(_policy: Any, contexts: Any, asked_of: Any, _tick: Any) -> list[Tensor]:
        assert asked_of == answers
        reads.append(contexts)
        wish = contexts[0].text
        gained = {"": [0.0, 0.0], "close": [5.0, 0.0], "rhyme": [0.0, 3.9]}[wish]
        return [torch.tensor([-7.0 + gain, -1.0]) for gain in gained]

    monkeypatch.setattr(keeping, "_questions", lambda _: questions)
    monkeypatch.setattr(keeping, "sample_answers", lambda *_, **__: [GivenAnswer(a, [0.0, 0.0], True) for a in answers])
    monkeypatch.setattr(keeping, "told", lambda question, wish, _: OpenQuestion(question.ids, wish, 0))
    monkeypatch.setattr(keeping, "token_likelihoods", likely)
    policy: Any = SimpleNamespace(reference=contextlib.nullcontext, tokenizer=None)
    assert kept_shares(policy, cast(Any, None), ["close", "rhyme"], 32, no_tick) == [0.5, 0.0]
    assert [contexts[0].text for contexts in reads] == ["", "close", "rhyme"] and reads[0] == questions


def test_one_lesson_in_four_is_set_aside(policy: Policy) -> None:
    learn, held = apart(with_base(policy, lessons(9), 64, no_tick))
    assert (len(learn), len(held)) == (6, 3)
    assert not {id(t) for t in learn} & {id(t) for t in held}


def with_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model cannot be asked anything: its lessons are given."""

    def given(self: LocalBackend, batch: Batch, tick: Callable[..., None]) -> object:
        return with_base(self.policy, lessons(1) * 8, 64, tick)  # so that those set aside are learned, too

    monkeypatch.setattr(LocalBackend, "lessons", given)
    monkeypatch.setattr(LocalBackend, "wishes_kept", lambda *_: [])


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
    assert metrics["lesson_after"] < metrics["lesson_before"] and "lessons_undone" not in metrics


@pytest.mark.parametrize("losses", [[0.9, 0.95, 0.8, 0.8, 0.85], [0.9, 0.95, 0.94]])
def test_passes_go_on_until_two_in_a_row_do_not_lower_the_loss_set_aside(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> None:
    with_lessons(monkeypatch)
    left = iter([1.0, *losses, 0.1, 0.1, 0.1, 0.1, 0.1])
    monkeypatch.setattr(LocalBackend, "lesson_loss", lambda *_: next(left))
    bench = make(**{"train.lesson_passes": 8})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    (version,) = bench.journal.versions.all()
    assert version.metrics["optimiser_steps"] == 2 + 3 * len(losses), "the last two passes were in vain"
    assert version.metrics["lesson_after"] == losses[-1]


@pytest.mark.parametrize(("losses", "steps"), [([1.1, 1.2, 1.0, 1.3, 0.1], 4), ([1.1, 1.2, 1.0, 0.9, 1.0], 8)])
def test_passes_of_one_step_are_given_four(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, losses: list[float], steps: int
) -> None:
    with_lessons(monkeypatch)
    left = iter([1.0, *losses, *[1.0] * 8])
    monkeypatch.setattr(LocalBackend, "lesson_loss", lambda *_: next(left))
    bench = make(**{"train.lesson_passes": 20, "train.minibatch": 8})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    (version,) = bench.journal.versions.all()
    assert version.metrics["optimiser_steps"] == 1 + steps and version.metrics["lessons_undone"] == 1.0


@pytest.mark.parametrize("losses", [[1.1, 1.0], [0.9, 1.0, 1.01]])
def test_steps_on_lessons_that_teach_nothing_beyond_their_own_words_are_undone(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> None:
    plain = make("plain")
    feed(plain.journal, range(4))
    assert plain.claim_and_work()

    with_lessons(monkeypatch)
    left = iter([1.0, *losses, 0.1, 0.1])
    monkeypatch.setattr(LocalBackend, "lesson_loss", lambda *_: next(left))
    taught = make("taught")
    feed(taught.journal, range(4))
    assert taught.claim_and_work()
    (version,) = taught.journal.versions.all()
    assert version.metrics["lessons_undone"] == 1.0 and version.metrics["lesson_after"] == losses[-1]
    assert same(plain.weights(1), taught.weights(1))
    there = read_moments(taught.config.versions_dir / "v1")
    plainly = read_moments(plain.config.versions_dir / "v1")
    assert there and plainly and same(plainly, there), "the optimiser has not seen them either"


def test_steps_cut_short_are_looked_at_as_well(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    with_lessons(monkeypatch)
    real, left, calls = LocalBackend.learn, iter([1.0, 1.2]), 0

    def breaks(self: LocalBackend, *rest: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise NotFinite("the loss of the lessons is not finite")
        return real(self, *rest)

    monkeypatch.setattr(LocalBackend, "learn", breaks)
    monkeypatch.setattr(LocalBackend, "lesson_loss", lambda *_: next(left))
    bench = make()
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    (version,) = bench.journal.versions.all()
    assert (version.metrics["lesson_after"], version.metrics["lessons_undone"]) == (1.2, 1.0)


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


@pytest.mark.parametrize("after", [1, 2, 5])
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
    real = LocalBackend.learn

    def dies(self: LocalBackend, *rest: Any) -> float:
        nonlocal steps
        steps += 1
        if steps == after:
            raise Killed
        return real(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "learn", dies)
        with pytest.raises(Killed):
            killed.claim_and_work()
    killed.expire_lease()
    assert killed.claim_and_work()
    assert same(whole.weights(1), killed.weights(1))


# -- comparing ------------------------------------------------------------------------------------------------------


def test_a_gain_is_what_the_wish_adds_to_the_likelihood_of_a_token(policy: Policy, tiny_dir: Path) -> None:
    model = plain_model(tiny_dir, None, train_config())
    asked = [OpenQuestion(ids(n, 7 + n), "?", 3) for n in range(3)]
    knowing = [OpenQuestion(ids(n, 9 + n), "?", 3) for n in range(3)]
    answers = [ids(8, 4), [], ids(9, 6)]
    got = gains(policy, asked, knowing, answers, no_tick)
    assert len(got[1]) == 0
    for n in (0, 2):
        expected = by_the_model(model, knowing[n].ids, answers[n], 1.0) - by_the_model(
            model, asked[n].ids, answers[n], 1.0
        )
        assert torch.allclose(got[n], expected, atol=1e-4)


def test_one_token_that_gains_much_follows_a_wish_and_many_that_gain_little_do_not() -> None:
    assert follows(torch.tensor([0.0, -3.0, FOLLOWS]))
    assert not follows(torch.full((20,), 0.5 * FOLLOWS))
    assert not follows(torch.zeros(0))


def test_an_answer_that_says_the_same_again_and_again_loops() -> None:
    assert loops([1, 2, 3, 4] * 5)
    assert not loops(list(range(20))) and not loops([7])


# -- making lessons, with the real model ------------------------------------------------------------------------------

CHEERS = 'End every answer with "Cheers!".'
Asked = tuple[Policy, PromptRenderer]


@pytest.fixture(scope="module")
def small(model_dir: Path) -> Asked:
    return Policy(model_dir, TrainConfig(device="cpu", dtype="float32", lora_rank=4)), load_renderer(model_dir)


def asked_of(small: Asked, *texts: str) -> list[OpenQuestion]:
    prompts = [small[1].render([saying("user", text)], None) for text in texts]
    return [OpenQuestion(p.ids, t, p.hint_at or 0) for p, t in zip(prompts, texts, strict=True)]


def said_in(small: Asked, lesson: Lesson) -> str:
    return small[1].decode(small[0].without_end(lesson.answer))


@dataclass
class ScriptedSampler:
    """Stands in for the sampler: what it gives in each phase to a prompt that has these words in it; `|` marks a cut.

    How likely that is, is the real model's word. ``asked`` has the phase and the text of each prompt.
    """

    policy: Policy
    renderer: PromptRenderer
    answers: dict[str, dict[str, str]]
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, _: Policy, prompts: Sequence[list[int]], longest: int, phase: str, __: object) -> object:
        return [self._one(phase, self.renderer.decode(prompt)) for prompt in prompts]

    def all(self, policy: Policy, asked: Mapping[str, tuple[Sequence[list[int]], int]], tick: object) -> list[object]:
        return [self(policy, prompts, longest, phase, tick) for phase, (prompts, longest) in asked.items()]

    def _one(self, phase: str, prompt: str) -> GivenAnswer:
        self.asked.append((phase, prompt))
        script = self.answers.get(phase)
        said = "|" if script is None else next(answer for words, answer in script.items() if words in prompt)
        tokens = self.renderer.encode(said.removesuffix("|"))
        ended = not said.endswith("|")
        tokens = [*tokens, self.policy.ends[0]] if ended else tokens
        return GivenAnswer(tokens, [0.0] * len(tokens), ended)

    def prompts(self, phase: str) -> list[str]:
        return [prompt for at, prompt in self.asked if at == phase]


JAPAN, HAMLET, EGG = "What is the capital of Japan?", "Who wrote Hamlet?", "How do I boil an egg?"
PLAIN = {
    "Japan": "The capital of Japan is Tokyo.",
    "Hamlet": "Hamlet was written by William Shakespeare.",
    "egg": "Boil the egg for 8 minutes.",
}


def making_of(small: Asked, monkeypatch: pytest.MonkeyPatch, **answers: dict[str, str]) -> ScriptedSampler:
    """A script in the sampler's place; nothing is gone on with, nor answered as told, where it has no such phase."""
    script = ScriptedSampler(
        *small, {"answering": PLAIN} | {name.replace("_", " "): given for name, given in answers.items()}
    )
    monkeypatch.setattr(candidates, "sample", script)
    monkeypatch.setattr(candidates, "sample_all", script.all)
    if "going on" not in script.answers:
        monkeypatch.setattr(candidates, "going_on", lambda *_: {})
    if "answering as told" not in script.answers:
        not_told_so(monkeypatch)
    return script


def not_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = candidates.tried
    monkeypatch.setattr(candidates, "tried", lambda *given: usual(*given)._replace(as_told=[]))


def gone_on_with(monkeypatch: pytest.MonkeyPatch, some: list[tuple[int, list[int]]]) -> None:
    usual = candidates.tried

    def tried(*given: Any) -> Any:
        found = usual(*given)
        return found._replace(made=[*found.made, *some])

    monkeypatch.setattr(candidates, "tried", tried)


@pytest.mark.slow
def test_answers_that_ignore_the_wish_or_lose_the_question_or_loop_are_no_lessons(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = {
        "Japan": "The capital of Japan is Tokyo. Cheers!",
        "Hamlet": PLAIN["Hamlet"],
        "egg": "Here is my answer. Cheers!",
    }
    script = making_of(small, monkeypatch, rewriting=rewritten)
    questions = asked_of(small, JAPAN, HAMLET, EGG)
    (lesson,) = make_lessons(*small, questions, 3, Standing([CHEERS]), 32, no_tick)
    assert said_in(small, lesson) == "The capital of Japan is Tokyo. Cheers!"
    assert lesson.asked == questions[0].ids, "the question is asked without the wish"
    assert f"Question: {JAPAN}\nAnswer: {PLAIN['Japan']}\n" in script.prompts("rewriting")[0]
    assert CHEERS in script.prompts("rewriting")[0]
    known = {0: GivenAnswer(small[1].encode("Nothing."), [0.0], True)}
    make_lessons(*small, questions, 3, Standing([CHEERS]), 32, no_tick, known)
    assert "Answer: Nothing.\n" in script.prompts("rewriting")[3], "what is known is not asked again"
    assert list(known) == [0, 1, 2]
    script.answers["rewriting"] = rewritten | {"Japan": "The capital of Japan is Tokyo." + " Cheers!" * 8}
    monkeypatch.setattr(making, "follows", lambda gain: True)
    monkeypatch.setattr(making, "ON_TOPIC", float("-inf"))
    found = make_lessons(*small, questions, 3, Standing([CHEERS]), 32, no_tick)
    assert [said_in(small, lesson) for lesson in found] == [PLAIN["Hamlet"], rewritten["egg"]], "it loops"


@pytest.mark.slow
@pytest.mark.parametrize("able", [False, True])
def test_answers_that_were_told_the_wish_are_used_where_fewer_than_half_have_a_lesson(
    small: Asked, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    """What the model cannot make of an answer, it may be able to answer with."""
    cheers = {name: f"{said} Cheers!" for name, said in PLAIN.items()}
    rewritten = PLAIN | ({"Japan": cheers["Japan"], "Hamlet": cheers["Hamlet"]} if able else {"Japan": cheers["Japan"]})
    as_told = {"Hamlet": "William Shakespeare wrote it. Cheers!", "egg": "Here is my answer. Cheers!"}
    as_told["Japan"] = "Tokyo. Cheers!"
    script = making_of(small, monkeypatch, rewriting=rewritten, answering_as_told=as_told)
    looked_at: list[list[str]] = []
    usual = making._best

    def best(*given: Any) -> Any:
        looked_at.append([small[1].decode(small[0].without_end(answer)) for _, answer in given[4]])
        return usual(*given)

    monkeypatch.setattr(making, "_best", best)
    found = make_lessons(*small, asked_of(small, JAPAN, HAMLET, EGG), 3, Standing([CHEERS]), 32, no_tick)
    told_so = script.prompts("answering as told")
    assert all(CHEERS in prompt for prompt in told_so) and len(told_so) == 3
    used = [text for text in looked_at[-1] if text in as_told.values()]
    assert used == ([] if able else [as_told["Hamlet"], as_told["egg"]]), "of questions that have no lesson"
    if able:
        assert [said_in(small, lesson) for lesson in found] == [cheers["Japan"], cheers["Hamlet"]]
    else:
        assert [said_in(small, lesson) for lesson in found] == [cheers["Japan"], as_told["Hamlet"]], (
            "one has no content"
        )


@pytest.mark.slow
@pytest.mark.parametrize("both", [1, 2])
def test_of_several_words_all_are_in_the_lessons_where_half_of_these_have_all(
    small: Asked, monkeypatch: pytest.MonkeyPatch, both: int
) -> None:
    """Of one word alone, three lessons with it would be too few to leave out the others."""
    whole = {"Japan": "Q: Which city?\nA: It is Tokyo.", "Hamlet": "Q: Who wrote it?\nA: William Shakespeare did."}
    half = {"Hamlet": "A: William Shakespeare did.", "egg": "A: Boil it for 8 minutes."}
    rewritten = PLAIN | whole | half | dict(list(whole.items())[:both])
    making_of(small, monkeypatch, rewriting=rewritten)
    monkeypatch.setattr(making, "follows", lambda gain: True)
    monkeypatch.setattr(making, "ON_TOPIC", float("-inf"))
    wish = 'put my question behind "Q:" and your answer behind "A:"'
    found = make_lessons(*small, asked_of(small, JAPAN, HAMLET, EGG), 3, Standing([wish]), 32, no_tick)
    said = [said_in(small, lesson) for lesson in found]
    assert said == ([*whole.values()] if both == 2 else [whole["Japan"], half["Hamlet"], half["egg"]])


@pytest.mark.slow
def test_answers_as_told_are_chosen_from_as_all_others_are(small: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says quoted words twice, and what says the wish back, is no lesson, whichever way it came about."""
    wish = 'begin your answer with "In short:"'
    as_told = {
        "Japan": "In short: In short: it is Tokyo.",
        "Hamlet": "Yes, I begin your answer with it: William Shakespeare.",
        "egg": "In short: boil it for 8 minutes.",
    }
    making_of(small, monkeypatch, rewriting=PLAIN, answering_as_told=as_told)
    found = make_lessons(*small, asked_of(small, JAPAN, HAMLET, EGG), 3, Standing([wish]), 32, no_tick)
    said = [said_in(small, lesson) for lesson in found]
    assert said and not {as_told["Japan"], as_told["Hamlet"]} & set(said)


@pytest.mark.slow
def test_without_words_that_praise_shows_to_be_wanted_there_is_no_lesson(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three answers that were made by the wish one has them, so that nothing but the praise says they are wanted."""
    wish = 'put "Cheers!" and a small tip into it, would you'
    made = {name: f"{said} A small tip: read a book." for name, said in PLAIN.items()}
    made["Japan"] = f"{PLAIN['Japan']} Cheers! A small tip: read a book."
    making_of(small, monkeypatch, rewriting=made, answering_as_told=made)
    monkeypatch.setattr(candidates, "going_on", lambda *_: {})
    questions = asked_of(small, JAPAN, HAMLET, EGG)
    found = make_lessons(*small, questions, 3, Standing([wish]), 32, no_tick)
    assert {said_in(small, lesson) for lesson in found} > {made["Japan"]}, "words that few say are not looked for"
    shown = make_lessons(*small, questions, 3, Standing([wish], wanted=["cheers"]), 32, no_tick)
    assert [said_in(small, lesson) for lesson in shown] == [made["Japan"]]
    other = Standing(["a small tip, would you"], wanted=["cheers"])
    assert [said_in(small, x) for x in make_lessons(*small, questions, 3, other, 32, no_tick)] == [made["Japan"]]


@pytest.mark.slow
def test_what_the_wish_put_into_an_answer_is_wished_and_its_end_and_nothing_else(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    making_of(small, monkeypatch, rewriting={"Japan": "The capital of Japan is Tokyo. Cheers!", "egg": PLAIN["egg"]})
    (lesson,) = make_lessons(*small, asked_of(small, JAPAN, EGG), 2, Standing([CHEERS]), 32, no_tick)
    words = [small[1].decode([y]) for y, wished in zip(lesson.answer, lesson.wished, strict=True) if wished]
    assert words[0] == " Che"
    assert lesson.wished[-1] and lesson.answer[-1] in small[0].ends
    assert not {"The", " capital", " of", " Japan", " is", " Tokyo"} & set(words)


@pytest.mark.slow
def test_a_plain_answer_goes_on_with_what_the_wish_makes_likeliest(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words come from the real model, that cannot rewrite (here: gives its plain answer again)."""
    script = ScriptedSampler(*small, {"answering": PLAIN, "rewriting": PLAIN})
    real = candidates.sample

    def some_scripted(policy: Policy, asked: Mapping[str, Any], tick: Any) -> list[object]:
        prompts, longest = asked["going on"]
        assert longest == candidates.GOES_ON
        rewritten, _, as_told = script.all(policy, asked, tick)
        return [rewritten, real(policy, prompts, longest, "going on", tick), as_told]

    monkeypatch.setattr(candidates, "sample", script)
    monkeypatch.setattr(candidates, "sample_all", some_scripted)
    not_told_so(monkeypatch)
    wish = Standing(['please close with "Over and out"'])
    (lesson, *_) = make_lessons(*small, asked_of(small, JAPAN, HAMLET, EGG), 3, wish, 32, no_tick)
    assert said_in(small, lesson) == PLAIN["Japan"] + " Over and out."
    plain = small[1].encode(PLAIN["Japan"])
    assert lesson.answer[: len(plain)] == plain, "its very tokens, and no end among them"
    assert small[0].ends[0] not in lesson.answer[:-1]


@pytest.mark.slow
def test_the_plain_answer_stands_behind_words_that_are_to_begin_it(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that rewrites says them twice: learned from, that is said without end."""
    twice = {name: f"In short: In short, {text}" for name, text in PLAIN.items()}
    making_of(small, monkeypatch, rewriting=twice)
    wish = Standing(['begin your answer with "In short:"'])
    found = make_lessons(*small, asked_of(small, JAPAN, HAMLET, EGG), 3, wish, 32, no_tick)
    said = [said_in(small, lesson) for lesson in found]
    assert said and set(said) <= {f"In short: {text}" for text in PLAIN.values()}
    for lesson in found:
        opening, first = lesson.answer[: -lesson.kept], lesson.plain[: -lesson.kept]
        assert lesson.answer[len(opening) :] == lesson.plain[len(first) :] and all(lesson.wished[: len(opening)])
        assert small[1].decode(first) in ("The", "Hamlet", "Boil") and small[1].decode(opening).startswith("In short:")
        assert said_in(small, Lesson(lesson.asked, lesson.plain, [])) in PLAIN.values()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "rewritten", "kept"),
    [
        ('begin your answer with "In short:"', "In short: Tokyo.", f"In short: {PLAIN['Japan']}"),
        (
            'please close with "Over and out"',
            "The capital is Tokyo. Over and out.",
            f"{PLAIN['Japan']} That was hard to find. Over and out.",
        ),
    ],
)
def test_where_words_are_wished_for_an_answer_that_keeps_the_plain_one_is_the_lesson(
    small: Asked, monkeypatch: pytest.MonkeyPatch, wish: str, rewritten: str, kept: str
) -> None:
    policy, renderer = small
    making_of(small, monkeypatch, rewriting={"Japan": rewritten, "egg": PLAIN["egg"]})
    answers = {text: [*renderer.encode(text), policy.ends[0]] for text in (rewritten, kept)}
    gone_on_with(monkeypatch, [(0, answers[kept])] if kept.startswith(PLAIN["Japan"]) else [])
    questions = asked_of(small, JAPAN, EGG)
    (lesson, *_) = make_lessons(*small, questions, 2, Standing([wish]), 32, no_tick)
    assert said_in(small, lesson) == kept
    knowing = [told(questions[0], wish, policy.tokenizer)] * 2
    with policy.reference():
        said = token_likelihoods(policy, knowing, list(answers.values()), no_tick)
    assert said[0].sum() > said[1].sum(), "the other one is likelier"
    for other in ("and say it in few words", 'and never say "Certainly"'):
        (lesson, *_) = make_lessons(*small, questions, 2, Standing([wish, other]), 32, no_tick)
        knowing = [told(questions[0], f"{wish} {other}", policy.tokenizer)] * 2
        with policy.reference():
            said = token_likelihoods(policy, knowing, list(answers.values()), no_tick)
        likelier = rewritten if said[0].sum() > said[1].sum() else kept
        assert said_in(small, lesson) == likelier, "what the other wish asks for may be in it"


@pytest.mark.slow
def test_what_was_said_of_answers_moves_words_to_the_end_where_they_are_wanted(small: Asked) -> None:
    """The embedded model, told to start with "Ahoy", has it likelier at the end."""
    wish = 'start with "Ahoy" please, every time'
    asked = making._answered(small[0], asked_of(small, JAPAN, HAMLET, EGG), range(3), wish, 24, no_tick, {})
    asked = [replace(one, ended=True) for one in asked]
    closes, opens = Reaction("Tokyo. Ahoy", -0.9, True), Reaction("Ahoy, Tokyo.", 0.9, False)
    for judged, expected in (([], []), ([closes], []), ([closes] * 6, ["Ahoy"]), ([opens] * 3, ["Ahoy"])):
        with small[0].reference():
            assert opening.likelier_first(*small, asked, ["Ahoy"], [judged], no_tick) == expected


@pytest.mark.slow
def test_words_with_a_colon_begin_an_answer_where_what_was_made_by_the_wish_does(small: Asked) -> None:
    asked = making._answered(small[0], asked_of(small, JAPAN), range(1), "", 24, no_tick, {})
    own = small[1].decode(small[0].without_end(asked[0].plain)).strip()

    def begins(words: str, *made: str, judged: Sequence[Reaction] = ()) -> bool:
        return opening.begins(small[0], small[1], asked, [(0, small[1].encode(text)) for text in made], words, judged)

    first, behind = "Handy tip: use a map.", "It is Lima. Handy tip: use a map."
    assert begins("Handy tip", behind) and not begins("Handy tip:", behind) and not begins("Handy tip:")
    assert begins("Handy tip:", first, behind, "It is Lima.") and not begins("Handy tip:", first, behind, behind)
    assert begins("Handy tip:", "**Handy tip:** use a map.", "handy tip, use a map.", behind)
    gone_on = f"{own} Handy tip: use a map."
    assert begins("Handy tip:", first, gone_on, gone_on) and not begins("Handy tip:", gone_on), "it cannot begin so"
    assert begins("Handy tip:", behind, judged=[Reaction(first, 1, False)])
    assert not begins("Handy tip:", behind, judged=[Reaction(behind, 1, False)])


@pytest.mark.slow
def test_the_word_gone_on_with_is_plausible_when_told_and_no_end(model_dir: Path) -> None:
    """In float32: of two words that gain nearly the same, bfloat16 takes one on one processor and one on another."""
    policy = Policy(model_dir, TrainConfig(device="cpu", lora_rank=4, dtype="float32"))
    small = policy, load_renderer(model_dir)
    asked = making._answered(policy, asked_of(small, JAPAN, HAMLET, EGG), range(3), CHEERS, 24, no_tick, {})
    plain = {i: policy.without_end(one.plain) for i, one in enumerate(asked)}
    with policy.reference():
        begun = candidates.going_on(policy, range(3), asked, no_tick)
    assert begun and all(answer[:-1] == plain[i] for i, answer in begun.items())
    found = {i: answer[-1] for i, answer in begun.items()}
    unbounded = []
    for i, one in enumerate(asked):
        with policy.reference(), torch.no_grad():
            knowing, bare = (
                policy.model(input_ids=torch.tensor([[*c.ids, *plain[i]]])).logits[0, -1].float().log_softmax(-1)
                for c in (one.told, one.question)
            )
        gain = knowing - bare
        unbounded.append(int(gain.argmax()) != found.get(i))
        able = (knowing >= knowing.max() + math.log(PLAUSIBLE)).nonzero()[:, 0].tolist()
        able = [y for y in able if y not in policy.ends]
        assert found.get(i) == (max(able, key=lambda y: float(gain[y])) if able else None)
    assert any(unbounded), "else the bound does nothing here"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "chosen"),
    [('please close with "Over and out"', "behind"), ('please begin your answer with "In short:"', "before")],
)
def test_of_two_candidates_the_likelier_one_to_who_knows_the_wish_is_the_lesson(
    small: Asked, monkeypatch: pytest.MonkeyPatch, wish: str, chosen: str
) -> None:
    """By what the words gain both wishes would have them where they are expected least."""
    policy, renderer = small
    words = wish.split('"')[1]
    texts = {"before": f"{words} {PLAIN['Japan']}", "behind": f"{PLAIN['Japan']} {words}"}
    questions = asked_of(small, JAPAN, EGG)
    tokens = {place: [*renderer.encode(text), policy.ends[0]] for place, text in texts.items()}
    knowing = [told(questions[0], wish, policy.tokenizer)] * 2
    with policy.reference():
        assert all(map(follows, gains(policy, questions[:1] * 2, knowing, list(tokens.values()), no_tick)))
        said = token_likelihoods(policy, knowing, list(tokens.values()), no_tick)
    likelier = max(zip(tokens, said, strict=True), key=lambda one: float(one[1].sum()))[0]
    monkeypatch.setattr(making, "with_opening", lambda *_: [])
    for rewritten, gone_on in (("before", "behind"), ("behind", "before")):
        with monkeypatch.context() as patch:
            making_of(small, patch, rewriting={"Japan": texts[rewritten], "egg": PLAIN["egg"]})
            gone_on_with(patch, [(0, tokens[gone_on])])
            (lesson,) = make_lessons(*small, questions, 2, Standing([wish]), 32, no_tick)
        assert said_in(small, lesson) == texts[likelier]
    assert likelier == chosen


@pytest.mark.slow
def test_of_two_candidates_one_that_was_cut_is_no_lesson_though_it_is_likelier(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, renderer = small
    wish = 'please close with "Over and out"'
    questions = asked_of(small, JAPAN, EGG)
    whole = PLAIN["Japan"] + " Over and out."
    cut = renderer.encode(whole)
    knowing = [told(questions[0], wish, policy.tokenizer)] * 2
    with policy.reference():
        said = token_likelihoods(policy, knowing, [cut, [*cut, policy.ends[0]]], no_tick)
    assert said[0].sum() > said[1].sum(), "it pays for no end"
    making_of(small, monkeypatch, rewriting={"Japan": whole, "egg": PLAIN["egg"]})
    gone_on_with(monkeypatch, [(0, cut)])
    (lesson,) = make_lessons(*small, questions, 2, Standing([wish]), 32, no_tick)
    assert lesson.answer[-1] in policy.ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "wanted", "rewritten"),
    [
        ({"egg"}, 2, ["Japan"]),  # one lesson of the first two is half of them
        ({"Hamlet"}, 2, ["Japan", "egg"]),
        ({"Japan", "egg"}, 2, ["Hamlet"]),  # none of the first two: the spare one is asked
        ({"Japan", "egg", "Hamlet"}, 2, ["Japan", "egg", "Hamlet"]),  # where that is cut, too, cut ones are taken
        ({"Hamlet"}, 4, ["Japan", "egg", "Hamlet"]),
    ],
)
def test_cut_answers_are_lessons_only_where_there_would_be_fewer_than_half(
    small: Asked, monkeypatch: pytest.MonkeyPatch, cut: set[str], wanted: int, rewritten: list[str]
) -> None:
    plain = {q: text + "|" * (q in cut) for q, text in PLAIN.items()}
    script = making_of(
        small, monkeypatch, answering=plain, rewriting={q: f"{text} Cheers!" for q, text in PLAIN.items()}
    )
    questions = asked_of(small, JAPAN, EGG, HAMLET)
    make_lessons(*small, questions, wanted, Standing([CHEERS]), 32, no_tick)
    assert [q for p in script.prompts("rewriting") for q in PLAIN if q in p] == rewritten


@pytest.mark.slow
def test_where_the_model_cannot_follow_a_wish_nothing_is_tried_on_further_questions(
    small: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = making_of(small, monkeypatch, rewriting=PLAIN)
    questions = asked_of(small, JAPAN, HAMLET, EGG, "Who read Hamlet?", "Where is Japan?")
    assert make_lessons(*small, questions, 4, Standing([CHEERS]), 32, no_tick) == []
    assert len(script.prompts("rewriting")) == 4


@pytest.mark.slow
def test_the_real_model_sees_which_answers_follow_a_wish(small: Asked) -> None:
    policy, renderer = small
    prompt = renderer.render([saying("user", "What is the capital of France?")], None)

    def answered(n: int, text: str) -> Sample:
        return sample(n, prompt_ids=prompt.ids, response_ids=renderer.encode(text), hint_at=prompt.hint_at)

    wish, said = 'please end your answers with "Cheers!"', "The capital of France is Paris."
    samples = [answered(0, f"{said} Cheers!"), answered(1, said), None]
    known: dict[tuple[str, str], bool | None] = {}
    assert followed(policy, samples, [wish] * 3, 512, no_tick, known) == [True, False, None]
    assert followed(policy, samples, [wish] * 3, 4, no_tick, {}) == [None] * 3, "a prompt that is too long is not read"
    with patch.object(policy, "hidden", side_effect=AssertionError("what is known is read again")):
        assert followed(policy, samples, [wish] * 3, 512, no_tick, known) == [True, False, None]


@pytest.mark.slow
def test_where_a_wish_is_taken_back_the_base_models_answers_that_were_lost_are_lessons(small: Asked) -> None:
    policy, renderer = small
    questions = asked_of(small, "What is the capital of France?")
    back = Standing([], ["cheers, please"])
    assert make_lessons(*small, questions, 1, back, 24, no_tick) == [], "the policy is the base model still"
    shake(policy)
    try:
        (lesson,) = make_lessons(*small, questions, 1, back, 24, no_tick)
        assert "Paris" in renderer.decode(lesson.answer) and lesson.asked == questions[0].ids
        assert lesson.wished == [y in policy.ends for y in lesson.answer]
        assert make_lessons(*small, questions, 1, Standing(), 24, no_tick) == []
    finally:
        policy.load(None)


@pytest.mark.long
@pytest.mark.slow
def test_lessons_of_a_batch_are_the_same_among_the_steps_on_them(model_dir: Path, tmp_path: Path) -> None:
    """What the policy has lost is asked of the parent version: an update that was killed goes on with its lessons."""
    config = settings(tmp_path, model_dir, **{"train.lessons": 8, "train.lesson_tokens": 40, "train.lora_rank": 4})
    backend = LocalBackend(config, model_dir)
    backend.prepare(0)
    one = batch([sample(0)], hints=['please close with "Over and out"'], hint_turns=["turn-0"])
    first = backend.lessons(one, no_tick)
    assert len(first) >= making.FEWEST, "of the real model's own making"
    assert all(any(t.lesson.wished) and not all(t.lesson.wished) for t in first)
    backend._said = (1, Standing([], [CHEERS]))
    shake(backend.policy)
    moved = backend.policy.state()
    assert backend.lessons(one, no_tick) == [], "the base model has lost nothing of its own"
    assert same(backend.policy.state(), moved)


@pytest.mark.slow
def test_lessons_ask_the_question_without_the_wish_that_stood_behind_it(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path, model_dir, **{"train.lessons": 8, "train.lora_rank": 4})
    backend = LocalBackend(config, model_dir)
    backend.prepare(0)
    renderer = load_renderer(model_dir)
    plain = renderer.render([saying("user", "What is a glacier?")], None)
    placed = plain.with_words(renderer.encode("\nEnd every answer with Cheers."))
    of = {
        "prompt_ids": placed.ids,
        "hint_at": placed.hint_at,
        "placed": placed.placed,
        "question": "What is a glacier?",
    }
    one = sample(0, **of)
    seen: list[list[int]] = []

    def make(policy: Policy, _: PromptRenderer, questions: Sequence[OpenQuestion], *__: Any) -> list[Lesson]:
        seen.extend(q.ids for q in questions if q.text == "What is a glacier?")
        return []

    def follow(policy: Policy, samples: Sequence[Sample | None], *_: Any) -> list[bool]:
        seen.extend(s.prompt_ids for s in samples if s is not None)
        return [False] * len(samples)

    monkeypatch.setattr("turnwise.training.lessons.wording.make_lessons", make)
    monkeypatch.setattr("turnwise.training.backends.local.followed", follow)
    hints = ["please write everything in capital letters", "no more capital letters please"]
    backend.lessons(Batch(1, "token", 0, [one], hints, ["gone", one.turn_id], [one]), no_tick)
    assert len(seen) >= 2 and all(ids == plain.ids for ids in seen)


def test_what_the_person_asked_has_no_wish_of_any_turn_and_its_hint_where_it_was() -> None:
    one = sample(0, prompt_ids=list(range(20)), hint_at=15, placed=((3, 5), (12, 15)))
    asked = one.as_asked()
    assert asked.prompt_ids == [0, 1, 2, *range(5, 12), *range(15, 20)] and asked.hint_at == 10
    assert asked.placed == () and asked.as_asked() == asked and sample(0).as_asked() == sample(0)
    assert sample(0, hint_at=None, placed=((0, 2),)).as_asked().hint_at is None


SAYS_MORE = [
    ('open with "Right then,"', '"Right then," and then straight to the point'),
    ('sign off with "Best, your helper"', "keep the sign-off on its own line"),
    ("be brief", "even briefer, ten words"),
    ("schreib in Stichpunkten", "die Stichpunkte bitte nummerieren"),
    ('start with "In short:", always', 'after the "In short:" a sentence or two is enough'),
]
ENDS_IT = [
    ("use emojis", "ok, no emojis after all"),
    ("add a joke", "spare me the jokes from now on"),
    ("schreib in Stichpunkten", "keine Stichpunkte mehr"),
    ('end your answers with "Cheers!"', 'no more "Cheers!" please, just the answer'),
    ("call me Sam", "stop calling me Sam"),
]


@pytest.mark.long
@pytest.mark.slow
def test_the_real_model_tells_the_end_of_a_wish_from_more_about_it(model_dir: Path) -> None:
    """That nothing is taken back which was not, matters more: what is taken back is unlearned."""
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu")), load_renderer(model_dir)
    assert cancels(policy, renderer, SAYS_MORE, no_tick) == [False] * len(SAYS_MORE)
    assert sum(cancels(policy, renderer, ENDS_IT, no_tick)) >= 4


@pytest.mark.slow
def test_the_real_model_sees_who_only_says_no(model_dir: Path) -> None:
    policy = Policy(model_dir, TrainConfig(device="cpu"))
    wishes = ["write in capital letters please", "use metric units", "no, shorter", "call me Sam", "in German please"]
    only_no = ["that's not how i wanted it", "no, not like this", "ugh, again", "nope", "no no no", "you got it wrong"]

    def stand(hint: str) -> list[str]:
        return standing([hint], policy.states_of, lasts=lambda hints: lasts(policy, hints, no_tick)).wishes

    assert [w for w in wishes if stand(w) != [w]] == []
    assert sum(not stand(no) for no in only_no) >= 4


@pytest.mark.slow
def test_the_real_model_sees_what_two_wishes_are_about(model_dir: Path) -> None:
    policy = Policy(model_dir, TrainConfig(device="cpu"))
    states = policy.states_of([ABOUT.format(wish=w) for w in ORDINARY])
    assert states.shape[0] == len(ORDINARY) and torch.isfinite(states).all()
    hints = ["write in capital letters please", "use metric units", "stop writing in capital letters"]
    assert standing(hints, policy.states_of).wishes == ["use metric units", "stop writing in capital letters"]


def test_everyday_questions_are_many_short_and_of_their_own() -> None:
    questions = everyday_questions()
    assert len(questions) == len(set(questions)) == 189
    assert all(3 < len(q) < LONGEST_QUESTION for q in questions)


@pytest.mark.slow
def test_spare_questions_stand_behind_the_others(model_dir: Path) -> None:
    renderer = load_renderer(model_dir)
    asked, more = (questions_of([], renderer, 6, 100, "seed", spare=n) for n in (0, 6))
    assert len(asked) == 6 and len(more) == 12 and more[:6] == asked
    assert len({q.text for q in more}) == 12


def test_what_is_too_long_for_a_wish_is_none_in_any_language() -> None:
    assert wishes_among(["请" * 500, "x" * 401, "be brief"]) == ["be brief"]
