"""Hints: sentences of the person as they wrote them, or a sentence of ours; content's advice is for review."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.judges.signals.hints import MAX_CHARS, MIN_CHARS, hint_of
from turnwise.judges.signals.reading import read_parts
from turnwise.judges.signals.verdict import judge_by_words
from turnwise.judges.text import sentences
from turnwise.messages import from_chat, saying
from turnwise.skills.wishes import wishes_among

EVOLVING = Path(__file__).parents[1] / "evolving"
UNSEEN_PHRASES = Path(__file__).with_name("unseen-phrases.jsonl")
SAID = ("That's wrong.", "Always use metric units.", "Thanks!", "And shorter, please.")


def test_the_directive_sentences_are_the_hint_as_they_were_written() -> None:
    assert hint_of(SAID, [0.2, 0.9, 0.1, 0.7], 0.5) == "Always use metric units. And shorter, please."
    assert hint_of(SAID, [0.2, 0.4, 0.1, 0.3], 0.5) is None


def test_at_most_the_three_likeliest_sentences_in_their_order() -> None:
    lines = [f"Please use plain word number {n}." for n in range(9)]
    chances = [0.6, 0.9, 0.6, 0.6, 0.95, 0.6, 0.6, 0.8, 0.6]
    assert hint_of(lines, chances, 0.5) == " ".join(lines[i] for i in (1, 4, 7))


def test_what_is_shorter_than_ten_characters_says_nothing() -> None:
    assert hint_of(["Shorter."], [0.9], 0.5) is None


@given(st.lists(st.tuples(st.text(max_size=400), st.floats(0, 1)), max_size=6))
def test_hints_are_bounded_text(sentences: list[tuple[str, float]]) -> None:
    hint = hint_of([s for s, _ in sentences], [p for _, p in sentences], 0.5)
    assert hint is None or 10 < len(hint) <= MAX_CHARS


@pytest.mark.parametrize(
    "output",
    [
        '{"error": {"field": "day", "message": "use ISO dates such as 2025-06-01"}}',
        '{"count": 3, "tip": "Filter with last_name=<value>. Always use it."}',
        "TypeError: f() got an unexpected keyword argument 'colour'. Did you mean 'color'?",
        "error[E0382]: use of moved value\nhelp: consider borrowing: `&cfg`",
    ],
)
def test_advice_of_a_tool_is_for_the_review_list_and_no_hint(output: str) -> None:
    verdict = judge_by_words(
        [saying("user", "Do it")],
        saying("assistant", "call(x)"),
        [from_chat({"role": "tool", "content": output})],
    )
    assert verdict.hint is None
    assert verdict.proposal is not None
    assert verdict.proposal.source == "a tool"


def lasting() -> list[str]:
    """Wishes of the evolver's tests that say outright that they are meant to last, in six languages. Those that are too
    short for any hint, as in Chinese, are left out."""
    files = [EVOLVING / "wishes-dev.jsonl", EVOLVING / "wishes-kept-aside.jsonl"]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        row["said"]
        for row in rows
        if row["wish"] and len(row["said"]) > MIN_CHARS and wishes_among([row["said"]], None)
    ]


@pytest.mark.parametrize("said", lasting())
def test_a_wish_that_is_meant_to_last_is_a_hint_whatever_the_head_thinks(said: str) -> None:
    """It becomes a skill; without a hint the weights would never learn it."""
    asked, answer = [saying("user", "What is the capital of Chile?")], saying("assistant", "Santiago.")
    for words in (said, f"Thanks, that was perfect. {said}"):
        verdict = judge_by_words(asked, answer, [saying("user", words)])
        assert verdict.hint is not None and said in verdict.hint


def test_what_a_task_says_of_its_result_is_no_hint_by_its_always() -> None:
    said = "Write a function that parses dates. It must always return a list."
    asked, answer = [saying("user", "hi")], saying("assistant", "Hello!")
    assert read_parts(asked, answer, [saying("user", said)]).lasting == (False, False)


def test_a_bare_failure_of_a_tool_gives_no_hint() -> None:
    for output in ("2 failed, 1 passed", '{"ok": false, "error": "invalid arguments"}', "exit code: 1"):
        verdict = judge_by_words(
            [saying("user", "Do it")],
            saying("assistant", "call(x)"),
            [from_chat({"role": "tool", "content": output})],
        )
        assert verdict.hint is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('no more "Cheers!" please, just the answer', ['no more "Cheers!" please, just the answer']),
        ('you forgot to end with "Cheers!" - always do that', ['you forgot to end with "Cheers!" - always do that']),
        ('He said "stop." Then he left. (Really?) Yes.', ['He said "stop."', "Then he left.", "(Really?)", "Yes."]),
        ("stop (now!) and go\non. x", ["stop (now!) and go", "on.", "x"]),
        ("好。再见！ok", ["好。", "再见！", "ok"]),
    ],
)
def test_a_quotation_that_ends_does_not_end_its_sentence(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_no_order_of_somebody_else_that_a_person_quotes_is_in_a_hint_of_the_words_alone() -> None:
    """Of replies by a writer who saw none that the head was fitted to; docs/judge.md has what the other heads do."""
    rows = [json.loads(line) for line in UNSEEN_PHRASES.read_text(encoding="utf-8").splitlines()]
    taken = dict.fromkeys(("wish", "less", "task", "report", "trap"), 0)
    for row in rows:
        parts = [saying("user", row["question"])], saying("assistant", row["answer"]), [saying("user", row["reply"])]
        reading, hint = read_parts(*parts), judge_by_words(*parts).hint or ""
        pairs = zip(reading.sentences, reading.quoting, strict=True)
        taken[row["kind"]] += any(quoting != sentence and quoting in hint for sentence, quoting in pairs)
    assert taken["report"] == taken["trap"] == 0
    assert taken["wish"] and taken["less"]
