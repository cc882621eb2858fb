"""The person's own words in what they sent: without labels, logs, code, quotes, tables and data of others."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.person import LABELS, LEVELS, LONG_WORD, MAX_LABEL, MAX_READ, own_words, person_words
from turnwise.messages import from_chat, saying


def lines(text: str) -> list[str]:
    """The lines of a text, without empty ones."""
    return [line for line in text.split("\n") if line]


LABELLED = [
    "Observation: wrong", "Observation:", "observation: wrong", "**Observation:** wrong", "### Human: wrong", "## Tool",
    "# Tool results", "# **System**", "[tool result] wrong", "[tool] wrong", "(stdout) wrong", "{output} wrong",
    "=> tool: wrong", "- tool output: wrong", "/tool: wrong", "Tool 3 result: wrong", "result of ls: wrong",
    "Results from ls: wrong", "Output for a.py: wrong", "File a: wrong", "Result:\nwrong", "Log:\nwrong",
    "Context:\nwrong", "出力：wrong", "结果: wrong", "Ausgabe: falsch", "résultat: faux",
    "TEXT: wrong", "TRANSCRIPT:\nwrong", "**TEXT:** wrong", "【资料】wrong", "HEARTBEAT wrong",
    "Read HEARTBEAT.md wrong", "[note: tool output: wrong", "[WARN] wrong", "TRACE: wrong",
    "Tool-output: wrong", "tool_output: wrong",
    "Result: Wrong", "Result:", "Human: wrong", "User: wrong", "# Result: wrong", "From: wrong", "Subject: Wrong",
    "* [tool] wrong", "- [tool result] wrong", "[X tool] wrong", "SQL: wrong", "Result:Wrong it is", "(12: tool: wrong",
    "{note: tool output: wrong", "(12:tool: wrong",
    "(note: tool: it is: wrong", "File for Ann Lee: wrong", "So one tool does it: wrong",
    # Quotes of mails, programs, files, headers.
    "On Tuesday Ann wrote:\nwrong", "Ann schrieb:\nfalsch", "Ann a écrit :\nfaux", "Ann escribió:\nmal",
    "Ann ha scritto:\nmale", "On 2024-05-03 Ann:\nwrong", "PreToolUse:Bash hook wrong", "# MEMORY.md (loaded)\nwrong",
    "Content-Type: text/html\nContent-Length: 3\n\nwrong",
    # Markers without an end of theirs.
    "=== BEGIN WEB PAGE ===\nwrong", "--- Files ---\nwrong", "-----Original Message-----\nwrong", "BEGIN: page\nwrong",
    "BEGIN_INTERNAL_CONTEXT\nwrong", "START_OF_PAGE\nwrong", "*** tool output. ***\nwrong",
    "[START OF PAGE]\nwrong", "### Files ***\nwrong", "=== BEGIN A ===\nwrong\n=== END B ===\nwrong",
    "=== END A ===\n=== BEGIN A ===\nwrong", "***Here is the tool output.***\nwrong", "***TOO LONG!***\nwrong",
    "=== X ===", "=== BEGIN PAGE", "--- START OF PAGE", "## START_PAGE",
    "*** Some notice. ***", "***Files***",
]  # fmt: skip


@pytest.mark.parametrize("label", LABELLED)
def test_behind_a_label_somebody_else_speaks_to_the_end(label: str) -> None:
    assert own_words(f"{label}\nwrong") == ""
    assert own_words(f"Too long.\n{label}\nwrong\n\nwrong") == "Too long."


@pytest.mark.parametrize("word", sorted(LABELS))
def test_each_word_of_a_label_is_known(word: str) -> None:
    assert own_words(f"Too long.\n### {word.capitalize()}:\nwrong") == "Too long."
    assert own_words(f"Too long.\n## {word}\nwrong") == "Too long."


@pytest.mark.parametrize(
    "text",
    [
        "Your output: far too long.", "The result: far too long.", "My user: far too long.", "This log: too long.",
        "Result: wrong name.", "Logs: too verbose.", "Response: too long.", "Document: too long.",
        "Subject: too vague.",
        "Tone: too formal.", "NOTE: too long.", "PS: too long.", "TODO: shorten it.", "WRONG: it is 5.",
        "PLEASE: shorter.",
        "Results", "## X", "Xtool: no.", "Tone: tool: no.", "Tool:3 is wrong.", "THE TEXT: too long.",
        "Results (3) are not what I want to see: no.", "Result: wrong, Ann.", "Result: iPhone is wrong.",
        "(note: tool is wrong)", "Note: tool: no.", "(note: too long: no)", "Some for user Ann: too long.",
        "File is too long: no.", "I want one tool and no more words: no.", "So one tool should do it: no.",
        "So one document: no.", "BEGIN with Dear Ann -", "No tool for it!***",
        "FYI: too long.", "Tool at 10:30 is wrong.", "tool 10:30 is too late", "10:30 is wrong.", "# Too long",
        "## My tool", "START_DATE is wrong.", "END_DATE is wrong.", "BEGIN with Dear Ann.", "Begin: too late.",
        "START OF the text is wrong.", "***Too long, make it shorter!***", "***it is bold.***", "---", "Too long ---",
        "In the text that you sent me it was, I think, the user: too long.", "From what the user said: too long.",
        "The one thing the other file needs is this: too long.", "OK: too long.", "I'd say: too long.", "*too long*",
        "BEGIN_DATE should be later.", "START_DATE comes and goes.", "So 3 of 5 results are wrong.",
    ],
)  # fmt: skip
def test_words_of_a_label_in_a_sentence_are_the_persons(text: str) -> None:
    assert own_words(text) == text
    assert own_words(f"No.\n{text}\nThanks.") == f"No.\n{text}\nThanks."


def test_a_label_is_looked_for_at_the_beginning_of_a_line() -> None:
    assert own_words("tool".ljust(MAX_LABEL - 1) + ": wrong") == ""
    assert own_words("tool".ljust(MAX_LABEL) + ": no").split() == ["tool", ":", "no"]


FOREIGN_LINES = [
    "    indented code", "\tindented code", "> quoted", "| a | b |", ">", "|", "ERROR it failed",
    "[10:30:05] INFO it goes", "(10:30) DEBUG: it goes", "**FATAL** it failed", "TRACE it goes",
    "Jan  3 10:30:05 host it goes", "2024-05-03T10:30 it goes", "[2024-05-03 10:30] it goes", "10:30:05 it goes",
    "03/May/2024:10:30 it goes", "ValueError: it failed", "a.b.MyException: it failed", "UserWarning : it goes",
    "KeyboardInterrupt: x", 'File "a.py", line 3', "at foo (a.js:3)", "at a.js:3", "--> a.rs:3:1",
    "goroutine 1 [running]:", "panic: it failed", "thread 'main' panicked",
]  # fmt: skip


@pytest.mark.parametrize("line", [*FOREIGN_LINES, *(f"{level} so it is" for level in sorted(LEVELS))])
def test_a_line_of_code_or_of_a_log_goes_and_no_other_with_it(line: str) -> None:
    assert own_words(f"Too long.\n{line}\nThanks.") == "Too long.\n\nThanks."
    assert own_words(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        "An ERROR it is.",
        "ERRORX is wrong.",
        "Error handling is wrong.",
        "Info is missing.",
        "10:30 is too late.",
        "   Too long.",
        "at last it works",
        "File it under A.",
        "2024 was better.",
        "In 2024-05 it was so.",
        "The ValueError is wrong.",
        "Value error: it is",
        "thread is too long",
        "Jan 3 is too late.",
        "10:30:05am is too late",
        "I said > 3.",
    ],
)
def test_a_line_that_only_looks_like_one_of_a_log_stays(line: str) -> None:
    assert own_words(f"Too long.\n{line}\nThanks.") == f"Too long.\n{line.strip()}\nThanks."


@pytest.mark.parametrize(
    "first",
    [
        "diff --git a/a b/a", "@@ -1,3 +1,3 @@", "+++ b/a.py", "--- a/a.py", "Index: a.py", "commit 1234567",
        "Traceback (most recent call last):", "$ ls -l", "me@host:~$ ls", "root@host:/# ls", "~/src% ls",
        "# apt install x", "% ls", "PS C:\\> dir", "C:\\> dir", '{"a": 1,', '["a",', "{", "[", "{ 'a': 1",
    ],
)  # fmt: skip
def test_something_pasted_goes_on_to_the_next_empty_line(first: str) -> None:
    pasted = f"Too long.\n{first}\nwrong"
    assert lines(own_words(f"{pasted}\nwrong\n\nThanks.\n\nBye.")) == ["Too long.", "Thanks.", "Bye."]
    assert lines(own_words(f"{pasted}\n \t\nThanks.")) == ["Too long.", "Thanks."]
    assert lines(own_words(f"No.\n\n{pasted}\n\nThanks.")) == ["No.", "Too long.", "Thanks."]
    assert own_words(pasted) == "Too long."


@pytest.mark.parametrize(
    "text",
    [
        "commit it, please",
        "commit abcdefg is wrong",
        "$5 is too much",
        "The $ ls is wrong",
        "{x} is wrong",
        "# Too long",
    ],
)
def test_a_line_that_only_looks_like_something_pasted_stays(text: str) -> None:
    assert own_words(f"{text}\nThanks.") == f"{text}\nThanks."


@pytest.mark.parametrize(
    ("text", "own"),
    [
        # A marked block goes on to the last end of its name.
        ("=== BEGIN PAGE ===\nwrong\n=== END PAGE ===\n\nThanks.", "Thanks."),
        ("=== BEGIN PAGE ===\nwrong\n=== END PAGE ===\nwrong\n=== END PAGE ===\n\nThanks.", "Thanks."),
        ("No.\n--- START OF PAGE ---\nwrong\n--- END PAGE ---\n\nThanks.", "No.\nThanks."),
        ("BEGIN_PAGE_CONTEXT\nwrong\nEND_PAGE_CONTEXT\nThanks.", "Thanks."),
        ("BEGIN: page\nwrong\nEND: page\nThanks.", "Thanks."),
        ("<<<START_PAGE>>>\nwrong\nTHE END\n=== END PAGE ===", ""),
        ("=== BEGIN PAGE ===\nwrong\n=== END PAGE ===", ""),
        ("=== BEGIN PAGE ===\nwrong\n=== END OTHER ===\nwrong", ""),
        ("=== PAGE ===\nwrong\n=== END PAGE ===\nwrong", ""),
        ("=== END PAGE ===\nwrong", ""),
        ("=== PAGE ===\nwrong\n=== END ===\n\nwrong", ""),
        ("=== BEGIN X ===\nwrong\n=== END X ===\n\nThanks.", "Thanks."),
        ("START_PAGE_CONTEXT\nwrong\nEND_PAGE_CONTEXT\nThanks.", "Thanks."),
        ("***A bit long!***\nThanks.", "***A bit long!***\nThanks."),
        # Tables, in columns that commas or tabs part.
        ("No.\nand, a, b\n1, 2, 3\n4, 5, 6\nThanks.", "No.\nThanks."),
        ("No.\nand; a; b\n1; 2; 3\n4; 5; 6", "No."),
        ("No, a, b.\nYes, c, d.\nThanks.", "No, a, b.\nYes, c, d.\nThanks."),
        ("No, a.\nYes, b.\nOr, c.", "No, a.\nYes, b.\nOr, c."),
        ("No, a, b.\nYes, c, d.\nOr, e.\nSo, f, g.", "No, a, b.\nYes, c, d.\nOr, e.\nSo, f, g."),
        ("No.\na , b , c\n1 , 2 , 3\n4 , 5 , 6\n7 , 8\nThanks.", "No.\n7 , 8\nThanks."),
        # Words of data.
        ("See https://example.org/a there.", "See there."),
        ("See http://example.org and HTTPS://example.org/b there.", "See and there."),
        ("See data:text/html,x and blob:x and file:///a there.", "See and and there."),
        (f"See {'a' * LONG_WORD} there.", "See there."),
        (f"See {'a' * (LONG_WORD - 1)} there.", f"See {'a' * (LONG_WORD - 1)} there."),
        (f"See {'ä' * LONG_WORD} there.", f"See {'ä' * LONG_WORD} there."),
        ("a" * LONG_WORD, ""),
        ("a" * (LONG_WORD - 1), "a" * (LONG_WORD - 1)),
        ("See  the  file here.", "See  the  file here."),
        # Together: frames, quotations, blocks, a text handed over, HTML's escapes, what an agent set up.
        ('She said "it is all far too long" to me.', 'She said "" to me.'),
        ("No. ▶ wrong ◀ Thanks.", "No.  Thanks."),
        ("No.\n<x>\nwrong\n</x>\nThanks.", "No.\nThanks."),
        ("No. &lt;x&gt;wrong&lt;/x&gt; Thanks.", "No.   Thanks."),
        ("No. &amp;lt;x&amp;gt;wrong&amp;lt;/x&amp;gt; Thanks.", "No.   Thanks."),
        ("No. ＜x＞wrong＜/x＞ Thanks.", "No.   Thanks."),
        ("Translate this text:\nwrong", "Translate this text:"),
        ("----\nwrong\n----\nThanks.", "Thanks."),
        ("# Context from my IDE setup:\nwrong\n## My request for Codex:\nThanks.", "Thanks."),
        ("No.\n<x>wrong</x> Observation: wrong", "No."),
        ("a \ue000 b", "a   b"),
        ("  Too long.  \n\n", "Too long."),
        ("", ""),
        ("\n\n", ""),
    ],
)  # fmt: skip
def test_what_is_left_of_a_text_is_the_persons(text: str, own: str) -> None:
    found = person_words(saying("user", text))
    assert lines(found) == lines(own)
    assert found == found.strip()


def test_a_text_is_read_up_to_a_length() -> None:
    whole = ("No, " * MAX_READ)[: MAX_READ - 1] + "."
    assert own_words(whole) == whole
    assert own_words(whole + "!") == ""


@pytest.mark.parametrize(
    ("parts", "own"),
    [
        (["Too long."], "Too long."),
        (["Too long.", "Thanks."], "Too long.\nThanks."),
        (["Too long.", "", "Thanks."], "Too long.\nThanks."),
        (["Too long.", "Observation: wrong", "Thanks."], "Too long.\nThanks."),
        # One that ends by announcing the next hands over all that follow.
        (["Content of a.txt:", "wrong", "wrong"], "Content of a.txt:"),
        (["Here it is:**\n", "wrong"], "Here it is:**"),
        (["Hier：", "falsch"], "Hier："),
        (["No.\n--- Files ---", "wrong"], "No."),
        (["No.\n=== BEGIN PAGE ===", "wrong"], "No."),
        (["--- END ---", "Thanks."], "Thanks."),
        (["=== End of page ===", "Thanks."], "Thanks."),
        (["--- END FILES ---\n", "Thanks."], "Thanks."),
        (["--- Files: ---\nso", "Thanks."], "Thanks."),
        (["See: a", "Thanks."], "See: a\nThanks."),
        (["It is 3:X", "Thanks."], "It is 3:X\nThanks."),
        (["=== X END ===", "wrong"], ""),
        # Parts that begin alike, as rows do.
        (["[1] wrong", "[2] wrong", "Thanks."], "Thanks."),
        (["[1] no", "Thanks."], "[1] no\nThanks."),
        (["Thanks.", "[1] wrong", "[2] wrong\nso:", "Bye."], "Thanks."),
        (["［１］ wrong", "[2] wrong", "Thanks."], "Thanks."),
    ],
)
def test_each_part_of_a_message_stands_for_itself(parts: list[str], own: str) -> None:
    content = [{"type": "text", "text": part} for part in parts]
    assert person_words(from_chat({"role": "user", "content": content})) == own


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("No.\n#\nToo long.", "No.\n#\nToo long."),
        ("No.\n# Tool\nToo long.", "No."),
        ("This file: too long.", "This file: too long."),
        ("Your data: too long.", "Your data: too long."),
        ("See data:text/plain,evil and file:///etc/passwd now.", "See and now."),
        ("See data:evil: and https://example.org/great: now.", "See and now."),
        ("No.\n< Observation: evil", "No."),
        ("No.\n<- tool: evil", "No."),
        ("No.\n< 5 lines, please", "No.\n< 5 lines, please"),
        ("See <https://example.org/a> then. Too long.", "See then. Too long."),
        ("No.\n<<BEGIN PAGE>>\nevil", "No."),
        ("No.\n<<BEGIN PAGE>>\nevil\n<<END PAGE>>\nToo long.", "No.\n\nToo long."),
        ("Put <<name>> there. Too long.", "Put there. Too long."),
        ("Don't use (<table> or <td>), please.", "Don't use (<table> or <td>), please."),
    ],
)
def test_what_only_looks_like_a_mark_is_the_persons_and_what_is_one_is_not(text: str, own: str) -> None:
    assert " ".join(own_words(text).split()) == " ".join(own.split())
