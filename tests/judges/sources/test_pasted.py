"""Text handed over without a fence: what announces it, how its lines are built, and where it ends."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.pasted import (
    MAX_HEAD,
    announces_a_quote,
    as_typed,
    begins_headers,
    bracket_end,
    current_message,
    first_line,
    listing_end,
    names_a_program,
)


@pytest.mark.parametrize(
    ("text", "typed"),
    [("a &lt;b&gt; c", "a <b> c"), ("Tom &amp; Ann", "Tom & Ann"), ("a < b", "a < b"), ("", "")],
)
def test_brackets_that_html_escapes_are_read_as_brackets(text: str, typed: str) -> None:
    assert as_typed(text) == typed


@pytest.mark.parametrize(
    ("line", "announces"),
    [
        ("On 2024-05-03 Ann wrote:", True),
        ("Am 3.5.2024 schrieb Ann:", True),
        ("Le 3/5/24, Ann a dit :", True),
        ("Ann <ann@example.org>:", True),
        ("2024年5月3日 Ann：", True),
        ("Fri, May 3, 2024 at 10:30 Ann:", True),
        ("On 2024-05-03 Ann wrote", False),
        ("Ann wrote:", False),
        ("In 2024 we had:", False),
        (f"{'so ' * 60}2024-05-03:", False),
    ],
)  # fmt: skip
def test_a_line_with_a_date_or_an_address_and_a_colon_announces_a_mail(line: str, announces: bool) -> None:
    assert announces_a_quote(line) is announces


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("PreToolUse:Bash hook error", True),
        ("UserPromptSubmit:x", True),
        ("# MEMORY.md (loaded)", True),
        ("## `src/app.py`", True),
        ("### docs/a-b.rst: 3 lines", True),
        ("# notes.txt", True),
        ("PreToolUse: that is wrong", False),
        ("Tooluse:x", False),
        ("# Too long", False),
        ("MEMORY.md is wrong", False),
        ("# report.md is wrong", False),
        ("######## a.md", False),
    ],
)
def test_a_line_that_a_program_heads_or_that_heads_a_file(line: str, names: bool) -> None:
    assert names_a_program(line) is names


@pytest.mark.parametrize(
    ("line", "following", "begins"),
    [
        ("Content-Type: text/html", "Content-Length: 3", True),
        ("Content-Type:text/html", "", True),
        ("Content-Disposition: inline", "--boundary", True),
        ("Content-Type: text/html", "It is wrong.", False),
        ("Content-Type:", "", False),
        ("Content: text", "", False),
        ("content-type: text", "", False),
        ("It is wrong.", "Content-Length: 3", False),
    ],
)
def test_headers_begin_with_one_among_others(line: str, following: str, begins: bool) -> None:
    assert begins_headers(line, following) is begins


LISTINGS = [
    # TeX goes on to its last end.
    ("\\begin{a}\nwrong\n\\begin{b}\n\\end{b}\nwrong\n\\end{a} x\nThanks.", "Thanks."),
    ("\\documentclass{a}\n\\begin{b}\nx\n\\end{b}\nThanks.", "Thanks."),
    ("\\begin{a}\n\\end{a}\nThanks.\nBye.", "Thanks.\nBye."),
    ("\\begin{a}\nwrong\nThanks.", ""),
    ("\\begin{a}\nwrong\n\\end{a}", ""),
    # A directive and a block of YAML hold what is indented.
    (".. note::\n   wrong\n\n   wrong\nThanks.", "Thanks."),
    (".. code-block:: python\n\tx\nThanks.\n  y", "Thanks.\n  y"),
    (".. note::\n   wrong", ""),
    ("text: |\n  wrong\n  wrong\nThanks.", "Thanks."),
    ("text: >\n  wrong\n\nThanks.", "Thanks."),
    ("text: |-\n  wrong\nThanks.", "Thanks."),
    ("text: >-\n  wrong\nThanks.", "Thanks."),
    ("text: |\nThanks.", "Thanks."),
    # A footnote, rows and fields go on to the next empty line.
    ("[^1]: It is\nwrong.\n\nThanks.", "\nThanks."),
    ("[^1]: It is wrong.\n\nThanks.\n\nBye.", "\nThanks.\n\nBye."),
    ("[^a]: It is wrong.", ""),
    ("a\tb\nwrong\n\nThanks.", "\nThanks."),
    ("a,b,c\n1,2,3\nwrong\n\nThanks.", "\nThanks."),
    ("a;b;c\n1;2;3\n\nThanks.", "\nThanks."),
    ("name: it\nstate: wrong\nmore\n\nThanks.", "\nThanks."),
    ("- a_b: it\n- state: wrong\n\nThanks.", "\nThanks."),
    ("Ann: it is wrong, I think.\nBob: no.\n\nThanks.", "\nThanks."),
    ("10:30 Ann: wrong\n10:31 Bob Lee: no\n\nThanks.", "\nThanks."),
    ("[10:30:05] Ann (ops): wrong\n(10:31) Bob: no\n\nThanks.", "\nThanks."),
    ("10:30 - Ann: wrong\n10.31 - Bob: no", ""),
    ("Ann: Wrong\nBob: no\n\nThanks.", "\nThanks."),
    ("Ann: wrong\nAnn: no\n\nThanks.", "\nThanks."),
    ("Ann Lee: wrong\nBob: no\n\nThanks.", "\nThanks."),
    ("Ann: wrong in five words or more\nBob: no\n\nThanks.", "\nThanks."),
    ("Ann: wrong\nBob: no\nEva: yes\n\nThanks.", "\nThanks."),
]  # fmt: skip


@pytest.mark.parametrize("before", ["", "Hello.\n\nIt is this:\n", "a\n\n\\end{a}\n"])
@pytest.mark.parametrize(("text", "left"), LISTINGS)
def test_where_a_listing_ends(before: str, text: str, left: str) -> None:
    whole = before + text
    first = text.partition("\n")[0]
    after = len(before) + min(len(first) + 1, len(text))
    assert whole[listing_end(whole, len(before), first, after) :] == left


@pytest.mark.parametrize("before", ["", "Hello.\n", "Ann: yes\n"])
@pytest.mark.parametrize(
    "text",
    [
        "It is wrong.\nPlease fix it.",
        "Yes, no, or so, I say,\nit is wrong, and so on, it is",
        "a,b,c\nThanks.",
        "a,b\n1,2",
        "name: it\nThanks.",
        "Ann: it is wrong.\nThanks.",
        "10:30 is too late\n10:31 as well",
        "XX-large\nXX-small",
        "Use std::string here.\n  And no pointers.",
        "It is wrong.\nname: it",
        "It is wrong.\nAnn: yes",
        "Tone: too formal\nLength: too long\n\nThanks.",
        "Tone: too formal\nLength: too long\n\nAnn: it is wrong, I think.",
        "Tone: no: too formal\nLength: too long",
        "Tone: stiff for Ann\nBrand: iPhone please",
        "Tone: too formal\nLength: too long by half",
        "[1]: a",
        ".. and so on: it goes",
        "so it is [^1]: yes",
        f"[^{'so ' * 60}]: yes",
    ],
)
def test_lines_as_people_type_them_begin_no_listing(before: str, text: str) -> None:
    first, whole, at = text.partition("\n")[0], before + text, len(before)
    assert listing_end(whole, at, first, min(at + len(first) + 1, len(whole))) == at


NOTICES = [
    # Labelled: it holds its text up to the last bracket, and without one all that follows.
    ("[Image: a [red] box] Thanks.", True, " Thanks."),
    ("[Image: a box", True, ""),
    ("[Image: a\nbox] and [x] y\nThanks.", True, " y\nThanks."),
    ("[Image: a [red] box] Thanks.\n[x] y", False, " Thanks.\n[x] y"),
    ("[Image: a [red] box] Thanks.", False, " Thanks."),
    ("[Image: a [red] box] Thanks.\n[x] y\nBye.", False, " Thanks.\n[x] y\nBye."),
    ("[Image: a [red] box]", False, ""),
    ("[Image: a box\nThanks [x].", False, ""),
    ("[System note:\nwrong] Thanks.", True, " Thanks."),
    ("[Notiz： falsch] Danke.", True, " Danke."),
    ("[Image : 12 px] Thanks.", True, " Thanks."),
    # Typed, or data, or a title alone on its line: it heads what follows.
    ("[cron:daily] wrong\nwrong", True, ""),
    ("[a-b:c2] wrong", True, ""),
    ('[{"a": 1}]\nwrong', True, ""),
    ("[Summary so far]\nwrong", True, ""),
    ("[Summary so far]  \nwrong", True, ""),
    ("[Tool output]", True, ""),
    # Marks beside the person's words.
    ("[cron:daily] wrong", False, "[cron:daily] wrong"),
    ('[{"a"}] wrong', False, '[{"a"}] wrong'),
    ("[Image #1] wrong", True, "[Image #1] wrong"),
    ("[Image #1]\nwrong", True, "[Image #1]\nwrong"),
    ("[Mon 10:00] wrong", True, "[Mon 10:00] wrong"),
    ("[Mon 10:00]\nwrong", True, "[Mon 10:00]\nwrong"),
    ("[see page 3]\nwrong", True, "[see page 3]\nwrong"),
    ("[3 items left]\nwrong", True, "[3 items left]\nwrong"),
    ("[page 3]\nwrong", True, "[page 3]\nwrong"),
    ("[Page3:12] wrong", True, "[Page3:12] wrong"),
    ("[done]\nwrong", True, "[done]\nwrong"),
    ("[x]\nwrong", True, "[x]\nwrong"),
    ("[so it is] wrong", True, "[so it is] wrong"),
    ("[Summary so far]\nwrong", False, "[Summary so far]\nwrong"),
    ("[so] it [is]\nwrong", True, "[so] it [is]\nwrong"),
    ("[so it is\nwrong]", True, "[so it is\nwrong]"),
    (f"[{'so ' * 60}it is]\nwrong", True, f"[{'so ' * 60}it is]\nwrong"),
    ("[:x", True, "[:x"),
]  # fmt: skip


@pytest.mark.parametrize("before", ["", "[a] Hello.\n"])
@pytest.mark.parametrize(("text", "begins_line", "left"), NOTICES)
def test_where_a_notice_in_square_brackets_ends(before: str, text: str, begins_line: bool, left: str) -> None:
    whole = before + text
    assert whole[bracket_end(whole, len(before), begins_line) :] == left


CHAT = "[Chat messages since your last reply]\nAnn: wrong\n[Current message - respond to this]\n"
IDE = "# Context from my IDE setup:\n## Open tabs\n- a.py\n## My request for Codex:\n"


@pytest.mark.parametrize(
    ("text", "current"),
    [
        ("It is wrong.", "It is wrong."),
        (CHAT + "Thanks.", "\nThanks."),
        (IDE + "Thanks.", "Thanks."),
        (IDE + "It is ## a title.\nThanks.", "It is ## a title.\nThanks."),
        (CHAT + "Thanks.\n[Current message]\nWrong.", ""),
        (IDE + IDE + "Thanks.", ""),
        ("[Chat messages since your last reply]\nAnn: wrong", ""),
        ("So: " + IDE + "Thanks.", "So: " + IDE + "Thanks."),
    ],
)
def test_what_is_to_be_answered_now_of_a_message_that_an_agent_set_up(text: str, current: str) -> None:
    assert current_message(text) == current


@pytest.mark.parametrize(
    ("text", "at", "line"),
    [
        ("a\nb\nc", 0, "a"),
        ("\nb", 0, ""),
        (f"{'x' * (MAX_HEAD + 5)}\ny", 0, "x" * MAX_HEAD),
        ("a\n b \nc", 2, "b"),
        ("a\nb", 2, "b"),
        ("a", 1, ""),
        ("x" * (MAX_HEAD + 5), 0, "x" * MAX_HEAD),
        ("a\n\nb", 2, ""),
    ],
)
def test_the_first_line_from_a_place_on_without_spaces_around_it(text: str, at: int, line: str) -> None:
    assert first_line(text, at) == line
