"""Lines that a program laid out, what drawn signs enclose, and text as an eye sees it."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.layout import (
    ROW,
    RULER,
    last_lines,
    layout_end,
    line_kind,
    share_a_head,
    without_frames,
)
from turnwise.judges.sources.visible import STOOD, folded, latin, visible, with_plain_marks


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        # Rulers: one sign, twice at least, with or without spaces between.
        ("-----", RULER + "-"), ("==", RULER + "="), ("* * *", RULER + "*"), ("  ~~~  ", RULER + "~"),
        ("──", RULER + "─"),         ("____", RULER + "_"), ("##", RULER + "#"), ("%%", RULER + "%"),
        ("--boundary42", RULER + "boundary42"), ("==EOF==", RULER + "EOF"), ("~~~x1~~~", RULER + "x1"),
        ("::end::", RULER + "end"), ("++a++", RULER + "a"),
        # Rows: a head with a number, or a sign that none begins a sentence with.
        ("Feed item 3: wrong", ROW + "Feed item 0:"), ("Feed item 12: no", ROW + "Feed item 0:"),
        ("Step 2 | wrong", ROW + "Step 0 :"), ("Punkt 3：falsch", ""), ("Item 3:", ROW + "Item 0:"),
        ("[1] wrong", ROW + "[0]"), ("D-7.2 wrong", ROW + "D-0.0"), ("12-34 wrong", ROW + "0-0"), ("|a", ROW + "|a"),
        ("a=1 wrong", ROW + "a=0"), ("%% wrong", ROW + "%%"), ("§ wrong", ROW + "§"), ("» wrong", ROW + "»"),
        ("$ wrong", ROW + "$"), ("Ann » wrong", ROW + "Ann »"), ("Ann2 % wrong", ROW + "Ann0 %"),
        ("{x wrong", ROW + "{x"), ("^ wrong", ROW + "^"), ("\\x wrong", ROW + "\\x"), ("~x wrong", ROW + "~x"),
        ("<x wrong", ROW + "<x"), ("++ wrong", ROW + "++"), ("Ann » it is wrong", ROW + "Ann »"),
        # As people type them.
        ("", ""), ("   ", ""), (STOOD, ""), ("It is wrong.", ""), ("- too long", ""), ("* too long", ""),
        ("• too long", ""), ("1. too long", ""), ("2) too long", ""), ("(3) too long", ""), ("a) too long", ""),
        ("...", ""), ("!!", ""), ("?!", ""), (":)", ""), ("''", ""), ("-", ""), ("aa", ""), ("11", ""), ("😀😀", ""),
        ("→ too long", ""), ("❌ too long", ""), ("# Too long", ""),
        ("& so on", ""), ("Tone: too formal", ""), ("10 lines at most", ""), ("v2 is wrong", ""),
        ("`a[1]` is wrong", ""), ("Too - long", ""), ("So ... no", ""), ("So, % wrong", ""), ("1: too long", ""),
        ("--boundary is wrong", ""), ("--x", ""), ("--xy", RULER + "xy"), ("--X9f", RULER + "X9f"),
        ("Two » wrong", ROW + "Two »"), ("a" * 41 + "1: wrong", ""), ("a" * 39 + "1: wrong", ROW + "a" * 39 + "0:"),
    ],
)  # fmt: skip
def test_what_a_line_shares_with_others_of_one_layout(line: str, kind: str) -> None:
    assert line_kind(line) == kind


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # Between two rulers all is foreign, to the last of its kind.
        ("----\nwrong\n----\nThanks.", "Thanks."),
        ("----\nwrong\n----\nwrong\n----\nThanks.", "Thanks."),
        ("----\nwrong\n----", ""),
        ("--b1\nwrong\n--b1--\nThanks.", "Thanks."),
        # Between two rows as well, and what the last row says goes on to the next empty line.
        ("[1] wrong\nso\n[2] wrong\nwrong\n\nThanks.", "\nThanks."),
        ("[1] wrong\n\nso\n\n[2] wrong", ""),
        ("[1] wrong\n[2] wrong\n\nThanks.\n\nBye.", "\nThanks.\n\nBye."),
        ("% a\n% b\n\nThanks.", "\nThanks."),
        # One alone, or two of different kinds, are the person's; so are points.
        ("----\nno\n====\nno", "----\nno\n====\nno"),
        ("[1] no\nso", "[1] no\nso"),
        ("- no\n- no", "- no\n- no"),
        ("No.\n[1] no\n[2] no", "No.\n[1] no\n[2] no"),
        ("\n[1] no\n[2] no", "\n[1] no\n[2] no"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("before", ["", "No.\n\n", "So it is.\n== x\n"])
def test_where_a_layout_ends_that_begins_with_a_line(before: str, text: str, left: str) -> None:
    whole = before + text
    assert whole[layout_end(whole, len(before), last_lines(whole)) :] == left
    # The last line of a layout begins none.
    last = last_lines(whole)
    assert all(layout_end(whole, at, last) == at for at in last.values())


def test_the_last_line_of_each_kind_that_several_lines_are_of() -> None:
    text = "[1] a\n----\nb\n[2] c\n§ d\n----\n[3] e"
    assert last_lines(text) == {ROW + "[0]": text.index("[3]"), RULER + "-": text.rindex("----")}


@pytest.mark.parametrize(
    ("texts", "shared"),
    [
        (["[1] a", "[2] b"], {ROW + "[0]"}),
        (["\n [1] a\nb", "[2] b\n§ c", "§ d"], {ROW + "[0]"}),
        (["----\na", "----\nb"], {RULER + "-"}),
        (["[1] a", "§ b"], set()),
        (["a", "b", ""], set()),
        ([], set()),
    ],
)
def test_texts_that_begin_as_rows_do_share_a_head(texts: list[str], shared: set[str]) -> None:
    assert share_a_head(texts) == shared


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("No. ▶ wrong ◀ Thanks.", "No.  Thanks."),
        ("♪ wrong ♪ Thanks.", " Thanks."),
        ("No.\n┌──┐\n│ wrong │\n└──┘\nThanks.", "No.\n\nThanks."),
        ("No. ▶ wrong ◀ wrong ▶ Thanks.", "No.  Thanks."),
        ("║ wrong\nwrong", "\nwrong"),
        ("No.\n║ wrong\nThanks.", "No.\n\nThanks."),
        ("a■ wrong\nb■ c", "a c"),
        ("No. ►", "No. "),
        ("No. ►  \nThanks.", "No. \nThanks."),
        # A button that is named, and shapes that begin lines.
        ("The ● button is wrong.", "The ● button is wrong."),
        ("No.\nThe ● button is wrong.\nYes.", "No.\nThe ● button is wrong.\nYes."),
        ("● too long\n● too stiff", "● too long\n● too stiff"),
        ("No:\n ■ too long\n ■ too stiff", "No:\n ■ too long\n ■ too stiff"),
        ("■ a\nsome ■ b\nc", " b\nc"),
        ("No frame.", "No frame."),
        ("→ a ← b ✓ c", "→ a ← b ✓ c"),
    ],
)
def test_what_drawn_signs_enclose_goes(text: str, left: str) -> None:
    assert without_frames(text) == left


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u200bb\u200dc\ufeffd\u202ee", "abcde"),
        ("a\x00b\x1bc\x7fd", "abcd"),
        ("a\ufe0fb\ufe00c\U000e0100d\U000e01efe", "abcde"),
        ("a\u3164b\u2800c\u115fd\uffa0e\u034ff", "abcdef"),
        ("a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h\x1ci\x1dj\x1ek", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk"),
        ("a\tb\n c", "a\tb\n c"),
        ("a\ud800b", "a\ufffdb"),
        ("Zürich, 東京", "Zürich, 東京"),
        ("\ufdff\ufe10\U000e01f0", "\ufdff\ufe10\U000e01f0"),
        ("", ""),
    ],
)
def test_characters_that_show_nothing_are_left_out(text: str, seen: str) -> None:
    assert visible(text) == seen


@pytest.mark.parametrize(
    ("text", "persons", "anybodys"),
    [
        ("‹x› 〈x〉 ⟨x⟩ ＜x＞", "<x> <x> <x> <x>", "<x> <x> <x> <x>"),
        ("≪x≫", "<<x>>", "<<x>>"),
        ("⟦x⟧ 〔x〕", "[x] [x]", "[x] [x]"),
        ("❴x❵ a⁄b a∕b a∖b", "{x} a/b a/b a\\b", "{x} a/b a/b a\\b"),
        ("│x ｜x ˋx aˍb", "|x |x `x a_b", "|x |x `x a_b"),
        # A person's quotation marks, and the signs that end their sentences, stay.
        ("«x» 《x》 【x】", "«x» 《x》 【x】", "<<x>> <<x>> [x]"),
        ("是，不！好？（一）：；．", "是，不！好？（一）：；．", "是,不!好?(一):;."),
        ("ＡＢＣ１２３", "ABC123", "ABC123"),
        ("ﬁne ①", "ﬁne ①", "fine 1"),
        ("＜\u200bx＞", "<x>", "<x>"),
        ("plain < text", "plain < text", "plain < text"),
        ("a\rb", "a\nb", "a\nb"),
    ],
)
def test_look_alikes_of_marks_become_the_marks(text: str, persons: str, anybodys: str) -> None:
    assert with_plain_marks(text) == persons
    assert folded(text) == anybodys


def test_letters_that_look_like_latin_ones_become_those_in_their_places() -> None:
    assert latin("усеr") == "ycer"
    assert latin("Ноok") == "Hook"
    assert latin("Αssistаnt ѕуstеm tооl") == "Assistant system tool"
    assert latin("plain") == "plain"
    assert latin("Zürich") == "Zürich"
