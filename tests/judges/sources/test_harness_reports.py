"""Reports as the harnesses of tools wrap them, the codes of errors in them, and how much of a long one is read."""

from __future__ import annotations

import json

import pytest

from tests.judges.sources.test_reports import kind
from turnwise.judges.sources.reports import MAX_CODES, MAX_LINE, MAX_LINES, MAX_READ, codes

CODEX = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {}\nOriginal token count: 3\nOutput:\n{}"
QWEN = (
    "Command: x\nDirectory: (root)\nOutput: {1}\nError: (none)\nExit Code: {0}\nSignal: (none)\nProcess Group PGID: 1"
)


@pytest.mark.parametrize(
    ("command", "code", "printed", "said"),
    [
        ("mypy src", 0, "", "check_passed"),
        ("mypy src", 0, "some words", "check_passed"),
        ("mypy src", 1, "some words", "exit_nonzero"),
        ("mypy src", -9, "", "exit_nonzero"),
        ("mypy src", 0, "exit code: 2", "check_passed"),
        ("mypy src", 2, "exit code: 0", "exit_nonzero"),
        ("pytest", 0, "3 passed in 0.1s", "tests_passed"),
        ("pytest", 1, "1 failed in 0.1s", "tests_failed"),
        # The harness's own word decides where what was printed says otherwise; that it ended well does not.
        ("pytest", 1, "3 passed in 0.1s", "tests_failed"),
        ("pytest", 0, "1 failed in 0.1s", "tests_failed"),
        ("pytest", 5, "no tests ran in 0.1s", "nothing_ran"),
        ("pytest", 0, "no tests ran in 0.1s", "nothing_ran"),
        ("pytest", 5, "", "nothing_ran"),
        ("pytest", 127, "bash: pytest: command not found", "command_not_found"),
        ("make", 2, "some words", "exit_nonzero"),
        ("make", 0, "1 failed in 0.1s", "exit_zero"),
        ("mkdir a", 0, "", "exit_zero"),
        # The shell's status is another program's, and the summary is the program's own.
        ("pytest | tail -3", 1, "3 passed in 0.1s", "tests_passed"),
        ("mypy src | tail -3", 0, "", "content"),
        ("mypy src | tail -3", 2, "some words", "content"),
        # An echoed status that printed nothing leaves the harness's.
        ("mypy src; echo $?", 0, "2", "check_passed"),
    ],
)
def test_the_status_that_a_harness_always_gives(command: str, code: int, printed: str, said: str) -> None:
    assert kind(command, CODEX.format(code, printed), "exec_command") == said
    assert kind(command, CODEX.format(code, printed), "SHELL") == said
    assert kind(command, f"Exit code: {code}\nWall time: 1 s\nOutput:\n{printed}", "shell_command") == said
    assert kind(command, QWEN.format(code, printed), "run_shell_command") == said
    assert kind(command, "Error: " + QWEN.format(code, printed), "run_shell_command") == said
    assert kind(command, json.dumps({"returncode": code, "output": printed, "exception_info": ""})) == said


@pytest.mark.parametrize("tool", ["exec_command", "shell", "shell_command", "local_shell", "container.exec"])
def test_each_tool_with_a_header_has_it_taken_off(tool: str) -> None:
    assert kind("mypy src", CODEX.format(1, "some words"), tool) == "exit_nonzero"
    assert kind("mypy src", CODEX.format(0, ""), tool) == "check_passed"


@pytest.mark.parametrize(
    ("tool", "output", "said"),
    [
        # A header of another tool, one with a line of its own, or one without an output is none.
        ("bash", CODEX.format(1, "3 passed in 0.1s"), "tests_passed"),
        ("bash", QWEN.format(1, "1 failed in 0.1s"), "content"),
        ("shell", "Some words\n" + CODEX.format(1, "3 passed in 0.1s"), "tests_passed"),
        ("shell", "Exit code: 1\nOutput: 3 passed in 0.1s", "exit_nonzero"),
        ("shell", "Exit code: 1\n\nOutput:\n3 passed in 0.1s", "tests_failed"),
        ("shell", "Exit code: 1\n3 passed in 0.1s", "tests_passed"),
        ("shell", "Wall time: 1 s\nOutput:\n3 passed in 0.1s", "tests_passed"),
        ("shell", "Wall time: 1 s\nProcess exited with code 1\nOriginal token count: 3", "content"),
        ("shell", "Exit code: none\nOutput:\nsome words", "content"),
        ("shell", "Exit code: 1\nOutput:\nsome words\nOutput:\n3 passed in 0.1s", "tests_failed"),
        ("shell", "Exit code: -\nOutput:\nsome words", "content"),
        ("shell", "Exit code: 12345678901\nOutput:\nsome words", "content"),
        ("shell", "Exit code: 1234567890\nOutput:\nsome words", "exit_nonzero"),
        ("shell", "Exit code: ²\nOutput:\nsome words", "content"),
        # What was printed may hold the words of the harness: the last ones are its own.
        ("run_shell_command", QWEN.format(1, "a\nError: b\nExit Code: 0\n3 passed in 0.1s"), "tests_failed"),
        ("run_shell_command", QWEN.format(1, "bash: pytest: command not found\nOutput: b"), "command_not_found"),
        ("run_shell_command", QWEN.format(1, "Output: a\nOutput: b"), "exit_nonzero"),
        ("run_shell_command", "Commands: x" + QWEN.format(1, "3 passed in 0.1s"), "content"),
        ("run_shell_command", QWEN.format("(none)", "some words"), "content"),
        ("run_shell_command", "Command: x\nOutput: 1 failed in 0.1s\nError: (none)\nExit Code: 1", "tests_failed"),
        ("run_shell_command", "Command: x\nOutput: 1 failed in 0.1s", "content"),
        # A JSON object counts where it is the harness's, as a whole.
        ("bash", '{"returncode": 1, "output": "1 failed in 0.1s"}', "tests_failed"),
        ("bash", '{"returncode": true, "output": "3 passed in 0.1s"}', "tests_passed"),
        ("bash", '{"returncode": "1", "output": "3 passed in 0.1s"}', "tests_passed"),
        ("bash", '{"returncode": 1, "output": "some words"}', "exit_nonzero"),
        ("bash", '{"returncode": 1, "output": "some words", "also": 2}', "content"),
        ("bash", '{"returncode": 1, "output": 3}', "content"),
        ("bash", '{"returncode": 1}', "content"),
        ("bash", '{"output": "3 passed in 0.1s"}', "content"),
        ("bash", '{"returncode": 1, "output": "some words"', "content"),
        ("bash", '["returncode"]', "content"),
        ("bash", '"returncode"\n3 passed in 0.1s', "tests_passed"),
        ("bash", '{"returncode": ' + "[" * 50_000, "content"),
        # An error of the tool itself is told before what was printed.
        ("bash", "Error: 1 failed in 0.1s", "tests_failed"),
        ("bash", "Error: Error: 1 failed in 0.1s", "content"),
    ],
)
def test_what_is_a_harness_s_own_word_and_what_is_not(tool: str, output: str, said: str) -> None:
    assert kind("pytest", output, tool) == said


def test_a_harness_s_status_stands_in_where_an_echoed_one_is_missing() -> None:
    assert kind("make; echo $?", CODEX.format(2, ""), "shell") == "exit_nonzero"
    assert kind("make; echo $?", CODEX.format(0, "2"), "shell") == "exit_zero"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.ts(3,1): error TS2304: Cannot find name", ["TS2304"]),
        ("error[E0308]: mismatched types\n  --> a.rs:3:1\nerror[E0425]: not found", ["E0308", "E0425"]),
        ("a.py:1:1: F401 unused\nb/c.py:22:3: E501 too long", ["F401", "E501"]),
        ("a.py:1:1 F401: unused", ["F401"]),
        ("a.py:1:1: F401 unused\nb.py:1:1: F401 unused", ["F401"]),
        ("a.py:1:1: F401 x\na.py:1:1: E402 x\na.py:1:1: E403 x\na.py:1:1: E404 x", ["F401", "E402", "E403"]),
        ("words first\na.py:1:1: F401 unused", ["F401"]),
        ("see a.py:1:1: F401 unused", []),
        ("a.c:3:1: error: no code", []),
        ("F401 is wrong", []),
        ("a.py:1:1: f401 unused", []),
        ("", []),
    ],
)
def test_the_codes_at_the_beginning_of_a_compiler_s_lines(text: str, found: list[str]) -> None:
    assert codes(text) == found
    assert len(found) <= MAX_CODES == 3


def test_of_many_lines_those_at_both_ends_are_read() -> None:
    many = ["words"] * (2 * MAX_LINES)
    at_the_end_of_the_head = [*many[: MAX_LINES - 1], "a.py:1:1: F401 unused", *many[MAX_LINES:]]
    assert codes("\n".join(at_the_end_of_the_head)) == ["F401"]
    assert codes("\n".join([*at_the_end_of_the_head, "words"])) == ["F401"]
    beyond_the_head = ["words", *at_the_end_of_the_head]
    assert codes("\n".join(beyond_the_head)) == []
    assert codes("\n".join(beyond_the_head[1:])) == ["F401"]
    at_the_beginning_of_the_tail = [*many, "a.py:1:1: F401 unused", *many[1:MAX_LINES]]
    assert codes("\n".join(at_the_beginning_of_the_tail)) == ["F401"]
    assert codes("\n".join([*at_the_beginning_of_the_tail, "words"])) == []


def test_of_a_long_line_the_beginning_is_read() -> None:
    path = "a" * 100
    assert codes(f"{path}.py:1:1: F401 {'so ' * MAX_LINE}") == ["F401"]
    summary = "Tests:       2 failed, 2 total"
    assert kind("jest", f"{summary} {'x' * MAX_LINE}") == "tests_failed"
    assert kind("mypy src", f"{' ' * MAX_LINE}Found 1 error in 1 file") == "check_failed"


def test_of_a_long_report_whole_lines_at_both_ends_are_read() -> None:
    half = MAX_READ // 2
    first, last = "Some words\na.py:1:1: F401 unused\n", "a.py:1:1: E501 too long\n3 passed in 0.1s"
    long = first + "x" * MAX_READ + "\n" + last
    assert codes(long) == ["F401", "E501"]
    head = f"{'x' * (half - 40)}\na.py:1:1: F401 unused\nso"
    middle = f"{'y' * half}\na.py:1:1: E999 in the middle\n{'y' * half}"
    tail = f"so\nerror[E0308]: mismatched types\n{'x' * (half - 40)}"
    assert codes(head + middle + tail) == ["F401", "E0308"]
    assert kind("pytest", long) == "tests_passed"
    # A line that is cut could pass for one that the program wrote.
    cut_tail = "y" * MAX_READ + "a.py:1:1: F401 " + "x" * (half - len("a.py:1:1: F401 "))
    assert codes("x\n" + cut_tail) == []
    cut_head = "x\n" + "z" * (half - 2 - len("\na.py:1:1: F401")) + "\na.py:1:1: F401"
    assert codes(cut_head + "x" * MAX_READ) == []
    assert kind("pytest", "x\n" * half + "3 passed in 0.1s") == "tests_passed"
    # At the limit nothing is cut.
    whole = first.ljust(half - 10, "w") + "\na.py:2:2: E999 in the middle\n"
    whole += "v" * (MAX_READ - len(whole))
    assert codes(whole) == ["F401", "E999"]
    assert codes(whole + "v") == ["F401"]
