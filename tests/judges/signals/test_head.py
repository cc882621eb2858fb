"""A head by hand: what it makes of states and of words, whose states it takes for its own model's, and its file."""

from __future__ import annotations

import hashlib
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.judges.signals import head as heads
from turnwise.judges.signals.head import (
    BUCKETS,
    MAX_CHARS,
    NO_OPINION,
    Head,
    Hidden,
    knows,
    softmax,
    tokenizer_digest,
    word_features,
    word_numbers,
    words_of,
)


def head(**has: Any) -> Head:
    """Of one layer with states of one number: the score by the last token and the reply, the rest by a sentence."""
    made: dict[str, Any] = {
        "layers": [7], "tokenizer": "t", "probe": [1, 2], "probed": np.array([3, 4], np.float32),
        "score": np.array([[1, 0], [0, 1], [0, 0]], np.float32), "score_bias": np.array([0, 0, 0.5], np.float32),
        "directive": np.array([1, 2], np.float32), "directive_bias": -1.0, "known": np.zeros(0, np.uint32),
        "own": np.array([2, -1], np.float32), "own_bias": 0.5,
        "name": "h", "about": {},
    }  # fmt: skip
    return Head(**(made | has))


def test_an_opinion_is_the_chance_of_each_score_and_of_each_sentence() -> None:
    vectors = np.array([[[1.0], [2.0], [0.0], [-1.0]]], np.float32)  # last token, reply, and two sentences
    found = head().opinion(vectors)
    e = [math.exp(1), math.exp(2), math.exp(0.5)]
    assert found.score == pytest.approx([x / sum(e) for x in e])
    # by the last token and the sentence: 1 + 2 · 0 - 1 and 1 + 2 · -1 - 1
    assert found.directive == pytest.approx([0.5, 1 / (1 + math.exp(2))])
    # and 2 · 1 - 0 + 0.5, 2 · 1 + 1 + 0.5
    assert found.own == pytest.approx([1 / (1 + math.exp(-2.5)), 1 / (1 + math.exp(-3.5))])


UNITS = Hidden(
    np.array([[2, 0], [0, -1], [1, 1]], np.int8), *(np.array(x, np.float32) for x in ([2, 3, 1], [0.5, 1, 0], [4, 8]))
)


def test_of_units_scores_and_wishes_are_made_and_what_a_person_wants_said_of_the_features() -> None:
    """Of the last token 1 and the reply 2 the units are 2 · 1/4 · 2 + 0.5, -2/8 · 3 + 1 and 1/4 + 2/8; of the sentences
    0 and -8 the second one is 1 and 4, the third 0.25 and 0."""
    score, directive = np.eye(3, dtype=np.float32), np.array([1, -1, 2], np.float32)
    with_units = head(hidden=UNITS, score=score, directive=directive)
    vectors = np.array([[[1.0], [2.0], [0.0], [-8.0]]], np.float32)
    found, without = with_units.opinion(vectors), head().opinion(vectors)
    e = [math.exp(1.5), math.exp(0.25), math.exp(0.5 + 0.5)]
    assert found.score == pytest.approx([x / sum(e) for x in e])
    odds = [1.5 - 1 + 2 * 0.25 - 1, 1.5 - 4 + 0 - 1]
    assert found.directive == pytest.approx([1 / (1 + math.exp(-x)) for x in odds])
    assert found.own == without.own
    assert with_units.opinion(vectors[:, :2]).directive == []


def test_layers_stand_one_after_the_other() -> None:
    vectors = np.array([[[1], [2], [3]], [[10], [20], [30]]], np.float32)
    assert head().whole(vectors).tolist() == [1, 2, 10, 20]
    of_two = {"directive": np.array([0, 0, 0, 0.1], np.float32), "own": np.zeros(4, np.float32)}
    two = head(score=np.eye(3, 4, dtype=np.float32), **of_two)
    assert two.opinion(vectors).directive == pytest.approx([1 / (1 + math.exp(-2))])


def test_large_log_odds_are_chances_as_well() -> None:
    assert softmax(np.array([1000, 0, 999], np.float32)) == pytest.approx([0.7311, 0, 0.2689], abs=1e-3)


@pytest.mark.parametrize(
    ("states", "own"),
    [
        ([3.0, 4.0], True),
        ([30.0, 40.0], True),  # another scale is the same direction
        ([3.4, 3.7], True),  # a cosine of 0.994
        ([4.0, 3.0], False),  # one of 0.96
        ([-3.0, -4.0], False),
        ([0.0, 0.0], False),
    ],
)
def test_a_head_fits_states_that_point_where_its_own_models_do(states: list[float], own: bool) -> None:
    assert head().fits(np.array(states, np.float32).reshape(1, 2, 1)) is own


def test_a_head_fits_no_states_of_another_width() -> None:
    assert head().fits(np.array([3, 4, 3, 4], np.float32).reshape(1, 2, 2)) is False


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don’t STOP, 'quoted' – now!", ["don't", "stop", "quoted", "now"]),
        ("a 12 grün  ''  x2", ["a", "12", "grün", "x2"]),
        ("…!?", []),
        ("x" * (MAX_CHARS - 2) + " ab", ["x" * (MAX_CHARS - 2), "a"]),
    ],
)
def test_words_are_small_and_without_the_marks_around_them(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_words_of_one_letter_and_numbers_say_nothing() -> None:
    assert word_numbers("I a 12 7 ok X2").tolist() == [zlib.crc32(b"ok"), zlib.crc32(b"x2")]
    assert len(word_numbers("half \ud83d")) == 1, "half of a surrogate pair is no word, and no fault"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("too long", True),
        ("too blorp", True),  # half of them
        ("too blorp fnord", False),
        ("too long blorp", True),
        ("too too blorp fnord", True),
        ("blorp", False),
        ("...", False),
        ("", False),
        ("I 12", False),
    ],
)
def test_a_text_is_known_when_half_of_its_words_are(text: str, known: bool) -> None:
    assert knows(word_numbers("it is too long"), text) is known


def piece(text: str, of: str) -> float:
    """The feature that stands for one piece, in those of a text."""
    return float(word_features(of)[zlib.crc32(text.encode()) % BUCKETS])


def test_features_of_words_have_length_one_whatever_the_layout() -> None:
    found = word_features("Way too LONG")
    assert found.shape == (BUCKETS,) and found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert (found == word_features("  way too\nlong ")).all()
    assert not word_features("").any()
    assert (word_features("x " * MAX_CHARS) == word_features("x " * (MAX_CHARS // 2))).all()


@pytest.mark.parametrize(
    ("part", "there"),
    [
        *[("wway", True), ("wlong", True), ("wway too", True), ("wtoo long", True), ("wway long", False)],
        *[
            (" w", True),
            (" way ", True),
            ("lon", True),
            ("ng ", True),
            ("way", True),
            ("y t", False),
            (" long ", False),
        ],
    ],
)
def test_features_are_words_their_pairs_and_pieces_of_two_to_five_letters(part: str, there: bool) -> None:
    assert (piece(part, "way too long") > 0) is there


def test_what_stands_within_three_words_behind_a_negation_is_denied() -> None:
    said = "It isn't a good, short answer at all"
    assert [piece(f"not {word}", said) > 0 for word in ("a", "good", "short", "answer", "it")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert piece("not good", "a good answer") == 0


def test_a_piece_that_stands_twice_counts_less_than_twice() -> None:
    once_and_twice = word_features("alpha alpha beta")
    alpha, beta = (float(once_and_twice[zlib.crc32(word) % BUCKETS]) for word in (b"walpha", b"wbeta"))
    assert alpha / beta == pytest.approx(math.log(3) / math.log(2), rel=1e-4)


def test_of_a_word_without_end_the_first_forty_letters_count() -> None:
    long = "".join(f"{n:03}" for n in range(100))
    assert piece(long[35:40], long) > 0
    assert piece(long[36:40] + " ", long) > 0, "as if it ended there"
    assert piece(long[41:46], long) == 0


def test_a_head_over_words_has_no_opinion_of_what_it_does_not_know() -> None:
    say = np.zeros((3, BUCKETS), np.float32)
    say[0, zlib.crc32(b"wlong") % BUCKETS] = 99
    made: dict[str, Any] = {"score": say, "score_bias": np.zeros(3, np.float32), "directive": say[0], "own": say[0]}
    words = head(**made, known=word_numbers("it is too long"))
    found = words.opinion_of_words(("too long", "blorp fnord"))
    assert found.score[0] > 0.9
    assert found.directive[0] > 0.9 and found.directive[1] == 0
    assert found.own[0] > 0.9 and found.own[1] == 0
    assert words.opinion_of_words(("too long", "blorp fnord qwertz uiop")).score == NO_OPINION
    assert words.opinion_of_words(("too long", "blorp fnord qwertz uiop")).directive[0] > 0.9


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_head_is_named_by_its_fault(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Head.read(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", layers=np.array([1]))
    with pytest.raises(KeyError):
        Head.read(tmp_path / "other.npz")
    np.savez(tmp_path / "code.npz", layers=np.array([print], object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        Head.read(tmp_path / "code.npz")


def file(path: Path, **other: Any) -> None:
    """A head of two features with three units, or with ``other`` parts."""
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    made: dict[str, Any] = {
        "layers": [7], "tokenizer": "t", "probe": [1], "probed": two, "score": np.ones((3, 3)), "score_bias": three,
        "directive": three, "directive_bias": 0.0, "own": two, "own_bias": 0.0, "known": np.zeros(0, np.uint32),
        "about": "{}", "hidden": UNITS.weights, "hidden_step": UNITS.step, "hidden_bias": UNITS.bias,
        "hidden_scale": UNITS.scale,
    }  # fmt: skip
    np.savez(path, **{name: np.array(part) for name, part in (made | other).items()})


def test_a_file_gives_the_units_that_were_put_into_it(tmp_path: Path) -> None:
    file(tmp_path / "h.npz")
    found = Head.read(tmp_path / "h.npz").hidden
    assert found is not None
    for name in ("weights", "step", "bias", "scale"):
        assert getattr(found, name).tolist() == getattr(UNITS, name).tolist()


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ({"score": np.ones((3, 2))}, "shapes"),
        ({"directive": np.ones(2)}, "shapes"),
        ({"hidden": np.ones((3, 4), np.int8)}, "shapes"),
        ({"hidden_step": np.ones(2)}, "shapes"),
        ({"hidden_scale": np.ones(3)}, "shapes"),
        ({"hidden": np.ones((3, 2))}, "whole numbers"),
        ({"hidden_scale": np.array([1, 0])}, "above 0"),
        ({"hidden_scale": np.array([1, np.nan])}, "above 0"),
        ({"hidden_bias": np.array([1, np.inf, 0])}, "are none"),
        ({"score_bias": np.array([1, np.nan, 0])}, "are none"),
        ({"own_bias": np.nan}, "are none"),
    ],
)
def test_a_file_whose_parts_do_not_belong_together_is_refused(
    tmp_path: Path, other: dict[str, Any], fault: str
) -> None:
    file(tmp_path / "h.npz", **other)
    with pytest.raises(ValueError, match=fault):
        Head.read(tmp_path / "h.npz")


def test_a_file_of_another_release_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "words.npz").write_bytes((heads.FOLDER / "words.npz").read_bytes())
    np.savez(tmp_path / "old.npz", layers=np.array([1]))
    monkeypatch.setattr(heads, "FOLDER", tmp_path)
    assert [found.name for found in heads.head_for("")] == ["words"]
    assert "old.npz is no head of this release" in caplog.text and "fit it anew" in caplog.text


def test_a_tokenizer_is_known_by_half_of_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"{}")
    assert tokenizer_digest(path) == hashlib.sha256(b"{}").hexdigest()[:32]
