"""Words that ask for more: no plain answer can follow "Not to be confused with", and none is put behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.training.tiny import no_tick
from turnwise.config import TrainConfig
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.lessons import candidates, making, opening
from turnwise.training.lessons.candidates import Answered, ask_for_more
from turnwise.training.lessons.making import make_lessons
from turnwise.training.lessons.questions import questions_of, told
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy

WHOLE = ["Hello there", "Yes boss", "Beep boop", "See you around", "Hope that helps you", "Straight from the farm"]
BEGUN = [
    "A good example is",
    "It reminds me of",
    "The opposite would be",
    "You can compare it to",
    "People often say that",
]


def answered(renderer: PromptRenderer, wish: str, policy: Any) -> list[Answered]:
    """Four questions of the package, as somebody asks them who has this wish."""
    questions = questions_of([], renderer, 4, 512, "1")
    knowing = [told(question, wish, policy.tokenizer) for question in questions]
    return [Answered(q, k, k, [], True) for q, k in zip(questions, knowing, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "more"), [*((w, False) for w in WHOLE), *((w, True) for w in BEGUN)])
def test_the_real_model_tells_a_saying_from_words_that_go_on(
    real: Policy, model_dir: Path, words: str, more: bool
) -> None:
    renderer = load_renderer(model_dir)
    asked = answered(renderer, f'please use "{words}" in every answer', real)
    with real.reference():
        assert ask_for_more(real, renderer, asked, [words], no_tick) == [more]


@pytest.fixture(scope="module")
def real(model_dir: Path) -> Policy:
    return Policy(model_dir, TrainConfig(device="cpu"))


def test_words_that_end_in_a_mark_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "In short:" goes on in words, and a plain answer may be these: nothing is read for it."""
    monkeypatch.setattr(candidates, "_behind", lambda *_: pytest.fail("it was read"))
    nobody: Any = None
    assert ask_for_more(nobody, nobody, [], ["In short:", "Cheers!", "well, …", ""], no_tick) == [False] * 4


def test_what_counts_is_the_share_of_what_may_follow_that_goes_on_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the likeliest tokens; a mark, a line's end and the end of the answer do not go on."""
    tokens = [" the", "Havana", ",", "\n", "", " 7"]
    renderer = cast(PromptRenderer, SimpleNamespace(encode=lambda text: [9], decode=lambda ids: tokens[ids[0]]))
    one = cast(Answered, SimpleNamespace(told=SimpleNamespace(ids=[1, 2]), question=SimpleNamespace(ids=[1])))
    monkeypatch.setattr(candidates, "LIKELIEST", 5)

    def of(*chances: Sequence[float]) -> bool:
        monkeypatch.setattr(candidates, "_behind", lambda policy, contexts: torch.tensor(chances).log())
        return ask_for_more(cast(Policy, None), renderer, [one] * len(chances), ["My advice is"], no_tick)[0]

    assert of([0.2, 0.2, 0.1, 0.1, 0.1, 0.3]) and not of([0.2, 0.1, 0.3, 0.1, 0.2, 0.1])
    assert of([0.8, 0.2, 0.0, 0.0, 0.0, 0.0], [0.2, 0.1, 0.3, 0.2, 0.2, 0.0]), "the mean over the questions"
    tokens[0], tokens[1] = ' "', "«"
    assert of([0.5, 0.2, 0.1, 0.1, 0.1, 0.0]), "a quotation may be what is asked for"


@pytest.mark.slow
@pytest.mark.parametrize("more", [False, True])
def test_which_words_open_an_answer_is_asked_of_whole_sayings_alone(
    real: Policy, model_dir: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    """Behind words that ask for more stands no plain answer; before them one may, and is what a lesson keeps."""
    looked: list[list[str]] = []
    opens: list[bool] = []
    usual = opening.likelier_first, making._keeps
    monkeypatch.setattr(opening, "ask_for_more", lambda _p, _r, _a, words, _t: [more] * len(words))
    monkeypatch.setattr(
        opening, "likelier_first", lambda p, r, a, words, *_: looked.append([*words]) or usual[0](p, r, a, words, *_)
    )
    monkeypatch.setattr(making, "_keeps", lambda *given: opens.append(given[-2]) or usual[1](*given))
    renderer = load_renderer(model_dir)
    wish = Standing(['please close it with "Over and out"'])
    made = make_lessons(real, renderer, questions_of([], renderer, 6, 512, "1"), 6, wish, 32, no_tick)
    assert looked and looked[0] == ([] if more else ["Over and out"])
    assert opens, "it is asked which answers keep the plain one"
    if more:
        assert not any(opens) and not any(lesson.plain for lesson in made)


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
def test_a_plain_instruction_places_its_words_itself(
    real: Policy, model_dir: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Told to end with words, the 0.5B model finds some likelier at the beginning."""
    opened: list[object] = []

    def nothing(*given: object) -> list[str]:
        assert given[3] == [], "there is nothing to find out"
        return []

    usual = making._lesson
    monkeypatch.setattr(opening, "ask_for_more", lambda _p, _r, _a, words, _t: [False] * len(words))
    monkeypatch.setattr(opening, "likelier_first", nothing)
    monkeypatch.setattr(making, "_lesson", lambda *given: opened.append(given[-1]) or usual(*given))
    renderer = load_renderer(model_dir)
    wish = Standing([f'{"Begin" if first else "End"} every answer with "Over and out".'])
    make_lessons(real, renderer, questions_of([], renderer, 6, 512, "1"), 6, wish, 32, no_tick)
    assert opened and all(words == (["Over and out"] if first else []) for words in opened)
