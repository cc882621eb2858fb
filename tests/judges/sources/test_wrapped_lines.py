"""Blocks of a message and its lines: which lines are asked about, and what marks the place where a block stood."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.visible import STOOD
from turnwise.judges.sources.wrappers import without_blocks


def own_end(text: str, at: int) -> int:
    """No line hands anything over."""
    return -1


def own_start(text: str, at: int) -> int:
    """No line begins anything."""
    return at


LINES = [
    ("one\ntwo", ["one", "two"]),
    ("one\n\ntwo\n", ["one", "", "two"]),
    (" one\n\ttwo\n- three", [" one", "\ttwo", "- three"]),
    # A line that begins with a block, or stands in one, is not asked about, nor is what stands behind a block.
    ("one\n<x>\ntwo\n</x>\nthree", ["one", "three"]),
    ("one\n  <x>two</x> three\nfour", ["one", "four"]),
    ("one\n \t<x>two</x> three\nfour", ["one", "four"]),
    ("```\ntwo\n```\nthree", ["three"]),
    ("  ~~~\ntwo\n~~~\nthree", ["three"]),
    ('"""\ntwo\n"""\nthree', ["three"]),
    ("'''\ntwo\n'''\nthree", ["three"]),
    ("[x]two\n[/x] three\nfour", ["four"]),
    ("one\n [x]two\n[/x] three\nfour", ["one", "four"]),
    ("[Image: two] three\nfour", ["four"]),
    ("[Image: two]\nthree [four]\nfive", ["five"]),
    ("[cron:daily] two\nthree", []),
    ("[Summary so far]\nthree", []),
    ("one [Image: two] three\nfour", ["one [Image: two] three", "four"]),
    ("one <x>two\n</x> three\nfour", ["one <x>two", "four"]),
    # A bracket that is no block begins a line as any other word.
    ("[x] two\n[Image #1] three", ["[x] two", "[Image #1] three"]),
    ("[y] two\n[x]three[/x] four", ["[y] two"]),
    ("`one` two\n''three", ["`one` two", "''three"]),
]


@pytest.mark.parametrize(("text", "asked"), LINES)
def test_each_line_outside_of_a_block_is_asked_about(text: str, asked: list[str]) -> None:
    begun: list[str] = []
    headed: list[str] = []

    def skip(text: str, at: int) -> int:
        begun.append(text[at:].partition("\n")[0])
        return at

    def head_end(text: str, at: int) -> int:
        headed.append(text[at:].partition("\n")[0])
        return -1

    without_blocks(text, skip, head_end)
    assert begun == asked
    assert headed == asked


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n# b\nc", "a\n\nc"),
        ("# b\nc", "\nc"),
        ("a\n# b\n# c\nd # e\nf", "a\n\n\nd # e\nf"),
        ("a\n# b <x>\nc</x>", ""),
        ("a\n# b", "a\n\n"),
    ],
)
def test_what_a_line_begins_is_left_out_with_a_line_break_in_its_place(text: str, left: str) -> None:
    def skip(text: str, at: int) -> int:
        return at if text[at] != "#" else text.find("\n", at) + 1 or len(text)

    assert without_blocks(text, skip, own_end) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\nb: c\nd", "a\nb:"),
        ("b: c\nd", "b:"),
        (": c\nd", ":"),
        ("a\nb <x>d</x>: e\nf", "a\nb  :"),
        ("b: <x>c", "b:"),
        ("a\n<x>b: c\n</x>d", f"a\n\n{STOOD}\nd"),
    ],
)
def test_what_follows_where_a_text_is_handed_over_is_left_out(text: str, left: str) -> None:
    def head_end(text: str, at: int) -> int:
        end = text.find("\n", at)
        colon = text.find(":", at, end if end >= 0 else len(text))
        return colon + 1 if colon >= 0 else -1

    assert without_blocks(text, own_start, head_end) == left


def test_a_text_may_be_handed_over_from_its_beginning_on() -> None:
    assert without_blocks("wrong\nwrong", own_start, lambda _, at: at) == ""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<x>b</x>c", f"\n{STOOD}\nc"),
        ("a\n<x>b</x>\nc", f"a\n\n{STOOD}\n\nc"),
        ("a\n```\nb\n```\nc", f"a\n\n{STOOD}\n\nc"),
        ("a\n  <x>b</x>c", f"a\n  \n{STOOD}\nc"),
        ("a <x>b</x>c", "a  c"),
        ("a\nb<x>c</x>d", "a\nb d"),
        ("a\nsome words <x>c</x>d", "a\nsome words  d"),
        ("a\n[Image: b]c", f"a\n\n{STOOD}\nc"),
        ("some words\n" + " " * 7 + "<x>b</x>c", "some words\n" + " " * 7 + f"\n{STOOD}\nc"),
        ("some words\n" + " " * 8 + "<x>b</x>c", "some words\n" + " " * 8 + " c"),
        ("some words" + " " * 9 + "<x>b</x>c", "some words" + " " * 9 + " c"),
        (" " * 7 + "<x>b</x>c", " " * 7 + f"\n{STOOD}\nc"),
        (" " * 8 + "<x>b</x>c", " " * 8 + " c"),
        ("a <x>b</x>", "a  "),
    ],
)
def test_a_mark_on_its_own_line_says_that_a_block_began_the_line(text: str, left: str) -> None:
    assert without_blocks(text, own_start, own_end) == left
