"""Which line hands a text over that is not the person's, and which one only heads the person's own points."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.pasted import MAX_HEAD, head_end
from turnwise.judges.sources.visible import STOOD

HANDS_OVER = [
    # A line that ends with a colon, an arrow or a hand; what follows is not the person's.
    ("Translate this text:\nIt is wrong.", "Translate this text:"),
    ("Translate this text:  \nIt is wrong.", "Translate this text:"),
    ("**Translate this text:**\nIt is wrong.", "**Translate this text:"),
    ("Translate:\n\nIt is wrong.", "Translate:"),
    ("Übersetze den Satz：\nEs ist falsch.", "Übersetze den Satz："),
    ("Here's the mail 👇\nIt is wrong.", "Here's the mail 👇"),
    ("The log ↓\nIt is wrong.", "The log ↓"),
    ("See below ⬇\nIt is wrong.", "See below ⬇"),
    ("See below ▼\nIt is wrong.", "See below ▼"),
    ("Here's the mail 👇  \nIt is wrong.", "Here's the mail 👇"),
    ("My colleague:\nIt is wrong.", "My colleague:"),
    ("My colleague:\n- It is wrong.", "My colleague:"),
    ("Problem X:\n- It is wrong.", "Problem X:"),
    # Announced by its name, though own points might follow words like these.
    ("I want to see this in the log:\nIt is wrong.", "I want to see this in the log:"),
    ("In this text, it should:\nIt is wrong.", "In this text, it should:"),
    ("Add the following:\n- It is wrong.", "Add the following:"),
    ("Fix below:\n- It is wrong.", "Fix below:"),
    ("Please translate, and note:\nIt is wrong.", "Please translate, and note:"),
    ("The following must:\n- go", "The following must:"),
    ("What I got, the output:\n- wrong", "What I got, the output:"),
    # An order to work on a text, and the text behind the colon.
    ("Translate: it is wrong.", "Translate:"),
    ("Please summarize: it is wrong.", "Please summarize:"),
    ("Could you check this: it is wrong.", "Could you check this:"),
    ("Done. Rewrite it in English: it is wrong.", "Done. Rewrite it in English:"),
    ("Bitte prüfe: es ist falsch.", "Bitte prüfe:"),
    ("Traduis : c'est faux.", "Traduis :"),
    ("Check this: it is wrong.\nMore of it.", "Check this:"),
    ("Check the tone again: it is wrong.", "Check the tone again:"),
]

OWN = [
    "No colon here\nat all.",
    "",
    "\nCould you translate this: it is wrong.",
    "The ratio in this text is 1:X\nand so on.",
    "It is 10:30, not 22:30.\nYes.",
    "Check the time 10:30 again\nplease",
    # Nothing to hand over behind it.
    "Translate this text:",
    "Translate this text:\n\n   \n",
    # Only opinions behind the colon.
    "One thing: it is wrong.",
    "Check again: the date is wrong.",
    "Please read it once more: the date is wrong.",
    "Answer me: why so long?",
    "Check it again: 7",
    "Correct that again: the date is wrong.",
    "Explain it twice: I did not get it.",
    # The person's own points follow.
    "Two things are wrong:\nthe title",
    "Two things:\nthe title",
    "But a few points:\nthe title",
    "Here are my wishes:\nthe title",
    "You should have:\nthe title",
    "What I wanted:\nthe title",
    "I’d prefer:\nthe title",
    "Please note:\nthe title",
    "From now on:\nshort ones",
    "Still wrong:\nthe title",
    "Mir fehlt noch einiges, zwei Dinge:\nder Titel",
    "**Two things:**\nthe title",
    "## Two things:\nthe title",
    "Please fix:\n- the title",
    "Please fix:\n1. the title",
    "Please fix:\n* the title",
    "I don't like:\n- the title",
    "I don’t like:\n- the title",
    "Bitte ändern:\n- Titel",
    # What follows stands between marks of its own, which end with it.
    "Translate this text:\n```\nIt is wrong.\n```\nThanks.",
    "Translate this text:\n~~~\nIt is wrong.\n~~~\nThanks.",
    "Translate this text:\n'''\nIt is wrong.\n'''",
    'Translate this text:\n"""\nIt is wrong.\n"""',
    "Translate this text:\n> It is wrong.\nThanks.",
    "Translate this text:\n\n> It is wrong.\n\nThanks.",
    "Translate this text:\n<p>It is wrong.</p>",
    "Translate this text:\n| a | b |",
    "Translate this text:\n    It is wrong.\nThanks.",
    "Translate this text:\n\tIt is wrong.\nThanks.",
    f"Translate this text:\n{STOOD}\nThanks.",
    "Why does it fail:\nTraceback (most recent call last):\n  x",
    "Translate: `it is wrong`. Thanks.",
    "Translate: <p>it is wrong</p>",
    # A list has to follow at once where the words alone would not do.
    f"Please keep it short. {'so ' * 60}: and more",
]


@pytest.mark.parametrize("before", ["", "Hello.\n", "Two:\n```\nx\n```\n"])
@pytest.mark.parametrize(("text", "own"), [*HANDS_OVER, *((text, None) for text in OWN)])
def test_where_the_words_of_the_person_end_that_hand_a_text_over(before: str, text: str, own: str | None) -> None:
    end = head_end(before + text, len(before))
    assert (None if end < 0 else (before + text)[len(before) : end]) == own


@pytest.mark.parametrize("text", ["Please fix:\nthe title", "Please fix:\n\n- the title", "I don't like:\nit"])
def test_only_a_list_that_follows_at_once_makes_own_points_of_such_a_head(text: str) -> None:
    assert text[: head_end(text, 0)] == text.partition("\n")[0]


def test_a_colon_is_looked_for_at_the_beginning_of_a_line() -> None:
    head = "Please translate"
    assert head_end(f"{head.ljust(MAX_HEAD - 1)}: it is wrong.", 0) == MAX_HEAD
    assert head_end(f"{head.ljust(MAX_HEAD)}: it is wrong.", 0) == -1
    # A colon at the line's end counts in a line of any length, and what stands before it is read.
    long = f"{'It goes on and on. ' * 20}Two things are wrong:"
    assert head_end(f"{long}\nthe title", 0) == -1
    assert head_end(f"Please check it. {long}\nthe title", 0) == -1
    assert head_end(f"{long[:-1]} in this text:\nthe title", 0) == len(long) + len(" in this text")
