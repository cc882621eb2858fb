"""Text while it comes: whole characters only, and never a part of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.training.tiny import make_model
from turnwise.local_engine.text import TextStream


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token for every byte, so that any character is split over tokens."""
    return Tokenizer.from_file(str(make_model(tmp_path_factory.mktemp("tiny")) / "tokenizer.json"))


def feed(tokenizer: Tokenizer, text: str, *stop: str) -> tuple[list[str], str | None]:
    """The deltas after each byte of ``text``, and the stop string that ended it."""
    stream = TextStream(tokenizer, stop)
    deltas = []
    for token in tokenizer.encode(text).ids:
        hit = stream.push(token)
        deltas.append(stream.take())
        if hit is not None:
            return deltas, hit
    hit = stream.finish()
    return [*deltas, stream.take()], hit


def test_a_character_comes_whole_when_its_last_byte_does(byte_tokenizer: Tokenizer) -> None:
    deltas, _ = feed(byte_tokenizer, "né😀")
    assert deltas == ["n", "", "é", "", "", "", "😀", ""]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_deltas_add_up_to_the_text(byte_tokenizer: Tokenizer, text: str) -> None:
    deltas, _ = feed(byte_tokenizer, text)
    assert "".join(deltas) == text


def test_bytes_of_an_unfinished_character_come_at_the_end_as_a_replacement(byte_tokenizer: Tokenizer) -> None:
    stream = TextStream(byte_tokenizer)
    for token in byte_tokenizer.encode("a😀").ids[:-1]:
        stream.push(token)
    assert stream.take() == "a"
    stream.finish()
    assert stream.take().strip("\ufffd") == ""


def test_the_text_is_cut_before_a_stop_string_over_many_tokens(byte_tokenizer: Tokenizer) -> None:
    deltas, hit = feed(byte_tokenizer, "one STOP two", "STOP", "unused")
    assert ("".join(deltas), hit) == ("one ", "STOP")


def test_what_may_become_a_stop_string_is_held_back_and_then_let_out(byte_tokenizer: Tokenizer) -> None:
    deltas, hit = feed(byte_tokenizer, "STAY", "STOP")
    assert (deltas, hit) == (["", "", "STA", "Y", ""], None)


def test_the_earliest_of_several_stop_strings_wins(byte_tokenizer: Tokenizer) -> None:
    deltas, hit = feed(byte_tokenizer, "x\n\nUser: y", "User:", "\n\n")
    assert ("".join(deltas), hit) == ("x", "\n\n")


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=2))
def test_shown_text_is_the_text_before_the_first_stop_to_complete(
    byte_tokenizer: Tokenizer, text: str, stops: list[str]
) -> None:
    deltas, hit = feed(byte_tokenizer, text, *stops)
    ends = [(i, text[:i]) for i in range(len(text) + 1) if any(text[:i].endswith(s) for s in stops)]
    if not ends:
        assert ("".join(deltas), hit) == (text, None)
    else:
        seen = ends[0][1]
        at = min(seen.find(s) for s in stops if s in seen)
        assert "".join(deltas) == seen[:at]
