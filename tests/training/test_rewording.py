"""One wish in several wordings: which of them are one, and that lessons are made in one that the model follows."""

from __future__ import annotations

from collections.abc import Sequence
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
from turnwise.training.lessons.making import FEWEST, Lesson, in_line, wished_tokens
from turnwise.training.lessons.questions import OpenQuestion
from turnwise.training.lessons.wishes import Standing, standing
from turnwise.training.policy import Policy

BRIEF, AGAIN, THIRD = "be brief", "brief answers", "a brief one please"


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
        # Who had what was asked for, and says another thing about it, wants that other thing.
        ([BRIEF, "longer answers"], {(1, BRIEF): True}, ["longer answers"], [[]]),
        ([BRIEF, AGAIN, THIRD], {(2, BRIEF): True}, [THIRD], [[AGAIN]]),
        ([BRIEF, AGAIN, THIRD], {(2, AGAIN): True}, [THIRD], [[BRIEF]]),
        ([BRIEF, AGAIN], {(1, BRIEF): None}, [AGAIN], [[]]),  # nothing is known of that answer
        ([BRIEF, "no need to be brief"], {}, ["no need to be brief"], [[]]),
        ([BRIEF, "show code"], {}, [BRIEF, "show code"], [[], []]),
    ],
)
def test_a_wish_that_was_not_followed_is_said_again_in_other_words(
    hints: list[str], follows: dict[tuple[int, str], bool | None], wishes: list[str], before: list[list[str]]
) -> None:
    found = stand(hints, follows)
    assert (found.wishes, found.before, found.taken_back) == (wishes, before, [])


def test_without_a_look_at_the_answers_nothing_is_said_again() -> None:
    assert standing([BRIEF, AGAIN], topics).before == [[]]


def test_a_wish_names_the_hints_of_its_earlier_words_too() -> None:
    assert stand([BRIEF, "show code", AGAIN, BRIEF, THIRD]).said == [[1], [0, 2, 3, 4]]


@pytest.mark.parametrize(
    ("wishes", "before", "tried"),
    [
        ([THIRD], [[AGAIN, BRIEF]], [[AGAIN], [BRIEF]]),
        (["code", THIRD], [[], [AGAIN, BRIEF]], [["code", AGAIN], ["code", BRIEF]]),
        (["c", THIRD], [["b"], [AGAIN, BRIEF]], [["b", AGAIN], ["b", BRIEF]]),
        (["d"], [["c", "b", "a"]], [["c"], ["b"]]),
        (["d"], [[]], []),
        (["d"], [], []),
        ([], [], []),
    ],
)
def test_two_earlier_wordings_are_tried_the_later_one_first(
    wishes: list[str], before: list[list[str]], tried: list[list[str]]
) -> None:
    found = list(Standing(wishes, ["old"], [[0]], before).reworded())
    assert [one.wishes for one in found] == tried
    assert all(one.taken_back == ["old"] and one.said == [[0]] for one in found)


# -- lessons in them --------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBackend:
    """One whose model follows "brief answers" alone, by four lessons; the making of lessons is scripted."""

    def made(*given: Any) -> list[Lesson]:
        asked: list[list[str]] = backend.asked  # type: ignore[attr-defined]
        asked.append(given[4].wishes)
        return [Lesson([n], [n], [True]) for n in range(FEWEST if AGAIN in given[4].wishes else FEWEST - 1)]

    monkeypatch.setattr(local, "make_lessons", made)
    monkeypatch.setattr(local, "in_line", lambda _p, _q, lessons, *_: lessons)
    monkeypatch.setattr(LocalBackend, "_renderer", None)
    backend = LocalBackend(settings(tmp_path, tiny_dir, **{"train.lessons": 4}), tiny_dir)
    backend.asked = []  # type: ignore[attr-defined]
    return backend


def asked_in(backend: LocalBackend) -> list[list[str]]:
    return backend.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wishes", "before", "asked", "chosen", "lessons"),
    [
        ([AGAIN], [[BRIEF]], [[AGAIN]], [AGAIN], FEWEST),
        ([BRIEF], [[AGAIN, THIRD]], [[BRIEF], [AGAIN]], [AGAIN], FEWEST),
        ([BRIEF], [[THIRD, AGAIN]], [[BRIEF], [THIRD], [AGAIN]], [AGAIN], FEWEST),
        ([BRIEF], [[THIRD]], [[BRIEF], [THIRD]], [BRIEF], FEWEST - 1),
        ([BRIEF], [[]], [[BRIEF]], [BRIEF], FEWEST - 1),
    ],
)
def test_lessons_are_made_in_earlier_words_where_too_few_come_of_the_last_ones(
    backend: LocalBackend,
    wishes: list[str],
    before: list[list[str]],
    asked: list[list[str]],
    chosen: list[str],
    lessons: int,
) -> None:
    found, words = backend._made([], Standing(wishes, before=before), no_tick)
    assert (asked_in(backend), words.wishes, len(found)) == (asked, chosen, lessons)


def test_lessons_of_earlier_words_must_be_in_line_with_the_last_ones(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[list[str]] = []

    def one_less(_p: Policy, _q: object, lessons: list[Lesson], wishes: list[str], _t: object) -> list[Lesson]:
        looked.append(wishes)
        return lessons[1:]

    monkeypatch.setattr(local, "in_line", one_less)
    found, words = backend._made([], Standing([BRIEF], before=[[AGAIN]]), no_tick)
    assert (words.wishes, len(found), looked) == ([BRIEF], FEWEST - 1, [[BRIEF]])


def test_gate_and_keeping_are_asked_in_the_words_of_the_lessons_until_the_next_update(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr(local, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(local, "with_base", lambda _policy, lessons, *_: lessons)
    monkeypatch.setattr(local, "kept_shares", lambda _p, _r, wishes, *_: told.append(wishes) or [0.5])
    aside: list[frozenset[int]] = []

    def examine(_p: object, _b: object, _t: object, wishes: list[str], _: object, wished: frozenset[int]) -> Any:
        told.append(wishes)
        aside.append(wished)

    monkeypatch.setattr(backend._gate, "examine", examine)
    monkeypatch.setattr(local, "wished_tokens", lambda lessons, _: frozenset({len(lessons)}))
    one = batch([sample(0)])
    backend.prepare(0)
    backend._said = (one.id, Standing([BRIEF], [], [[0]], [[AGAIN]]))
    assert len(backend.lessons(one, no_tick)) == FEWEST
    backend.examine(one, [], no_tick)
    backend.wishes_kept(batch([sample(0)], hint_turns=["turn-0"]), no_tick)
    assert told == [[AGAIN], [AGAIN]]
    assert len(backend.lessons(one, no_tick)) == FEWEST, "the same again, where it was ended and is done once more"
    assert asked_in(backend) == [[BRIEF], [AGAIN]] * 2
    backend.prepare(0)
    backend.examine(one, [], no_tick)
    assert told[2:] == [[BRIEF]], "of an update without lessons yet"
    assert aside == [frozenset({FEWEST}), frozenset()]


@pytest.mark.parametrize(
    ("lessons", "tokens"),
    [
        ([([1, 2, 9], [1, 0, 1]), ([1, 3, 9], [1, 0, 1])], {1}),  # 9 ends an answer
        ([([1, 2], [1, 0]), ([3, 2], [0, 0])], {1}),  # half of the lessons are enough
        ([([1, 2], [1, 0]), ([3, 2], [0, 0]), ([4], [1])], set()),
        ([([1, 1, 1], [1, 1, 1]), ([3], [0]), ([4], [0])], set()),  # in one lesson, however often
        ([([1, 2], [0, 1]), ([2, 1], [0, 1])], {1, 2}),
        ([], set()),
    ],
)
def test_what_half_of_the_lessons_wish_for_is_what_was_wished(
    lessons: list[tuple[list[int], list[int]]], tokens: set[int]
) -> None:
    made = [Lesson([0], answer, [bool(w) for w in wished]) for answer, wished in lessons]
    assert wished_tokens(made, [9]) == tokens


@pytest.mark.slow
def test_the_real_model_tells_lessons_that_the_last_words_contradict(model_dir: Path) -> None:
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu", lora_rank=4)), load_renderer(model_dir)
    prompt = renderer.render([saying("user", "What is the capital of France?")], None)
    question = OpenQuestion(prompt.ids, "What is the capital of France?", prompt.hint_at or 0)
    french = Lesson(question.ids, renderer.encode("La capitale de la France est Paris."), [True])
    assert in_line(policy, [question], [french], ["in French, please"], no_tick) == [french]
    assert in_line(policy, [question], [french], ["one word"], no_tick) == []
    assert in_line(policy, [question], [], ["in French, please"], no_tick) == []
