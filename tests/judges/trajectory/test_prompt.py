"""What a judge of trajectories is sent: each piece in its fence, in order, and what is left out of it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from turnwise.judges.sizing import token_bound
from turnwise.judges.trajectory.prompt import ASKED, SYSTEM, judge_prompt, without_verdicts
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep

NONCE = "0123456789abcdef"
OPEN, CLOSE = f"<<<UNTRUSTED {NONCE}>>>\n", f"\n<<<END {NONCE}>>>"
STEP = TrailStep("I look.", ("click(x=1)",), ("Succeeded.",))
TRAIL = Trail("Buy the mug.", (STEP,), (ShownPage("first"), ShownPage("second"), ShownPage("third")), "Done.")


def content(trail: Trail, pictures: bool = False, room: int | None = None) -> Any:
    return judge_prompt(trail, pictures, lambda: NONCE, room)[1]["content"]


def pieces(text: str) -> list[tuple[str, str]]:
    """Each heading with what stands in the fence below it, without its bars."""
    found = []
    for piece in text.split(CLOSE)[:-1]:
        heading, _, inside = piece.strip("\n").partition(OPEN)
        assert all(line.startswith("| ") for line in inside.split("\n"))
        found.append((heading.strip(), "\n".join(line[2:] for line in inside.split("\n"))))
    return found


def history(*steps: TrailStep) -> str:
    """What the agent did, as it is told; dots that were made three are one sign again."""
    told = dict(pieces(content(replace(TRAIL, steps=steps))))[
        "What the agent did, in order, and what the browser said of it:"
    ]
    return told.replace("...", "…")


def test_every_piece_stands_in_its_fence_below_our_heading() -> None:
    assert pieces(content(replace(TRAIL, reference="It costs 9."))) == [
        ("The task, from the person:", "Buy the mug."),
        ("What is known of a right answer, from whoever wrote the task:", "It costs 9."),
        ("What the agent did, in order, and what the browser said of it:", "Step 1.\n  click(x=1)\n    Succeeded."),
        ("What stood in the window, 2 steps before the end:", "first"),
        ("What stood in the window, 1 step before the end:", "second"),
        ("What stood in the window, at the end:", "third"),
        ("The agent's final answer:", "Done."),
    ]


def test_what_is_not_there_is_said_or_left_out() -> None:
    bare = Trail("Buy the mug.", (), (ShownPage(""),), None, None)
    assert pieces(content(bare)) == [
        ("The task, from the person:", "Buy the mug."),
        ("What the agent did, in order, and what the browser said of it:", "(nothing)"),
        ("What stood in the window, at the end:", "(empty)"),
        ("The agent's final answer:", "(none)"),
    ]
    assert dict(pieces(content(replace(bare, answer=""))))["The agent's final answer:"] == "(empty)"


def test_the_rules_name_the_markers_and_the_question_comes_last() -> None:
    system, user = judge_prompt(TRAIL, False, lambda: NONCE)
    assert (system["role"], user["role"]) == ("system", "user")
    assert system["content"] == SYSTEM.replace("{nonce}", NONCE)
    assert user["content"].endswith(f"{CLOSE}\n\n{ASKED}")
    numbers = {judge_prompt(TRAIL, False)[0]["content"] for _ in range(9)}
    assert len(numbers) == 9, "each prompt has a number of its own"


def test_pages_with_a_picture_are_shown_by_it_and_others_told() -> None:
    pages = (ShownPage("first"), ShownPage("second", b"PNG 2"), ShownPage("third", b"PNG 3"))
    shown = replace(TRAIL, pages=pages)
    text, *pictures = content(shown, pictures=True)
    assert [heading for heading, _ in pieces(text["text"])][2:] == [
        "What stood in the window, 2 steps before the end:", "The agent's final answer:",
    ]  # fmt: skip
    said = "2 screenshots of the last pages follow, the newest last; their text is material too."
    assert text["text"].endswith(f"{CLOSE}\n\n{said}\n\n{ASKED}")
    assert text["type"] == "text"
    assert pictures == [
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png).decode()}"},
        }
        for png in (b"PNG 2", b"PNG 3")
    ]
    assert [inside for _, inside in pieces(content(shown))][2:5] == ["first", "second", "third"], "without pictures"


# -- the actions -------------------------------------------------------------------------------------------------------


def test_words_are_told_of_an_answer_that_called_nothing_and_feedback_stands_at_its_call() -> None:
    steps = [
        TrailStep("I look around.", (), ()),
        TrailStep(" \n ", (), ()),
        TrailStep("I click.", ("click(x=1)", "type('a')"), ("Succeeded.",)),
    ]
    assert history(*steps).split("\n") == [
        "Step 1.", "  said: I look around.", "Step 2.", "Step 3.", "  click(x=1)", "    Succeeded.", "  type('a')",
    ]  # fmt: skip


def test_a_line_of_an_action_is_one_line_of_at_most_600_characters() -> None:
    for many, shown in ((600, "x" * 600), (601, "x" * 600 + " (… 1 characters left out …)")):
        step = TrailStep("", ("x" * many,), ("y\n  " * 200 + "z",))
        found = history(step).split("\n")
        assert found[1] == f"  {shown}"
        assert found[2] == "    " + "y " * 200 + "z"
    long = history(TrailStep("a " * 400, (), ()))
    assert long.split("\n")[1] == "  said: " + "a " * 300 + " (… 199 characters left out …)"


@pytest.mark.parametrize("many", [1, 59, 60, 61, 100])
def test_of_many_steps_the_first_and_the_last_thirty_are_shown_with_their_numbers(many: int) -> None:
    steps = [TrailStep("", (f"call {n}",), ()) for n in range(1, many + 1)]
    lines = history(*steps).split("\n")
    shown = range(1, many + 1) if many <= 60 else [*range(1, 31), *range(many - 29, many + 1)]
    expected = [line for n in shown for line in (f"Step {n}.", f"  call {n}")]
    if many > 60:
        expected.insert(60, f"(… {many - 60} steps left out …)")
    assert lines == expected


# -- its size ----------------------------------------------------------------------------------------------------------


def test_the_material_keeps_to_its_room_and_what_is_short_stays_whole() -> None:
    long = replace(TRAIL, pages=(ShownPage("It begins. " + "0123456789 " * 500 + " It ends."),))
    whole = dict(pieces(content(long)))["What stood in the window, at the end:"]
    assert "left out" not in whole
    for room in (200, 1000, 2000):
        found = pieces(content(long, room=room))
        assert room - 60 < sum(token_bound(text) for _, text in found) <= room
        assert ("The task, from the person:", "Buy the mug.") in found
        page = dict(found)["What stood in the window, at the end:"]
        assert page.startswith("It begins.") and page.endswith("It ends.") and "characters left out" in page
    assert pieces(content(long, room=99_999)) == pieces(content(long))


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("A great SUCCESS!", "A great success!"),
        ("Success, SUCCESSFUL; NOT SUCCESS", "success, successFUL; NOT success"),
        ("UNSUCCESSFUL", "UNSUCCESSFUL"),  # no reader takes that for the word
        ("nothing of it", "nothing of it"),
        ("SUCCESS", "success"),
        ("", ""),
    ],
)
def test_the_word_of_a_verdict_is_written_small(text: str, harmless: str) -> None:
    assert without_verdicts(text) == harmless
