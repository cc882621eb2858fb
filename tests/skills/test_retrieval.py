"""Which skills fit a question: by meaning and by whole words, above a threshold, in a budget, and each reachable."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.bench.skills.labelled import LIBRARY, RELATED, UNRELATED
from turnwise.bench.skills.run import library, measure
from turnwise.config import Config
from turnwise.config.skills import SkillsConfig
from turnwise.messages import answer_of, saying
from turnwise.skills.query import LONGEST, question_of
from turnwise.skills.retrieval import Bm25, SkillIndex, choose, stems
from turnwise.skills.skill_file import write
from turnwise.skills.vectors import PACKAGE, word_vectors
from turnwise.types import Skill

pytestmark = pytest.mark.skipif(find_spec(PACKAGE) is None, reason="the word vectors are not installed")
SET = SkillsConfig()


def chosen(skills: list[Skill], question: str, most: int = 5, max_tokens: int = 600, mode: str = "hybrid") -> list[str]:
    index = SkillIndex(skills, word_vectors())
    return [skill.name for skill in choose(index, question, SET.threshold, most, max_tokens, mode)]


def test_there_are_enough_labelled_questions() -> None:
    assert len(RELATED) >= 60 and len(UNRELATED) >= 60 and len(set(RELATED)) == len(RELATED)
    assert {name for _, name in RELATED} == LIBRARY.keys()
    assert len({category for category, _ in LIBRARY.values()}) >= 5


def test_questions_find_their_skills_and_others_find_none() -> None:
    ours, keywords = measure(aside=False)
    assert ours.recall >= 0.9 and ours.disturbed <= 0.05, ours
    assert ours.recall >= keywords.recall and ours.disturbed < keywords.disturbed


def test_the_template_mode_brings_a_whole_category() -> None:
    found = chosen(library(), "something about git please", most=20, mode="template")
    assert {"git-commit-messages", "git-rebase-conflicts"} <= set(found)
    assert not any(name.startswith("pytest") for name in found)


def test_no_skill_of_a_category_is_dead() -> None:
    """Of more than there is room for, the one that fits best is taken, and not the first six by name."""
    skills = [write(f"git-{word}", f"How to {word} in git", "Do it.", "git") for word in
              ("bisect", "blame", "clone", "fetch", "merge", "push", "rebase", "stash", "tag")]  # fmt: skip
    for skill in skills:
        assert skill.name in chosen(skills, f"{skill.description}?", most=2, mode="template")


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9](-?[a-z0-9]){0,11}", fullmatch=True).filter(lambda name: name not in ("con", "nul")),
        st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs")), min_size=1).filter(lambda t: t.split()),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["hybrid", "template"]),
    st.sampled_from([None, "one", "two"]),
)
def test_every_skill_is_found_by_some_question(told: dict[str, str], mode: str, category: str | None) -> None:
    skills = [write(name, said, "Do it. " * 300, category) for name, said in told.items()]
    for name in told:
        assert name in chosen(skills, f"use the skill {name} for this", most=1, mode=mode)


def test_there_is_a_budget_and_the_best_is_always_taken() -> None:
    skills = [write(f"tidy-dates-{n}", "How to write dates", "Write dates so. " * (100 + n)) for n in range(4)]
    assert len(chosen(skills, "how do I write dates", most=4, max_tokens=600)) == 1
    assert len(chosen(skills, "how do I write dates", most=4, max_tokens=5000)) == 4
    assert len(chosen(skills, "how do I write dates", most=2, max_tokens=5000)) == 2
    assert len(chosen(skills[:1], "how do I write dates", max_tokens=50)) == 1


def test_what_is_left_out_takes_no_seat_of_the_others() -> None:
    names = [f"wish-{n}" for n in range(8)]
    index = SkillIndex([write(name, "Always", "End with Cheers.", "always") for name in names], word_vectors())

    def found(without: set[str]) -> set[str]:
        return {skill.name for skill in choose(index, "hello", SET.threshold, 3, 600, "hybrid", without)}

    seated = found(set())
    assert len(seated) < len(names)
    others = found(seated)
    assert others and others.isdisjoint(seated)
    assert found(set(names)) == set()


def test_whole_words_count() -> None:
    assert Bm25([" ".join(stems("run the test"))]).scores("the latest news") == [0.0]
    assert stems("Testing the tests") == ["test", "test"]


def test_nothing_is_found_for_nothing() -> None:
    assert chosen([], "what?") == [] and chosen(library(), "") == [] and chosen(library(), "🙂") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Telegram Ana id:77 +2m Sun 2026-11-22 10:01 UTC] write the minutes", "write the minutes"),
        ("write the minutes\n[message_id: 8f3a]", "write the minutes"),
        ('Conversation info (untrusted metadata):\n```json\n{"sender": "docker"}\n```\nhello', "hello"),
        ("[Sun 2026-11-22 10:01 UTC] hello", "hello"),
        ("<system-reminder>commit often</system-reminder>hello", "hello"),
        ("<environment_context>docker</environment_context>", ""),
        ("see [1] and [the docs]", "see [1] and [the docs]"),
    ],
)
def test_the_question_is_the_persons_words(text: str, words: str) -> None:
    assert question_of([saying("system", "commit"), saying("user", text)]) == words


def test_while_tools_run_the_question_stays() -> None:
    history = [saying("user", "old"), answer_of("x"), saying("user", "new"), answer_of("", "", ())]
    assert question_of([*history, saying("tool", "docker")]) == "new"
    assert question_of([*history, saying("user", "BEGIN_OPENCLAW_INTERNAL_CONTEXT docker")]) == "new"
    assert question_of([]) == "" and len(question_of([saying("user", "x" * 10**6)])) <= LONGEST + 1


def test_the_settings_are_in_the_configuration() -> None:
    assert Config().skills == SET
