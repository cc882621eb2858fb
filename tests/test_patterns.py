"""Every pattern of the package takes a time that grows with its text, no faster: on texts made to be hostile to it."""

import re
from pathlib import Path

import pytest

from tests.support.linear_time import SHORT, WIDE, Effort, slow_patterns
from turnwise.patterns import between, bounded, has_word, pattern


@pytest.mark.wide
@pytest.mark.timeout(400)
def test_no_pattern_of_the_package_is_slow() -> None:
    """A part of the hostile texts; all of them are for the wide form."""
    count, found = slow_patterns("turnwise", SHORT, timeout_s=380)
    assert count > 150
    assert [str(slow) for slow in found] == []


@pytest.mark.attacks
@pytest.mark.timeout(1500)
def test_no_pattern_of_the_package_is_slow_on_any_of_the_texts() -> None:
    count, found = slow_patterns("turnwise", WIDE, timeout_s=1400, shares=2)
    assert count > 150
    assert [str(slow) for slow in found] == []


@pytest.mark.parametrize("effort", [SHORT, pytest.param(WIDE, marks=pytest.mark.wide)], ids=["short", "wide"])
def test_planted_patterns_are_caught_by_the_same_check(effort: Effort) -> None:
    count, found = slow_patterns("tests.support.planted", effort)
    assert count == 5
    caught = {slow.source for slow in found}
    assert caught == {
        r"(?:[\s,]*\b(?:please|thanks)\b|[\s.!?,])+$",  # exponential: what once stopped the judge for ever
        r"(?:a|aa)+$",
        r"(?m)^\s*x",  # quadratic
        r"<think>.*?</think>",
    }
    assert len(found) == 4


def test_repetitions_are_bounded_unless_they_say_otherwise() -> None:
    assert bounded(r"a*b+?[*+]\*\+(?:x)*") == r"a{0,300}b{1,300}?[*+]\*\+(?:x){0,300}"
    assert bounded(r"[]+]*[^]+]+") == r"[]+]{0,300}[^]+]{1,300}"
    assert bounded(r"\w++") == r"\w{1,300}+"
    assert bounded(rb"a+") == rb"a{1,300}"


def test_patterns_are_made_when_modules_are_imported() -> None:
    with pytest.raises(RuntimeError, match="when the module is imported"):
        pattern("made from what somebody said")


def test_nothing_else_compiles_patterns() -> None:
    """Ruff holds it as well (TID251); the demo's measuring stick shares no code with the program."""
    source = Path(__file__).parents[1] / "src" / "turnwise"
    users = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"^\s*(?:import re\b|from re import)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert users == {"patterns.py", "demo/scorer.py"}


def test_words_and_blocks_are_found_as_a_pattern_would() -> None:
    assert has_word("git status", "git")
    assert not has_word("gitk, agit, git_x", "git")
    assert not has_word("pre-git", "git", joining="-")
    assert not has_word("anything", "")
    text = "a[x]b[y][z"
    assert [text[start:end] for start, end in between(text, "[", "]")] == ["[x]", "[y]"]
