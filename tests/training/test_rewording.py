"""One wish in several wordings: which of them are one, and that lessons are made in one that the model follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.homes import settings
from tests.training.tiny import batch, no_tick, sample
from turnwise.config import TrainConfig
from turnwise.messages import saying
from turnwise.tokens.rendering import load_renderer
from turnwise.training.backends import local
from turnwise.training.backends.local import LocalBackend
from turnwise.training.lessons import opening, wording
from turnwise.training.lessons.echoes import Run
from turnwise.training.lessons.making import FEWEST, Lesson, in_line_with
from turnwise.training.lessons.questions import OpenQuestion
from turnwise.training.lessons.quoted import Reaction
from turnwise.training.lessons.wished import Wished, wished_of, wished_runs, wished_tokens
from turnwise.training.lessons.wishes import Standing, Wording, standing
from turnwise.training.policy import Policy

BRIEF, AGAIN, THIRD = "be brief", "brief answers", "a brief one please"
CHEERS = 'brief, and say "Cheers, dear mate"'


def topics(texts: Sequence[str]) -> Tensor:
    """One direction for all texts that name a topic, and one for each other text."""
    rows = torch.zeros(len(texts), 2 + len(texts))
    for n, text in enumerate(texts):
        rows[n, 0 if "brief" in text or "longer" in text else 1 if "code" in text else 2 + n] = 1.0
    return rows


def stand(hints: Sequence[str], follows: dict[tuple[int, str], bool | None] | None = None) -> Standing:
    """``follows``: whether the answer that hint n was said of follows an earlier wish; those not named do not."""

    def followed(pairs: Sequence[tuple[int, str]]) -> list[bool | None]:
        return [(follows or {}).get(pair, False) for pair in pairs]

    def cancels(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        return ["no need" in later for _, later in pairs]

    return standing(hints, topics, followed, cancels)


# -- what is one wish -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hints", "follows", "wishes", "before"),
    [
        ([BRIEF, "show code", AGAIN, THIRD], {}, ["show code", THIRD], [[], [AGAIN, BRIEF]]),
        ([BRIEF, AGAIN, BRIEF], {}, [BRIEF], [[AGAIN]]),  # by where each was said last
        (["brief!", BRIEF, AGAIN, THIRD], {}, [THIRD], [[AGAIN, BRIEF]]),  # two are enough
        # Who had what was asked for, and says another thing about it, wants that other thing.
        ([BRIEF, "longer lines"], {(1, BRIEF): True}, ["longer lines"], [[]]),
        (
            [BRIEF, AGAIN, "longer lines"],
            {(2, AGAIN): True},
            ["longer lines"],
            [[]],
        ),  # nor what that one said again
        ([BRIEF, AGAIN, THIRD], {(2, BRIEF): True}, [THIRD], [[AGAIN]]),
        ([BRIEF, AGAIN], {(1, BRIEF): None}, [AGAIN], [[]]),  # it is not clear whether it had it
        ([BRIEF, "no need to be brief"], {}, ["no need to be brief"], [[]]),
        ([BRIEF, "show code"], {}, [BRIEF, "show code"], [[], []]),
        # What quotes nothing says less than what quotes: it may be no wish.
        ([CHEERS, "code!", "brief, what prose!"], {}, ["code!", CHEERS], [[], ["brief, what prose!"]]),
        ([CHEERS, AGAIN, f"{CHEERS}!"], {}, [f"{CHEERS}!"], [[AGAIN, CHEERS]]),
        ([CHEERS, AGAIN, THIRD], {}, [THIRD], [[AGAIN, CHEERS]]),  # who says it twice means it
        ([CHEERS, "brief, cheers, dear mate, please"], {}, ['brief, "Cheers, dear mate", please'], [[CHEERS]]),
        ([CHEERS, AGAIN], {(1, CHEERS): None}, [AGAIN], [[]]),
    ],
)
def test_a_wish_that_was_not_followed_is_said_again_in_other_words(
    hints: list[str], follows: dict[tuple[int, str], bool | None], wishes: list[str], before: list[list[str]]
) -> None:
    found = stand(hints, follows)
    assert (found.wishes, found.taken_back) == (wishes, [])
    assert [[wording.text for wording in each] for each in found.before] == before


def test_without_a_look_at_the_answers_nothing_is_said_again() -> None:
    assert standing([BRIEF, AGAIN], topics).before == [[]]


def test_each_wording_names_the_hints_that_say_it() -> None:
    found = stand([BRIEF, "show code", AGAIN, BRIEF, THIRD])
    assert found.said == [[1], [4]]
    assert found.before == [[], [Wording(BRIEF, [0, 3]), Wording(AGAIN, [2])]]


def test_one_wish_at_a_time_is_told_in_earlier_words_the_later_ones_first() -> None:
    before = [[Wording("b", [0])], [], [Wording(AGAIN, [2]), Wording(BRIEF, [1])]]
    found = list(Standing(["c", "code", THIRD], ["old"], [[3], [4], [5]], before).reworded())
    assert [(one.wishes, others, one.said) for one, others in found] == [
        (["c", "code", AGAIN], ["c", "code"], [[3], [4], [2]]),
        (["c", "code", BRIEF], ["c", "code"], [[3], [4], [1]]),
        (["b", "code", THIRD], ["code", THIRD], [[0], [4], [5]]),
    ]
    assert all(one.taken_back == ["old"] for one, _ in found)
    assert list(Standing(["c"], [], [[0]], [[]]).reworded()) == list(Standing().reworded()) == []


# -- lessons in them --------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBackend:
    """One whose model follows "brief answers" alone, by four lessons; the making of lessons is scripted.

    Five more are of what was taken back, two of them of the same questions.
    """

    def made(*given: Any) -> list[Lesson]:
        asked: list[list[str]] = backend.asked  # type: ignore[attr-defined]
        if asked[-1:] != [given[4].wishes]:  # at first on half of the questions
            asked.append(given[4].wishes)
        of_wishes = [Lesson([n], [n], [True]) for n in range(FEWEST if AGAIN in given[4].wishes else FEWEST - 1)]
        return of_wishes + [Lesson([2 + n], [n], [True], back=True) for n in range(5 * len(given[4].taken_back))]

    monkeypatch.setattr(wording, "make_lessons", made)
    monkeypatch.setattr(wording, "in_line_with", lambda _p, _q, lessons, *_: lessons)
    monkeypatch.setattr(local, "plainly", lambda *_: None)
    monkeypatch.setattr(LocalBackend, "_renderer", None)
    backend = LocalBackend(settings(tmp_path, tiny_dir, **{"train.lessons": 4}), tiny_dir)
    backend.asked = []  # type: ignore[attr-defined]
    return backend


def asked_in(backend: LocalBackend) -> list[list[str]]:
    return backend.asked  # type: ignore[attr-defined]


def wished(wish: str, *before: str, back: Sequence[str] = ()) -> Standing:
    return Standing([wish], list(back), [[9]], [[Wording(text, [n]) for n, text in enumerate(before)]])


@pytest.mark.parametrize(
    ("said", "asked", "chosen", "lessons"),
    [
        (wished(AGAIN, BRIEF), [[AGAIN]], [AGAIN], FEWEST),
        (wished(BRIEF, AGAIN, THIRD), [[BRIEF], [AGAIN]], [AGAIN], FEWEST),
        (wished(BRIEF, THIRD, AGAIN), [[BRIEF], [THIRD], [AGAIN]], [AGAIN], FEWEST),
        (wished(BRIEF, THIRD), [[BRIEF], [THIRD]], [BRIEF], FEWEST - 1),
        (wished(BRIEF), [[BRIEF]], [BRIEF], FEWEST - 1),
        (wished(BRIEF, "a", "b", "c", AGAIN), [[BRIEF], ["a"], ["b"], ["c"]], [BRIEF], FEWEST - 1),  # three are tried
        # What was taken back has lessons of its own, which say nothing about the words of a wish.
        (wished(BRIEF, AGAIN, back=["old"]), [[BRIEF], [AGAIN]], [AGAIN], FEWEST + 3),  # a question has one lesson
        (wished(AGAIN, back=["old"]), [[AGAIN]], [AGAIN], FEWEST + 3),
    ],
)
def test_lessons_are_made_in_earlier_words_where_too_few_come_of_the_last_ones(
    backend: LocalBackend, said: Standing, asked: list[list[str]], chosen: list[str], lessons: int
) -> None:
    found, words = backend._made(batch([]), [], said, no_tick)
    assert (asked_in(backend), words.wishes, len(found)) == (asked, chosen, lessons)


def test_earlier_words_are_tried_on_half_of_the_questions_and_plain_answers_are_given_once(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, int]] = []
    known: list[dict[int, object]] = []

    def made(*given: Any) -> list[Lesson]:
        [wish] = given[4].wishes
        asked.append((wish, len(given[2]), given[3]))
        known.append(given[7])
        return [Lesson([n], [n], [True]) for n in range(3 if wish == THIRD else 0)]

    monkeypatch.setattr(wording, "make_lessons", made)
    questions = [OpenQuestion([n], str(n), 0) for n in range(8)]
    backend._made(batch([]), questions, wished(BRIEF, AGAIN, THIRD), no_tick)
    assert asked == [(BRIEF, 8, 4), (AGAIN, 2, 2), (THIRD, 2, 2), (THIRD, 8, 4)]
    assert all(one is known[0] for one in known)


def test_lessons_of_earlier_words_must_be_in_line_with_the_last_ones(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    def one_less(_p: Policy, _q: object, lessons: list[Lesson], *wishes: Any) -> list[Lesson]:
        looked.append((len(lessons), *wishes[:2]))
        return lessons[1:]

    monkeypatch.setattr(wording, "in_line_with", one_less)
    found, words = backend._made(batch([]), [], wished(BRIEF, AGAIN, back=["old"]), no_tick)
    assert (words.wishes, len(found), looked) == ([BRIEF], FEWEST - 1 + 4, [(FEWEST, [BRIEF], [])])


def test_gate_and_keeping_are_asked_in_the_words_of_the_lessons_until_the_next_update(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr(local, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(local, "with_base", lambda _policy, lessons, *_: lessons)
    monkeypatch.setattr(local, "kept_shares", lambda _p, _r, wishes, *_: told.append(wishes) or [0.5])
    aside: list[Wished] = []

    def examine(_p: Any, _b: Any, _t: Any, said: Standing, _: Any, shown: Wished, *rest: Any) -> Any:
        told.append(said.wishes)
        aside.append(shown)

    monkeypatch.setattr(backend._gate, "examine", examine)
    monkeypatch.setattr(local, "wished_of", lambda lessons, *_: Wished(frozenset({len(lessons)})))
    one = batch([sample(0)], hint_turns=["turn-0"] * 10)
    backend.prepare(0)
    backend._said = (one.id, wished(BRIEF, AGAIN))
    assert len(backend.lessons(one, no_tick)) == FEWEST
    backend.examine(one, [], no_tick)
    of_hints = batch([sample(0)], hints=[AGAIN, BRIEF], hint_turns=["turn-0", "turn-1"])
    [kept] = backend.wishes_kept(of_hints, no_tick)
    assert told == [[AGAIN], [AGAIN]]
    assert kept == {"turns": ["turn-0"], "kept": 0.5}, "of the turn in which it was said so"
    assert backend.wishes_kept(replace(of_hints, hints=["another"], hint_turns=["turn-0"]), no_tick) == []
    assert told == [[AGAIN], [AGAIN]], "in words that are not the person's nothing is kept"
    assert len(backend.lessons(one, no_tick)) == FEWEST, "the same again, where it was ended and is done once more"
    assert asked_in(backend) == [[BRIEF], [AGAIN]] * 2
    backend.prepare(0)
    assert backend._said is None, "hints may have come since"
    backend._said = (one.id, wished(BRIEF, AGAIN))
    backend.examine(one, [], no_tick)
    assert told[2:] == [[BRIEF]], "of an update without lessons yet"
    assert aside == [Wished(frozenset({FEWEST})), Wished()]


def test_lessons_are_told_what_came_back_on_answers_since_each_wish_was_said(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Standing] = []
    monkeypatch.setattr(local, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(wording, "make_lessons", lambda *given: told.append(given[4]) or [])
    monkeypatch.setattr(local, "plainly", lambda *_: None)
    monkeypatch.setattr(local, "standing", lambda *_: Standing(["new", "old"], [], [[2], [0]], [[], []]))
    end = next(iter(backend.policy.ends))
    text = backend.policy.tokenizer.encode("Ahoy, Tokyo").ids
    own = [replace(sample(n), response_ids=[*text, end], reward=r) for n, r in enumerate((0.8, -0.9, 0.0))]
    groups = replace(sample(7), stream="terminal")
    batch_of = batch(
        [own[0], groups, *own[1:]], hints=["old", "old", "new"], hint_turns=["earlier", "turn-0", "turn-1"]
    )
    backend.prepare(0)
    backend.lessons(batch_of, no_tick)
    [said] = told
    assert said.judged == [
        [Reaction("Ahoy, Tokyo", -0.9, True), Reaction("Ahoy, Tokyo", 0.0, False)],
        [Reaction("Ahoy, Tokyo", r, False) for r in (0.8, -0.9, 0.0)],
    ]


def test_words_are_judged_by_what_came_back_on_the_wish_that_quotes_them() -> None:
    one, other = [[Reaction(text, 0.9, False)] for text in ("Ahoy", "Bye")]
    said = Standing(['say "ahoy"', 'end with "Bye"'], judged=[one, other])
    assert opening.reactions(["Bye", "Ahoy", "Hm"], said) == [other, one, []]
    assert opening.reactions(["Bye"], Standing(['end with "Bye"'])) == [[]]


@pytest.mark.parametrize(
    ("lessons", "tokens"),
    [
        ([([1, 2, 9], [1, 0, 1]), ([1, 3, 9], [1, 0, 1])], {1}),  # 9 ends an answer
        ([([1, 2], [1, 0]), ([3, 2], [0, 0])], {1}),  # half of the lessons are enough
        ([([1, 2], [1, 0]), ([3, 2], [0, 0]), ([4], [1])], set()),
        ([([1, 1, 1], [1, 1, 1]), ([3], [0]), ([4], [0])], set()),  # in one lesson, however often
        ([([1, 2], [1, 1]), ([2, 2, 1], [0, 0, 1])], {1}),  # 2 stands there as often for another reason
        ([([1, 2], [1, 1]), ([2, 1], [0, 1])], {1}),
        ([([1, 2], [0, 1]), ([2, 1], [1, 1])], {2}),
        ([(list(range(10, 26)), [1] * 16)], set(range(10, 26))),
        ([(list(range(10, 27)), [1] * 17)], set()),  # so many are a manner of speaking
        ([], set()),
    ],
)
def test_what_half_of_the_lessons_wish_for_is_what_was_wished(
    lessons: list[tuple[list[int], list[int]]], tokens: set[int]
) -> None:
    made = [Lesson([0], answer, [bool(w) for w in wished]) for answer, wished in lessons]
    assert wished_tokens(made, [9]) == tokens
    back = [Lesson([0], [5], [False], back=True)] * 9
    assert wished_tokens([*made, *back], [9]) == tokens, "what was taken back is not of it"


@pytest.mark.parametrize(
    ("answers", "runs"),
    [
        (["A b c d e.", "Say: a, b c d"], {("a", "b", "c", "d")}),
        (["a b c d", "a b c d", "x", "y"], {("a", "b", "c", "d")}),  # half of them are enough
        (["a b c d", "a b c d", "x", "y", "z"], set()),
        (["a b c d a b c d"], set()),  # one answer has nothing in common with another
        (["a b c", "a b c"], set()),
        ([], set()),
    ],
)
def test_runs_of_words_that_half_of_the_lessons_have_are_wished_for(answers: list[str], runs: set[Run]) -> None:
    assert wished_runs(answers) == runs


def test_what_was_taken_back_shows_nothing_that_was_wished() -> None:
    back = [Lesson([0], [1, 2], [True, True], back=True)] * 2
    made = [Lesson([0], [3, 4], [True, True])] * 2
    shown = wished_of([*made, *back], [4], lambda ids: "a b c " + " ".join(map(str, ids)))
    assert shown == Wished(frozenset({3}), frozenset({("a", "b", "c", "3"), ("b", "c", "3", "4")}))


@pytest.mark.slow
def test_the_real_model_tells_lessons_that_the_last_words_contradict(model_dir: Path) -> None:
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu", lora_rank=4)), load_renderer(model_dir)
    prompt = renderer.render([saying("user", "What is the capital of France?")], None)
    question = OpenQuestion(prompt.ids, "What is the capital of France?", prompt.hint_at or 0)
    french = Lesson(question.ids, renderer.encode("La capitale de la France est Paris."), [True])
    longer = Lesson(question.ids, renderer.encode("The capital of France is Paris, on the river Seine."), [True])

    def in_line(lesson: Lesson, wishes: list[str], others: list[str]) -> bool:
        return in_line_with(policy, [question], [lesson], wishes, others, no_tick) == [lesson]

    assert in_line(french, ["in French, please"], [])
    assert not in_line(french, ["one word"], [])
    assert in_line(french, ["one word", "in French, please"], ["one word"]), "by what the one wish adds to the others"
    assert not in_line(longer, ["in French, please", "one word"], ["in French, please"])
    assert in_line_with(policy, [question], [], ["one word"], [], no_tick) == []
