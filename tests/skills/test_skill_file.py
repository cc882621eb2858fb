"""A SKILL.md is read as what it says, or refused with its file and line; nothing in it is built or followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.skills.texts import BODY, text
from turnwise.errors import SkillError
from turnwise.skills.skill_file import MOST_BYTES, check_name, parse, write


def front(*lines: str, body: str = "Do it.") -> bytes:
    return "\n".join(["---", *lines, "---", body]).encode()


def test_a_file_is_read() -> None:
    skill = parse(text(), "f")
    assert (skill.name, skill.description, skill.category) == ("tidy-dates", "How to write dates in reports", "writing")
    assert skill.body == BODY and skill.content == text()


def test_keys_of_other_programs_stay_and_mean_nothing() -> None:
    skill = parse(front("name: a", "description: d", "license: MIT", "metadata:", "  by: [x, {y: z}]"), "f")
    assert (skill.name, skill.category) == ("a", None)


def test_values_are_text_and_never_anything_else() -> None:
    skill = parse(front("name: 12", "description: yes"), "f")
    assert (skill.name, skill.description) == ("12", "yes")


def test_a_file_from_windows_is_read() -> None:
    assert parse(b"\xef\xbb\xbf" + text().replace(b"\n", b"\r\n"), "f").body == BODY


HOSTILE = {
    "no front-matter": (b"# Dates", "f, line 1: a skill begins"),
    "empty": (b"", "f, line 1: a skill begins"),
    "no end": (b"---\nname: a\ndescription: d\n", "f, line 3: the front-matter does not end"),
    "no name": (front("description: d"), "f, line 2: the front-matter has no 'name'"),
    "no description": (front("name: a", "description: ''"), "f, line 3: the front-matter has no 'description'"),
    "no body": (front("name: a", "description: d", body=""), "nothing behind the front-matter"),
    "a list": (front("- a", "- b"), "f, line 2: the front-matter must be lines"),
    "broken": (front("name: a", "description: [d"), "f, line 3: the front-matter is not valid YAML"),
    "a colon": (front("name: a", "description: do: this: now"), "f, line 3: the front-matter is not valid YAML"),
    "twice": (front("name: a", "description: d", "name: b"), "f, line 4: 'name' stands there twice"),
    "an object": (front("name: !!python/object/apply:os.system [ls]", "description: d"), "line 2: .* a tag"),
    "an anchor": (front("name: &a x", "description: d"), "line 2: .* an anchor"),
    "a bomb": (front("a: &a [x,x]", "b: &b [*a,*a]", "name: n", "description: d"), "line 2: .* an anchor"),
    "an alias": (front("name: *a", "description: d"), "line 2: .* an alias"),
    "a directive": (front("%YAML 1.1", "name: a"), "line 2: .* a directive"),
    "a list for a name": (front("name: [a]", "description: d"), "line 2: 'name' must be text"),
    "deep": (front("x: " + "[" * 3000, "name: a", "description: d"), "line 2: .* nested more than"),
    "a key that is a list": (front("? [a]", ": b", "name: a"), "line 2: a key of the front-matter must be a word"),
    "a bad category": (front("name: a", "description: d", "category: ../x"), "line 4: a category has"),
    "a long description": (front("name: a", f"description: {'d' * 1025}"), "line 3: the description is longer"),
    "1 MB": (text(body="x" * (1 << 20)), "f is larger than 16 KB"),
    "not UTF-8": (text() + b"\xff", "f, line 15: this is not UTF-8"),
    "NUL": (text(body="a\0b"), r"line 7: the character U\+0000 cannot be seen"),
    "an escape": (text(body="\x1b[31m"), r"line 7: the character U\+001B"),
    "turned around": (text(body="a\u202eb"), r"line 7: the character U\+202E"),
    "tag characters": (text(body="a\U000e0041"), r"line 7: the character U\+E0041"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_skill_is_refused_with_its_file_and_line(case: str) -> None:
    content, said = HOSTILE[case]
    with pytest.raises(SkillError, match=said):
        parse(content, "f")


NAMES = [
    "", ".", "..", "../x", "a/b", "a\\b", "/etc", "a\0b", "a\nb", "A", "a b", "-a", "a-", "a--b", "a_b", "a.b", "con",
    "nul", "com1", "lpt9", "aux", "ａ", "а", "é", "a\u202e", "a" * 65, "~", "$HOME", "%2e%2e", "a:b", "skill\u200b",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_leads_anywhere_else_is_refused(name: str) -> None:
    with pytest.raises(SkillError, match="cannot be a skill's name"):
        check_name(name)


@given(
    description=st.text(min_size=1, max_size=80),
    body=st.text(min_size=1, max_size=200),
    category=st.none() | st.sampled_from(["git", "e-mail"]),
)
def test_what_is_written_is_read_back_or_refused(description: str, body: str, category: str | None) -> None:
    try:
        skill = write("a-skill", description, body, category)
    except SkillError:
        return
    again = parse(skill.content, "f")
    assert (again.name, again.category) == ("a-skill", category)
    assert again.description == " ".join(description.split())
    assert again.body.split() == body.split()
    assert len(skill.content) <= MOST_BYTES


def test_the_first_line_of_dashes_ends_the_front_matter() -> None:
    skill = parse(front("name: a", "description: d", "---", "name: b"), "f")
    assert (skill.name, skill.body) == ("a", "name: b\n---\nDo it.")


def test_front_matter_cannot_be_written_into_a_value() -> None:
    skill = write("a", "d\n---\nname: b\n---", "Do it.")
    assert (skill.name, skill.description) == ("a", "d --- name: b ---")
    assert write("a", "a: b # c & d * e ! f", "---\nname: b\n---").name == "a"
