"""The arithmetic of fitting a head, on small made-up rows: groups, known weights found again, calibration, figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from turnwise.judges.cases import Case
from turnwise.judges.signals.fitting import (
    NEVER,
    STRENGTH,
    Fitted,
    Rows,
    calibrated,
    chosen,
    cross_validated,
    figures,
    fit,
    grouped,
    line,
    slope,
    temperature,
)
from turnwise.judges.signals.head import NO_OPINION, Hidden, Vector, word_features, word_numbers
from turnwise.judges.signals.reading import Reading
from turnwise.messages import saying


def reading(said: str | tuple[str, ...], task: str = "") -> Reading:
    return Reading(task, "an answer", (said,) if isinstance(said, str) else said)


def case(label: int, directive: bool = False, name: str = "c") -> Case:
    return Case(name, "", [], saying("assistant", "a"), [], label, directive, "")


def rows_of(
    labels: Sequence[int],
    whole: NDArray[Any],
    each: list[Vector] | None = None,
    directive: Sequence[bool] | None = None,
    readings: list[Reading] | None = None,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    counts: Sequence[float] | None = None,
) -> Rows:
    n = len(labels)
    return Rows(
        [case(label, (directive or [False] * n)[i], f"c{i}") for i, label in enumerate(labels)],
        readings or [reading(f"reply {i}") for i in range(n)],
        np.array(groups if groups is not None else range(n)),
        np.asarray(whole, np.float32),
        each if each is not None else [np.asarray(whole[i : i + 1], np.float32) for i in range(n)],
        np.array(counts or [1.0] * n, np.float32),
    )


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        # one task, however it is laid out
        (reading("too long", "Plan a week"), reading("thanks a lot", "plan  A\nweek"), True),
        (reading("too long", "Plan a week"), reading("thanks a lot", "Plan a month"), False),
        # of five words in all three are common: 0.6
        (reading("this is far too", "a"), reading("this is far off", "b"), True),
        (reading("a b c d", "a"), reading("a b c e", "b"), True),
        # of six words three
        (reading("a b c d e", "a"), reading("a b c f", "b"), False),
        # whatever the order, the capitals and the repetitions
        (reading("No that is wrong", "a"), reading("wrong is that NO no", "b"), True),
        # all sentences of a reply count
        (reading(("a b", "c d"), "a"), reading("a b c d", "b"), True),
        # two words are too few to be alike by, also where the other has more
        (reading("thank you", "a"), reading("thank you", "b"), False),
        (reading("thank you", "a"), reading("thank you much", "b"), False),
        (reading("thank you much", "a"), reading("thank you", "b"), False),
        (reading("many thanks indeed", "a"), reading("many thanks indeed", "b"), True),
    ],
)
def test_one_task_or_nearly_the_same_words_are_one_group(first: Reading, second: Reading, together: bool) -> None:
    one, other = grouped([first, second])
    assert bool(one == other) is together


def test_groups_that_meet_become_one() -> None:
    """The third row has the first one's task and the second one's words."""
    found = grouped(
        [
            reading("you forgot the units", "Convert 3 miles"),
            reading("way too long for me", "Write a mail"),
            reading("way too long for me", "convert 3 miles"),
            reading("merged, works great", "Fix the bug"),
            reading("way too long for you", "Name a bakery"),
        ]
    )
    assert len({int(found[i]) for i in (0, 1, 2, 4)}) == 1
    assert found[3] != found[0]


def test_a_chain_of_nearly_equal_replies_is_one_group_from_end_to_end() -> None:
    replies = ["a b c d", "b c d e", "c d e f", "d e f g"]
    assert len(set(grouped([reading(r, r) for r in replies]))) == 1
    assert len(set(grouped([reading(r, r) for r in (replies[0], replies[2])]))) == 2


# -- rows -------------------------------------------------------------------------------------------------------------


def test_rows_of_one_person_are_one_group() -> None:
    said = ["ta love", "no good at all", "when is it on", "make it short", "right you are"]
    found = grouped([reading(reply, f"task {n}") for n, reply in enumerate(said)], ["a", "", "a", ""])
    assert found[0] == found[2] and len(set(found)) == 4


def test_a_choice_of_rows_keeps_all_that_belongs_to_each() -> None:
    whole = np.arange(8, dtype=np.float32).reshape(4, 2)
    rows = rows_of([-1, 0, 1, 1], whole, directive=[True, False, False, True], groups=[7, 7, 8, 9], counts=[1, 2, 3, 4])
    some = rows.only(np.array([3, 0]))
    assert some.counts.tolist() == [4, 1]
    assert [c.id for c in some.cases] == ["c3", "c0"]
    assert [r.sentences for r in some.readings] == [("reply 3",), ("reply 0",)]
    assert some.groups.tolist() == [9, 7]
    assert some.whole.tolist() == [[6, 7], [0, 1]]
    assert [x.tolist() for x in some.each] == [[[6, 7]], [[0, 1]]]
    assert (some.labels.tolist(), some.directive.tolist()) == ([1, -1], [1, 1])
    assert (rows.labels.tolist(), rows.directive.tolist()) == ([-1, 0, 1, 1], [1, 0, 0, 1])


# -- what was fitted --------------------------------------------------------------------------------------------------


def fitted(known: str | None = None) -> Fitted:
    score = np.array([[1, 0], [0, 1], [2, -1]], np.float32)
    numbers = None if known is None else word_numbers(known)
    return Fitted(score, np.array([0.5, 0, -0.5], np.float32), np.array([3, 1], np.float32), -2.0, numbers)


def test_with_a_layer_of_units_scores_and_wishes_are_made_of_these() -> None:
    """Of 1 and 2 the units make 2 · 1 / 4 · 2 + 0.5 = 1.5, and -2 / 8 · 3 + 0.5 = -0.25, which is 0."""
    step, bias, scale = (np.array(x, np.float32) for x in ([2, 3], [0.5, 0.5], [4, 8]))
    units = Hidden(np.array([[2, 0], [0, -1]], np.int8), step, bias, scale)
    rows = rows_of([1], np.array([[1, 2]], np.float32))
    head = replace(fitted(), hidden=units)
    assert units(rows.whole).tolist() == [[1.5, 0]]
    assert head.scores(rows).tolist() == [[2, 0, 2.5]]
    assert head.directives(rows)[0].tolist() == [2.5]
    assert calibrated(head, 2.0, 1.0, 0.0).scores(rows).tolist() == [[1, 0, 1.25]]


def test_the_log_odds_of_a_row_are_its_features_by_the_weights_and_the_bias() -> None:
    each: list[Vector] = [np.array([[1, 0], [0, 2]], np.float32), np.array([[1, 1]], np.float32)]
    rows = rows_of([1, -1], np.array([[1, 2], [0, 1]], np.float32), each)
    assert fitted().scores(rows).tolist() == [[1.5, 2, -0.5], [0.5, 1, -1.5]]
    assert [odds.tolist() for odds in fitted().directives(rows)] == [[1, 0], [2]]


def test_a_head_over_words_has_no_opinion_of_a_reply_and_of_a_sentence_that_it_does_not_know() -> None:
    each: list[Vector] = [np.array([[1, 0], [0, 2]], np.float32), np.array([[1, 1]], np.float32)]
    readings = [reading(("too long", "blorp fnord qwertz")), reading("way too long")]
    rows = rows_of([1, -1], np.array([[1, 2], [0, 1]], np.float32), each, readings=readings)
    head = fitted("too long")
    scores = head.scores(rows)
    assert scores[0] == pytest.approx(np.log(NO_OPINION)), "of five words two are known"
    assert scores[1].tolist() == [0.5, 1, -1.5]
    assert [odds.tolist() for odds in head.directives(rows)] == [[1, NEVER], [2]]


def test_a_calibrated_head_gives_the_calibrated_log_odds() -> None:
    rows = rows_of([1, -1], np.array([[1, 2], [0, 1]], np.float32))
    head, mended = fitted("too long"), calibrated(fitted("too long"), 2.0, 0.5, 3.0)
    assert mended.known is not None and mended.known.tolist() == word_numbers("too long").tolist()
    mended.known = head.known = None
    assert mended.scores(rows) == pytest.approx(head.scores(rows) / 2)
    for after, before in zip(mended.directives(rows), head.directives(rows), strict=True):
        assert after == pytest.approx(0.5 * before + 3)


# -- the fit ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def weak_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows and fewer features: nothing but the rows speaks."""
    monkeypatch.setitem(STRENGTH, "states", 1.0)


def made_up(n: int, seed: int = 0) -> tuple[Rows, Vector, Vector]:
    """Rows drawn from known weights; their first feature is far from 0 and wide, the last one says nothing."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, 3)).astype(np.float32) * np.array([20, 1, 1]) + np.array([100, 0, 0])
    weights, bias = np.array([[-0.2, 0, 0], [0, 0, 0], [0.1, 2, 0]]), np.array([19.0, 0, -10.0])
    odds = x @ weights.T + bias
    p = np.exp(odds - odds.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    labels = [int(random.choice(3, p=row)) - 1 for row in p]
    return rows_of(labels, x.astype(np.float32), groups=list(range(n))), weights, bias


@pytest.mark.usefixtures("weak_ridge")
def test_known_weights_are_found_again_in_the_features_as_they_are() -> None:
    rows, weights, bias = made_up(3000)
    found, found_bias = line(rows.whole, rows.labels, None, "states")
    assert found.shape == (3, 3) and found.dtype == np.float32
    for a, b in ((0, 1), (2, 1)):  # what they share says nothing
        assert found[a] - found[b] == pytest.approx(weights[a] - weights[b], abs=0.25)
        assert found_bias[a] - found_bias[b] == pytest.approx(bias[a] - bias[b], abs=2)
    told, _ = line(rows.whole, (rows.labels == 1).astype(np.int64), None, "states")
    assert (told[0, 1] > 1) and abs(told[0, 2]) < 0.3


def test_a_strong_ridge_keeps_the_weights_small() -> None:
    """There are few rows for many features: `STRENGTH`."""
    rows, *_ = made_up(300)
    found, _ = line(rows.whole, rows.labels, None, "states")
    assert 0 < np.abs(found * rows.whole.std(0)).max() < 0.5


def by_line(rows: Rows) -> list[Vector]:
    """The log-odds of sentences, by the line that chooses those that are learned from."""
    _, (w, b) = chosen(rows, "states")
    return [each @ w + b for each in rows.each]


@pytest.mark.usefixtures("weak_ridge")
def test_of_a_directive_reply_the_sentence_that_is_like_other_directive_ones_is_learned_from() -> None:
    """Each directive reply has a wish and a thank-you; thanks alone stand in the others. Who would take the thanks of a
    directive reply for directive as well would think half of all thanks so."""
    random = np.random.default_rng(3)

    def sentence(x: float) -> list[float]:
        return [x + 0.1 * float(random.standard_normal())]

    each = [np.array([sentence(3), sentence(-1)], np.float32) for _ in range(40)]
    each += [np.array([sentence(-1)], np.float32) for _ in range(30)]
    whole = np.stack([x.mean(0) for x in each])
    directive = [True] * 40 + [False] * 30
    rows = rows_of([1, -1] * 35, whole, each, directive)
    odds = by_line(rows)
    assert all(x[0] > 1.5 and x[1] < -1.5 for x in odds[:40]), "thanks teach nothing of a directive reply"
    assert all(x[0] < -1.5 for x in odds[40:])
    head = fit(rows, "states")
    assert head.known is None and head.hidden is not None
    units = head.directives(rows)
    assert all(x[0] > 0 > x[1] for x in units[:40]) and all(x[0] < 0 for x in units[40:])


@pytest.mark.usefixtures("weak_ridge")
def test_a_directive_reply_of_which_every_sentence_looks_directive_teaches_by_all_of_them() -> None:
    """Two wishes in each directive reply, in different words, of which one stands alone in other replies as well: the
    other one is not given up for it."""
    wish, other, thanks = np.eye(3, dtype=np.float32)
    each = [np.stack([wish, other])] * 30 + [wish[None]] * 30 + [thanks[None]] * 60
    rows = rows_of([1, 0, -1] * 40, np.stack([x.mean(0) for x in each]), each, [True] * 60 + [False] * 60)
    odds = by_line(rows)
    assert odds[0][1] > 0.85 * odds[0][0] > 0 > odds[-1][0]
    units = fit(rows, "states").directives(rows)
    assert min(units[0]) > 0 > units[-1][0]


@pytest.mark.usefixtures("weak_ridge")
def test_of_a_directive_reply_that_looks_like_thanks_the_likeliest_sentence_is_learned_from() -> None:
    """So many thanks stand beside a few wishes that every sentence is unlikely at first; one of each two is a wish."""
    random = np.random.default_rng(9)

    def sentence(x: float) -> list[float]:
        return [x + 0.2 * float(random.standard_normal())]

    each = [np.array([sentence(1), sentence(-1)], np.float32) for _ in range(10)]
    each += [np.array([sentence(0)], np.float32) for _ in range(150)]
    rows = rows_of([1, -1] * 80, np.stack([x.mean(0) for x in each]), each, [True] * 10 + [False] * 150)
    odds = by_line(rows)
    assert np.mean([x[0] for x in odds[:10]]) > 0 > np.mean([x[1] for x in odds[:10]])


REPLIES = ["perfect, thank you so much", "great, works now", "lovely, exactly right"], [
    "no, that is wrong", "this is bad and wrong", "useless, completely broken"], [
    "when does the shop open?", "let me ask my wife", "what about tomorrow"]  # fmt: skip


def in_words(copies: int = 4) -> Rows:
    said = [(label, r) for _ in range(copies) for label, some in zip((1, -1, 0), REPLIES, strict=True) for r in some]
    whole = np.stack([word_features(r) for _, r in said])
    readings = [reading(r) for _, r in said]
    directive = [label == -1 for label, _ in said]
    return rows_of([label for label, _ in said], whole, None, directive, readings, [i % 9 for i in range(len(said))])


def test_a_head_over_words_knows_the_words_of_its_rows_and_no_others() -> None:
    rows = in_words()
    head = fit(rows, "words")
    assert head.known is not None
    assert head.known.tolist() == sorted({int(n) for r in rows.readings for n in word_numbers(r.sentences[0])})
    assert (head.scores(rows).argmax(1) - 1).tolist() == rows.labels.tolist()
    assert [x[0] > 0 for x in head.directives(rows)] == [label == -1 for label in rows.labels]


def test_a_row_of_words_that_counts_half_is_half_as_good() -> None:
    rows = in_words(1)
    odds = []
    for count in (1.0, 0.5):
        rows.counts = np.array([count] + [1.0] * 8, np.float32)
        odds.append(fit(rows, "words").scores(rows)[0])
    assert np.ptp(odds[1]) < np.ptp(odds[0]) and odds[1].argmax() == odds[0].argmax()


# -- cross-validation -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("weak_ridge")
def test_no_row_is_judged_by_a_head_that_saw_its_group() -> None:
    """A reply says nothing but which group it is of, and the groups' labels are drawn at random: whoever saw the group
    is always right, whoever did not can be right by chance alone."""
    random = np.random.default_rng(5)
    groups = np.repeat(np.arange(30), 4)
    labels = random.integers(-1, 2, 30)[groups]
    x = (10 * random.standard_normal((30, 24)))[groups].astype(np.float32)
    rows = rows_of(labels.tolist(), x, directive=[bool(n) for n in random.integers(0, 2, 30)[groups]], groups=groups)
    scores, odds = cross_validated(rows, "states")
    seen = fit(rows, "states").scores(rows)
    assert (seen.argmax(1) - 1 == labels).mean() > 0.8
    assert (scores.argmax(1) - 1 == labels).mean() < 0.6
    assert scores.shape == (120, 3) and [len(x) for x in odds] == [1] * 120


@pytest.mark.usefixtures("weak_ridge")
def test_cross_validated_odds_stand_at_their_rows() -> None:
    """What is easy is right on each row, also where a reply has several sentences."""
    random = np.random.default_rng(6)
    labels = [(-1, 0, 1)[i % 3] for i in range(60)]
    x = np.array([[3.0 * (label == k) for k in (-1, 0, 1)] for label in labels]) + 0.1 * random.standard_normal((60, 3))
    each = [np.repeat(x[i : i + 1], 1 + i % 2, 0).astype(np.float32) for i in range(60)]
    rows = rows_of(labels, x, each, [label == -1 for label in labels])
    scores, odds = cross_validated(rows, "states")
    assert (scores.argmax(1) - 1).tolist() == labels
    assert [len(o) for o in odds] == [1 + i % 2 for i in range(60)]
    highest = np.array([o.max() for o in odds])
    assert highest[np.array(labels) == -1].min() > highest[np.array(labels) != -1].max()


# -- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("too_sure", [0.5, 1.0, 2.0])
def test_the_temperature_takes_back_what_is_too_sure(too_sure: float) -> None:
    random = np.random.default_rng(7)
    odds = 1.5 * random.standard_normal((4000, 3))
    p = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
    labels = np.array([random.choice(3, p=row) - 1 for row in p])
    assert temperature((odds * too_sure + 5).astype(np.float32), labels) == pytest.approx(too_sure, rel=0.1)


def test_the_temperature_stays_within_reason() -> None:
    sure = np.eye(3, dtype=np.float32)
    assert temperature(sure, np.array([-1, 0, 1])) == pytest.approx(0.3)
    assert temperature(9 * sure, np.array([0, 1, -1])) == pytest.approx(4.0)


def test_the_slope_makes_the_likeliest_sentence_the_chance_of_the_reply() -> None:
    """Replies drawn from known chances; beside the likeliest sentence stands another one, and words that nobody knows
    say nothing."""
    random = np.random.default_rng(8)
    x = 2 * random.standard_normal(4000)
    drawn = (random.random(4000) < 1 / (1 + np.exp(-(0.7 * x - 0.4)))).astype(np.int64)
    odds = [np.array([v, v - 1] if i % 2 else [v - 2, v], np.float32) for i, v in enumerate(x)]
    odds += [np.array([NEVER, NEVER], np.float32)] * 2000
    a, b = slope(odds, np.concatenate([drawn, np.ones(2000, np.int64)]))
    assert (a, b) == (pytest.approx(0.7, abs=0.1), pytest.approx(-0.4, abs=0.1))


# -- figures ----------------------------------------------------------------------------------------------------------


def test_the_figures_are_those_that_a_hand_counts() -> None:
    """Eight replies, from sure to unsure: right, right, right, wrong, right, right, wrong, wrong."""
    sure = [0.96, 0.93, 0.88, 0.81, 0.72, 0.64, 0.55, 0.42]
    hits = [True, True, True, False, True, True, False, False]
    labels = [-1, 1, 0, 1, -1, 0, 1, -1]
    logits = np.zeros((8, 3), np.float32)
    for i, (chance, hit, label) in enumerate(zip(sure, hits, labels, strict=True)):
        guess = label if hit else (label + 2) % 3 - 1
        logits[i] = math.log((1 - chance) / 2) + 3  # a constant on all of a row changes nothing
        logits[i, guess + 1] = math.log(chance) + 3
    order = [5, 0, 7, 2, 1, 6, 3, 4]  # the rows stand in no order
    directive = [True, True, False, True, False, False, False, True]
    chances = [(0.9, 0.1), (0.65,), (0.65, 0.2), (0.3, 0.55), (0.45,), (0.1,), (0.2,), (0.35,)]
    odds = [np.log(np.array(c) / (1 - np.array(c))).astype(np.float32) for c in chances]
    rows = rows_of([labels[i] for i in order], np.zeros((8, 1), np.float32), directive=[directive[i] for i in order])
    found = figures(logits[order], [odds[i] for i in order], rows)
    assert (found["100%"], found["75%"], found["60%"]) == (0.625, 0.833, 0.8)
    assert found["sure"] == (2, 1.0)
    assert found["hints 0.4"] == (0.6, 0.75)
    assert found["hints 0.5"] == (0.75, 0.75)
    assert found["hints 0.6"] == (0.667, 0.5)
    assert found["hints 0.7"] == (1.0, 0.25)
    assert found["bands"] == [
        ("0.4", 1, 0.0), ("0.5", 1, 0.0), ("0.6", 1, 1.0), ("0.7", 1, 1.0), ("0.8", 2, 0.5), ("0.9", 2, 1.0)
    ]  # fmt: skip


def test_figures_of_rows_of_which_none_is_sure_and_none_directive() -> None:
    rows = rows_of([1, 0], np.zeros((2, 1), np.float32))
    never = [np.array([NEVER], np.float32)] * 2
    found = figures(np.log(np.array([[0.2, 0.2, 0.6], [0.2, 0.3, 0.5]], np.float32)), never, rows)
    assert found["sure"] == (0, None)
    assert found["hints 0.5"] == (0.0, 0.0)
