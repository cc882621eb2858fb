"""Words that a person says again and again without marks, and lessons in the instruction that quotes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.homes import settings
from tests.training.tiny import batch, no_tick, sample
from turnwise.training.backends import local
from turnwise.training.backends.local import LocalBackend
from turnwise.training.lessons import wording
from turnwise.training.lessons.making import FEWEST, Lesson
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.lessons.wording import Wordings
from turnwise.types import Sample

ONE, TWO = "start with here is what it is, please", "here is what it is first, and then the answer"
PLAIN = 'Start every answer with "here is what it is".'
NEVER: Any = None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many lessons come of each wish, 16 of what is not in it; lessons are made, and compared, by nobody."""
    many: dict[str, int] = {}

    def make(*given: Any) -> list[Lesson]:
        [*_, wish] = given[4].wishes
        return [Lesson([n], [n], [True]) for n in range(many.get(wish, 16))]

    monkeypatch.setattr(wording, "make_lessons", make)
    monkeypatch.setattr(wording, "in_line_with", lambda _p, _q, lessons, *_: lessons)
    return many


def best(said: Standing, plain: Sequence[str] | None) -> tuple[list[str], int, int]:
    """The wishes in the words that are chosen, how many lessons there are, and how often plain words were asked for."""
    asked: list[object] = []

    def plainly(words: Standing) -> Standing | None:
        assert words is said
        asked.append(None)
        return None if plain is None else said.in_words(plain)

    found = Wordings(NEVER, NEVER, [], said, 16, 64, plainly, no_tick).best()
    return found.words.wishes, len(found.lessons), len(asked)


def wishes(*texts: str, before: Sequence[str] = ()) -> Standing:
    earlier = [[Wording(text, [0]) for text in before], *([] for _ in texts[1:])]
    return Standing(list(texts), [], [[n] for n in range(len(texts))], earlier)


@pytest.mark.parametrize(
    ("said", "plain", "chosen", "asked"),
    [
        (wishes(TWO, before=[ONE]), [PLAIN], [PLAIN], 1),
        (wishes(ONE, TWO), [PLAIN, PLAIN], [PLAIN], 1),
        (wishes(TWO, before=[ONE]), ["Begin with what it is."], [TWO], 1),  # it quotes nothing
        (wishes(TWO, before=[ONE]), None, [TWO], 1),
        (wishes(TWO), [PLAIN], [TWO], 0),  # said once; it has lessons enough
        (wishes(TWO, before=["be brief"]), [PLAIN], [TWO], 0),
    ],
)
def test_words_that_were_said_again_are_quoted_where_a_plain_instruction_does_so(
    made: dict[str, int], said: Standing, plain: list[str] | None, chosen: list[str], asked: int
) -> None:
    assert best(said, plain) == (chosen, 16, asked)


def test_where_no_lessons_come_of_it_the_persons_own_words_are_taken(made: dict[str, int]) -> None:
    made[PLAIN] = FEWEST - 1
    assert best(wishes(TWO, before=[ONE]), [PLAIN]) == ([TWO], 16, 1)
    made[PLAIN] = FEWEST
    assert best(wishes(TWO, before=[ONE]), [PLAIN]) == ([PLAIN], FEWEST, 1)


def test_a_wish_is_marked_by_the_words_of_praised_answers(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    monkeypatch.setattr(local, "standing", lambda *_: Standing([ONE], [], [[0]], [[]]))
    texts = ["here is what it is: Rome", "Here is what it is: Paris", "Lima"]
    ids = [backend.policy.tokenizer.encode(text).ids for text in texts]
    own = [replace(sample(n), response_ids=ids[n], reward=1.0) for n in range(3)]
    found = backend._standing(batch(own, hints=[ONE], hint_turns=["earlier"]), no_tick)
    assert found.wishes == ['start with "here is what it is", please']
    backend._said = None
    scolded = [replace(one, reward=-1.0) for one in own]
    assert backend._standing(batch(scolded, hints=[ONE], hint_turns=["earlier"]), no_tick).wishes == [ONE]


@pytest.mark.parametrize(
    ("said_of", "wanted"), [("Lima", ["here is what it is"]), ("Here is what it is: Lima", []), (None, [])]
)
def test_words_are_wanted_that_praised_answers_have_and_those_had_not_that_the_wish_was_said_of(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said_of: str | None, wanted: list[str]
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    wish = 'start with "Here is what it is:", please'
    monkeypatch.setattr(local, "standing", lambda *_: Standing([wish], [], [[0]], [[]]))

    def answer(n: int, text: str, **changes: Any) -> Sample:
        return replace(sample(n), response_ids=backend.policy.tokenizer.encode(text).ids, **changes)

    own = [answer(n, f"here is what it is: {n}", reward=1.0) for n in range(3)]
    earlier = [answer(9, said_of, turn_id="earlier")] if said_of else []
    found = backend._standing(batch(own, hints=[wish], hint_turns=["earlier"], hinted=earlier), no_tick)
    assert found.wanted == wanted
    other = replace(found, before=[[Wording("be brief", [0])]])
    assert [words.wanted for words, _ in other.reworded()] == [wanted], "in another wording as well"


def test_of_a_marked_wish_it_is_noted_whether_weights_keep_it(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    monkeypatch.setattr(LocalBackend, "_renderer", None)
    monkeypatch.setattr(local, "kept_shares", lambda _p, _r, wishes, *_: [0.5] * len(wishes))
    marked = 'start with "Here is what it is!", please'  # as another hint quotes it
    backend._in_words = Standing([marked, PLAIN], [], [[0], [1]], [[], []])
    of_hints = batch([sample(0)], hints=[ONE, "another"], hint_turns=["turn-0", "turn-1"])
    assert backend.wishes_kept(of_hints, no_tick) == [{"turns": ["turn-0"], "kept": 0.5}]


def test_praised_for_the_wishes_are_answers_that_follow_each_of_them(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    brief, metric = {"turn-0", "turn-2", "turn-3", "turn-4"}, {"turn-0", "turn-3", "turn-4", "turn-5"}

    def followed(_p: object, samples: Any, wishes: Sequence[str], *_: object) -> list[bool | None]:
        follow = [{"be brief": brief, "use metric units": metric}[wish] for wish in wishes]
        return [one.turn_id in those or None for one, those in zip(samples, follow, strict=True)]

    monkeypatch.setattr(local, "followed", followed)
    rewards = [1.0, -1.0, 1.0, 0.5, -0.5, 1.0]
    turns = [sample(n, reward=r, hint="be brief" if n == 1 else None) for n, r in enumerate(rewards)]
    turns.append(sample(8, reward=1.0, hint=None, stream="terminal"))
    said = Standing(["be brief", "use metric units"], [], [[0], [1]], [[], []])
    assert [one.turn_id for one in backend._praised(batch(turns), said, no_tick)] == ["turn-0", "turn-3"]
    assert backend._praised(batch(turns), replace(said, taken_back=["Cheers"]), no_tick) == []
    assert backend._praised(batch(turns), Standing(), no_tick) == []
    assert backend._praised(batch(turns[:2]), said, no_tick) == [], "one is not asked about"
