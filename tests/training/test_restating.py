"""Wishes as plain instructions: which are believed, which of several counts, and when lessons are made in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.homes import settings
from tests.training.tiny import batch, no_tick, sample
from turnwise.config import TrainConfig
from turnwise.errors import EngineError
from turnwise.tokens.rendering import load_renderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.backends import local
from turnwise.training.backends.local import LocalBackend
from turnwise.training.lessons import restating, wording
from turnwise.training.lessons.making import FEWEST, Lesson
from turnwise.training.lessons.quoted import Reaction
from turnwise.training.lessons.restating import SHOWN, HintedAnswers, about, keeps_quotations, plainly, restated
from turnwise.training.lessons.wishes import Standing, Wording, standing
from turnwise.training.policy import Policy

NEVER: Any = None
NO_LABEL: Any = None


def hinted(texts: dict[int, str], follow: Sequence[tuple[int, str]] = ()) -> HintedAnswers:
    """Answers that hints were said of; ``follow``: those that follow an instruction."""
    return HintedAnswers(texts, lambda pairs: [pair in follow or None for pair in pairs])


SAID_OF = hinted(dict.fromkeys(range(9), "It is Rome."))


@pytest.mark.parametrize(
    ("instruction", "wish", "kept"),
    [
        ('Begin with "Ahoy".', 'say "ahoy" first', True),
        ('Begin with "Ahoy".', "say ahoy first", True),
        ('Begin with "Ahoy!".', "say ahoy first", True),
        ('Begin with "Ahoy".', "say hello first", False),  # it is one of those shown
        ('Begin with "Ahoy" and "Bye".', "say ahoy first", False),
        ("Be friendly.", 'say "Ahoy" first', False),  # what was asked for is not in it
        ("Say Ahoy first.", 'say "Ahoy" first', True),
        ("Be brief.", "be so kind and keep it short", True),
        ('Begin with "What\'s up".', "what’s up first", True),
        ('End with "".', "nothing", True),
        ('Say "one two three four five six seven eight nine".', "be brief", False),  # however long
    ],
)
def test_an_instruction_quotes_what_the_person_said_and_nothing_else(instruction: str, wish: str, kept: bool) -> None:
    assert keeps_quotations(instruction, wish) is kept


def _believed(
    monkeypatch: pytest.MonkeyPatch, tiny_dir: Path, wish: str, written: str, *, ended: bool = True, nats: float = 20.0
) -> str | None:
    policy, renderer = Policy(tiny_dir, TrainConfig(device="cpu")), _Plain()
    renderer.policy = policy
    ids = policy.tokenizer.encode(written).ids + policy.ends[:ended]
    monkeypatch.setattr(restating, "sample", lambda *_: [GivenAnswer(ids, [0.0] * len(ids), ended)])
    monkeypatch.setattr(restating, "about", lambda _p, _r, wishes, *_: [nats] * len(wishes))
    [found] = restated(policy, renderer, [wish], no_tick)
    return found


class _Plain:
    """Renders nothing, and decodes as the tokenizer does."""

    policy: Policy

    def render(self, *_: object, **__: object) -> Any:
        return type("Rendered", (), {"ids": [1, 2, 3]})

    def decode(self, ids: Sequence[int]) -> str:
        return self.policy.tokenizer.decode(list(ids))


@pytest.mark.parametrize(
    ("written", "changes", "found"),
    [
        ('Begin with "Ahoy".', {}, 'Begin with "Ahoy".'),
        (' Begin with "Ahoy".\n', {}, 'Begin with "Ahoy".'),
        ('Begin with "Ahoy".', {"ended": False}, None),
        ('Begin with "Ahoy".', {"nats": restating.ABOUT_IT - 0.1}, None),
        ('Begin with "OK boss".', {}, None),
        ("ahoy first, please", {}, None),  # it is the wish itself
        ("", {}, None),
    ],
)
def test_an_instruction_that_is_cut_or_about_something_else_is_none(
    written: str, changes: dict[str, Any], found: str | None, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _believed(monkeypatch, tiny_dir, "ahoy first, please", written, **changes) == found


def test_of_several_wordings_what_most_of_them_come_to_counts_and_none_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []
    says = {
        "no ahoy again!": 'Say "no ahoy".',
        "ahoy please": 'Say "Ahoy".',
        "ahoy first": 'Begin with "ahoy!"',
        "short": "Be brief.",
        "French": None,
    }

    def made(_p: object, _r: object, wishes: Sequence[str], _t: object) -> list[str | None]:
        asked.append(list(wishes))
        return [says[wish] for wish in wishes]

    monkeypatch.setattr(restating, "restated", made)
    before = [[], [Wording("ahoy please", [1]), Wording("ahoy first", [0])], []]
    said = Standing(["French", "no ahoy again!", "short"], ["old"], [[4], [2], [3]], before)
    known: dict[str, str | None] = {"short": "Be brief."}
    found = plainly(NEVER, NEVER, said, known, SAID_OF, NO_LABEL, no_tick)
    assert found is not None and found.taken_back == ["old"]
    assert found.wishes == ["French", 'Say "Ahoy".', "Be brief."], "the later one of the two that say the same"
    assert plainly(NEVER, NEVER, said, known, SAID_OF, NO_LABEL, no_tick) == found
    assert asked == [["French", "no ahoy again!", "ahoy please", "ahoy first"], []]
    assert plainly(NEVER, NEVER, Standing(["French"], [], [[0]], [[]]), known, SAID_OF, NO_LABEL, no_tick) is None


@pytest.mark.parametrize(
    ("said", "before", "wishes"),
    [
        (["sure, what could go wrong"], [[]], None),
        (["say 'what could go wrong'"], [[]], ["what could go wrong"]),
        (["sure, what could go wrong", "what could go wrong again?"], [[], []], ["what could go wrong"]),
        (["sure, what could go wrong"], [["I want what could go wrong"]], ["what could go wrong"]),
        (["sure, what could go wrong", "something else could go wrong"], [[], []], None),
        (["sure, what could go wrong"], [["Sure, what could go wrong!"]], None),
        (["sure, what could go wrong"], [["Sure, what could go wrong! Nothing, you say."]], None),
        (["sure, what could go wrong"], [["be brief"]], ["Be brief."]),
        (["sure, what could go wrong", "be brief"], [[], []], ["sure, what could go wrong", "Be brief."]),
    ],
)
def test_words_that_the_person_did_not_quote_are_quoted_where_they_said_them_in_two_sentences(
    said: list[str], before: list[list[str]], wishes: list[str] | None
) -> None:
    """Each of them is restated as 'Say "what could go wrong".', but for "be brief"."""
    known: dict[str, str | None] = {
        text: "Be brief." if text == "be brief" else 'Say "what could go wrong".'
        for text in (*said, *(one for some in before for one in some))
    }
    known["something else could go wrong"] = None
    earlier = [[Wording(text, [0]) for text in some] for some in before]
    standing = Standing(said, [], [[1] for _ in said], earlier)
    found = plainly(NEVER, NEVER, standing, known, SAID_OF, NO_LABEL, no_tick)
    expected = None if wishes is None else [f'Say "{w}".' if w == "what could go wrong" else w for w in wishes]
    assert (found and found.wishes) == expected
    again = replace(standing, said=[[1, 2] for _ in said])
    found = plainly(NEVER, NEVER, again, known, SAID_OF, NO_LABEL, no_tick)
    assert (found and found.wishes) == expected, "one sentence, said again, says no more of which words are to be said"


@pytest.mark.parametrize(
    ("said_of", "wishes"),
    [
        ({2: "It is Rome."}, ['Start every answer with "Sure!".', "Be brief."]),
        ({2: "Sure! It is Rome."}, ['drop the "Sure!"', "Be brief."]),
        ({2: "It is Rome.", 3: "sure, it is Rome"}, ['drop the "Sure!"', "Be brief."]),
        ({}, ['drop the "Sure!"', "Be brief."]),  # nobody knows
        ({1: "It is Rome."}, ['drop the "Sure!"', "Be brief."]),  # that was said of another wish
    ],
)
def test_words_are_wished_for_where_the_answer_that_the_wish_was_said_of_has_them_not(
    said_of: dict[int, str], wishes: list[str]
) -> None:
    """The 0.5B model restates 'drop the "Sure!" at the start' as 'Start every answer with "Sure!".'."""
    known: dict[str, str | None] = {'drop the "Sure!"': 'Start every answer with "Sure!".', "short": "Be brief."}
    said = Standing(['drop the "Sure!"', "short"], [], [[2, 3], [1]], [[], []])
    found = plainly(NEVER, NEVER, said, known, hinted(said_of), NO_LABEL, no_tick)
    assert found is not None and found.wishes == wishes


@pytest.mark.parametrize(
    ("follow", "wishes"),
    [
        ([], ["Write bullet points."]),
        ([(2, "Write bullet points.")], None),
        ([(3, "Write bullet points.")], None),
        ([(1, "Write bullet points.")], ["Write bullet points."]),  # that was said of another wish
    ],
)
def test_a_form_is_wished_for_where_the_answers_that_the_wish_was_said_of_do_not_follow_it(
    follow: list[tuple[int, str]], wishes: list[str] | None
) -> None:
    """The 0.5B model restates "no bullet points please" as "Write every answer as a bullet point."."""
    known: dict[str, str | None] = {"no bullet points": "Write bullet points."}
    said = Standing(["no bullet points"], [], [[2, 3]], [[]])
    found = plainly(NEVER, NEVER, said, known, hinted({}, follow), NO_LABEL, no_tick)
    assert (found and found.wishes) == wishes


def test_what_is_no_chat_model_restates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise EngineError("no system message")

    monkeypatch.setattr(restating, "restated", fails)
    known: dict[str, str | None] = {}
    assert plainly(NEVER, NEVER, Standing(["a"], [], [[0]], [[]]), known, SAID_OF, NO_LABEL, no_tick) is None
    assert known == {}, "it may be able to, later"


def test_an_instruction_that_leaves_out_what_a_label_announces_is_not_believed_and_the_others_are() -> None:
    advice, short = 'put "My advice:" and what you would do', "nah way too long"
    said = Standing([advice, short], [], [[0], [1]], [[], []], announced=["my advice"])
    known: dict[str, str | None] = {advice: 'Include "My advice:".', short: "Keep it short."}
    asked: list[tuple[str, str]] = []

    def by(margin: float) -> Any:
        return lambda pairs: asked.extend(pairs) or [margin]

    found = plainly(NEVER, NEVER, said, known, SAID_OF, by(0.0), no_tick)
    assert found and found.wishes == [advice, "Keep it short."] and found.announced == ["my advice"]
    assert asked == [("My advice:", 'Include "My advice:".')]
    found = plainly(NEVER, NEVER, said, known, SAID_OF, by(0.1), no_tick)
    assert found and found.wishes == ['Include "My advice:".', "Keep it short."]
    said = Standing([advice, short], [], [[0], [1]], [[], []])
    found = plainly(NEVER, NEVER, said, known, SAID_OF, NO_LABEL, no_tick)
    assert found and found.wishes == ['Include "My advice:".', "Keep it short."], "it is asked of announced ones alone"


@pytest.mark.parametrize(
    ("instruction", "kept"),
    [
        ("Write every answer in verse.", False),
        ('Write "Rhyme time:" and two lines.', True),
        ("Write Rhyme time: and two lines.", True),
    ],
)
def test_an_instruction_without_the_words_that_another_wording_quotes_is_not_believed(
    instruction: str, kept: bool
) -> None:
    quoting, other = 'add "Rhyme time:" and rhyme', "Rhyme time: is what I miss, alas!"
    said = Standing([quoting], [], [[0]], [[Wording(other, [1])]])
    known: dict[str, str | None] = {quoting: None, other: instruction}
    found = plainly(NEVER, NEVER, said, known, SAID_OF, NO_LABEL, no_tick)
    assert (found and found.wishes) == ([instruction] if kept else None)
    known = {other: "Write every answer in verse."}
    alone = plainly(NEVER, NEVER, Standing([other], [], [[1]], [[]]), known, SAID_OF, NO_LABEL, no_tick)
    assert alone and alone.wishes == ["Write every answer in verse."]


def test_wishes_that_come_to_the_same_words_are_one() -> None:
    first, since = Reaction("one", 0.9, True), [Reaction("two", -0.9, False), Reaction("three", 0.5, True)]
    again = [since[0]._replace(asked=True), since[1]._replace(asked=False)]
    said = Standing(
        ["a", "b", "c"], ["old"], [[1], [2], [4]], [[Wording("x", [0])], [], []], [[first, *since], [], again]
    )
    found = said.in_words(["Be brief.", None, "Be brief."])
    assert (found.wishes, found.taken_back) == (["Be brief.", "b"], ["old"])
    assert (found.said, found.before) == ([[1, 4], [2]], [[Wording("x", [0])], []])
    assert found.judged == [[first, *(one._replace(asked=True) for one in since)], []], "each answer once"
    assert said.in_words(["Be brief."] * 3).judged == [found.judged[0]]
    assert said.in_words([None] * 3) == said and said.in_words([None] * 3).said == said.said


# -- lessons in them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_said", "of_plain", "kept", "asked", "chosen", "lessons"),
    [
        (8, 16, 16, ["said"], "said", 8),  # half of the questions are enough
        (7, 16, 16, ["said", "plain"], "plain", 16),
        (7, 16, 8, ["said", "plain"], "plain", 8),
        (7, 16, 7, ["said", "plain"], "said", 7),  # no more than that are in line with what was said
        (
            2,
            3,
            3,
            ["said", "plain", "never"],
            "said",
            2,
        ),  # so few teach nothing, and the gate is asked in the own words
        (7, 3, 3, ["said", "plain"], "said", 7),
        (0, FEWEST, FEWEST, ["said", "plain"], "plain", FEWEST),
        (0, 3, 3, ["said", "plain", "earlier"], "earlier", FEWEST),
        (3, None, 0, ["said", "earlier"], "earlier", FEWEST),
    ],
)
def test_lessons_are_made_in_plain_words_where_less_than_half_of_the_questions_have_one(
    of_said: int,
    of_plain: int | None,
    kept: int,
    asked: list[str],
    chosen: str,
    lessons: int,
    tiny_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``of_said``: lessons in the person's words; ``of_plain``: in plain ones, of which ``kept`` stay."""
    made: list[str] = []
    compared: list[tuple[list[str], list[str]]] = []
    many = {"said": of_said, "plain": of_plain or 0, "earlier": FEWEST, "never": 0}

    def make(*given: Any) -> list[Lesson]:
        [wish, other] = given[4].wishes
        assert other == "other"
        if made[-1:] != [wish]:  # earlier words are tried on some of the questions first
            made.append(wish)
        return [Lesson([n], [n], [True]) for n in range(many[wish])]

    def in_line(_p: object, _q: object, found: list[Lesson], wishes: list[str], others: list[str], _t: object) -> Any:
        compared.append((wishes, others))
        return found[:kept] if made[-1] == "plain" else found

    def plain(_p: object, _r: object, said: Standing, *_: object) -> Standing | None:
        return None if of_plain is None else said.in_words(["plain", None])

    monkeypatch.setattr(wording, "make_lessons", make)
    monkeypatch.setattr(wording, "in_line_with", in_line)
    monkeypatch.setattr(local, "plainly", plain)
    monkeypatch.setattr(LocalBackend, "_renderer", None)
    backend = LocalBackend(settings(tmp_path, tiny_dir, **{"train.lessons": 16}), tiny_dir)
    said = Standing(["said", "other"], [], [[1], [2]], [[Wording(asked[-1] if len(asked) > 2 else "earlier", [0])], []])
    found, words = backend._made(batch([]), [], said, no_tick)
    assert (made, words.wishes[0], len(found)) == (asked, chosen, lessons)
    assert compared == [(["said", "other"], ["other"])] * sum(word != "never" for word in asked[1:])


def test_answers_that_hints_were_said_of_are_found_by_their_turns(tiny_dir: Path, tmp_path: Path) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    words = backend.policy.tokenizer.encode("Ahoy, Rome").ids
    hinted = [replace(sample(n), response_ids=[*words, *backend.policy.ends]) for n in (1, 2)]
    of_hints = replace(
        batch([sample(0)]), hints=["a", "b", "c"], hint_turns=["turn-2", "gone", "turn-1"], hinted=hinted
    )
    assert backend._hinted(of_hints, no_tick).texts == {0: "Ahoy, Rome", 2: "Ahoy, Rome"}


def test_an_answer_without_the_words_of_a_wish_does_not_follow_it_whatever_the_model_thinks(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def model_says_yes(_p: object, samples: Any, *_: object) -> list[bool | None]:
        asked.extend(one and one.turn_id for one in samples)
        return [None if one is None else True for one in samples]

    monkeypatch.setattr(local, "followed", model_says_yes)
    backend = LocalBackend(settings(tmp_path, tiny_dir), tiny_dir)
    texts = ["Rome.", "Rome. Good night!", "Rome. Good night, Grandma!"]
    said = [backend.policy.tokenizer.encode(text).ids for text in texts]
    hinted = [replace(sample(n), response_ids=ids, hint_at=1) for n, ids in enumerate(said)]
    wish = 'end with "Good night, Grandma"'
    hints = [wish, "do not leave without Good night, Grandma", "no more Good night, Grandma"]
    praised = replace(sample(9), response_ids=said[2], reward=1.0)
    given = replace(batch([praised]), hints=hints, hint_turns=["turn-0", "turn-1", "turn-2"], hinted=hinted)
    assert backend._hinted(given, no_tick).follow([(1, wish), (2, wish)]) == [False, True]
    assert asked == [None, "turn-2"], "of what is clear the model is not asked"
    again = replace(given, samples=[], hints=[wish, "I miss Good night, Grandma", "be brief"])
    asked.clear()
    assert backend._hinted(again, no_tick).follow([(1, wish), (2, wish)]) == [False, True]
    assert asked == [None, "turn-2"], "who says the same words again of an answer without them wants them said"
    found = standing(
        hints, lambda texts: torch.eye(len(texts)), backend._hinted(given, no_tick).follow, lambda p: [True] * len(p)
    )
    assert (found.wishes, found.taken_back) == ([], [hints[1]]), "it insists, and is the wish that was ended later"
    hints = ["end with Good night, Grandma", 'not without "Good night, Grandma"']
    given = replace(given, hints=hints, hint_turns=["turn-0", "turn-1"])
    found = standing(
        hints, lambda t: torch.eye(len(t)), backend._hinted(given, no_tick).follow, lambda p: [True] * len(p)
    )
    assert (found.wishes, found.taken_back) == (hints[1:], []), "the earlier one is asked about with the marks it lacks"


@pytest.mark.slow
def test_the_real_model_tells_an_instruction_that_is_about_the_request(model_dir: Path) -> None:
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu", lora_rank=4)), load_renderer(model_dir)
    wishes = [
        "sorry, my italian is better, could you switch to that for good",
        'would be nice to hear "all good" first',
    ]
    mine = ["Write every answer in Italian.", 'Begin every answer with "all good".']
    shown = [SHOWN[0][1], SHOWN[4][1]]
    answers = [[*renderer.encode(text), *policy.ends[:1]] for text in (*mine, *shown)]
    own = about(policy, renderer, wishes, answers[:2], no_tick)
    other = about(policy, renderer, wishes, answers[2:], no_tick)
    assert all(mine > shown + restating.ABOUT_IT for mine, shown in zip(own, other, strict=True))
    swapped = about(policy, renderer, wishes[::-1], answers[:2], no_tick)
    assert all(of_another < mine for of_another, mine in zip(swapped, own, strict=True))
