"""What diagnostic commands report about themselves: the summary in their last lines, and the exit status."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.commands import Diagnostic, read_command
from turnwise.judges.sources.reports import LAST_LINES, outcome


def run(command: str) -> Diagnostic:
    read = read_command(command)
    assert read is not None
    return read


def kind(command: str, output: str, tool: str = "bash") -> str:
    return outcome(tool, run(command), output).removeprefix("tool.")


SUMMARIES = [
    ("pytest", "tests_failed", [
        "1 failed in 0.1s", "==== 1 failed, 11 passed in 0.30s ====", "2 passed, 1 error in 0.3s", "2 errors in 1.1s",
        "3 skipped, 1 failed, 2 passed, 1 warning in 61.02s (0:01:01)",
    ]),
    ("pytest", "tests_passed", [
        "12 passed in 0.3s", "==== 12 passed, 1 warning in 0.30s ====", "2 skipped, 3 passed in 0.3s",
        "3 passed, 1 xfailed, 2 xpassed, 1 deselected, 4 warnings in 61.02s (0:01:01)",
    ]),
    ("pytest", "nothing_ran", [
        "no tests ran in 0.01s", "==== no tests ran in 0.01s ====", "3 skipped in 0.1s", "2 deselected in 0.1s",
        "1 skipped, 2 deselected in 0.1s", "collected 0 items",
    ]),
    ("python -m unittest", "tests_failed", [
        "FAILED (failures=1)", "FAILED (failures=1, errors=2, skipped=3)", "FAILED (expected failures=1, errors=1)",
    ]),
    ("python -m unittest", "tests_passed", ["OK", "OK (skipped=1, unexpected=0)"]),
    ("python -m unittest", "nothing_ran", ["Ran 0 tests in 0.000s", "NO TESTS RAN", "OK (skipped=3)"]),
    ("rspec", "tests_failed", ["3 examples, 1 failure", "12 examples, 2 failures, 1 pending"]),
    ("rspec", "tests_passed", ["1 example, 0 failures", "12 examples, 0 failures, 1 pending"]),
    ("phpunit", "tests_failed", ["Tests: 3, Assertions: 4, Failures: 1.", "Tests: 3, Assertions: 4, Errors: 2."]),
    ("phpunit", "tests_passed", ["OK (3 tests, 4 assertions)", "OK (1 test, 1 assertion)"]),
    ("cargo test", "tests_failed", [
        "test result: FAILED. 3 passed; 1 failed; 0 ignored", "error: test failed, to rerun pass `--lib`",
    ]),
    ("cargo test", "tests_passed", ["test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured"]),
    ("cargo test", "nothing_ran", ["test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured"]),
    ("go test ./...", "tests_failed", ["FAIL", "FAIL\texample.org/a\t0.003s"]),
    ("go test ./...", "tests_passed", [
        "PASS", "ok  \texample.org/a\t0.003s", "ok  \ta\t(cached)", "ok  \ta\t0.1s\tcoverage: 80.0% of statements",
    ]),
    ("go test ./...", "nothing_ran", ["?   \texample.org/a\t[no test files]"]),
    ("ctest", "tests_failed", ["Errors while running CTest"]),
    ("ctest", "tests_passed", ["100% tests passed, 0 tests failed out of 3"]),
    ("jest", "nothing_ran", ["No tests found, exiting with code 1"]),
    ("jest", "tests_failed", ["Tests:       2 failed, 40 passed, 42 total", "Tests:       2 failed, 2 total"]),
    ("jest", "tests_failed", ["Tests:       1 skipped, 2 failed, 3 total"]),
    ("jest", "tests_passed", ["Tests:       9 passed, 9 total", "Tests:       1 skipped, 9 passed, 10 total"]),
    ("vitest run", "tests_failed", ["Tests  1 failed | 2 passed (3)"]),
    ("vitest run", "tests_passed", ["Tests  3 passed (3)", "Test Files  3 passed (3)"]),
    ("mocha", "tests_failed", ["2 failing"]),
    ("mocha", "tests_passed", ["3 passing (12ms)"]),
    ("mvn test", "tests_failed", [
        "[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0", "Tests run: 3, Failures: 0, Errors: 1, Skipped: 0",
        "[INFO] BUILD FAILURE", "[ERROR] BUILD FAILURE",
    ]),
    ("mvn test", "tests_passed", ["[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1", "[INFO] BUILD SUCCESS"]),
    ("gradle test", "tests_failed", ["BUILD FAILED in 3s"]),
    ("gradle test", "tests_passed", ["BUILD SUCCESSFUL in 3s"]),
    ("node --test", "tests_failed", ["# fail 1"]),
    ("node --test", "tests_passed", ["# fail 0"]),
    ("dotnet test", "tests_failed", ["Failed!  - Failed:     1, Passed:     2, Skipped:     0, Total:     3"]),
    ("dotnet test", "tests_passed", ["Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3"]),
    ("mypy src", "check_failed", ["Found 1 error in 1 file (checked 3 source files)", "Found 12 errors in 2 files"]),
    ("mypy src", "check_passed", ["Success: no issues found in 1 source file"]),
    ("ruff check", "check_failed", ["Found 3 errors.", "Found 1 error, 1 fixed"]),
    ("ruff check", "check_passed", ["All checks passed!"]),
    ("pyright", "check_failed", ["1 error, 0 warnings, 0 informations ", "12 errors, 1 warning, 3 informations"]),
    ("pyright", "check_passed", ["0 errors, 0 warnings, 0 informations ", "0 errors, 1 warning, 0 notes"]),
    ("tsc", "check_passed", ["Found 0 errors. Watching for file changes."]),
    ("eslint .", "check_failed", ["✖ 3 problems (1 error, 2 warnings)"]),
    ("eslint .", "check_passed", ["✖ 2 problems (0 errors, 2 warnings)"]),
    ("cargo build", "check_failed", ["error: could not compile `a` (lib) due to 1 previous error"]),
    ("cargo build", "check_passed", ["Finished dev [unoptimized + debuginfo] target(s) in 0.3s", "Finished `dev` x"]),
    ("rustc a.rs", "check_failed", ["error: aborting due to 1 previous error"]),
    ("clang a.c", "check_failed", ["1 error generated.", "2 errors generated.", "1 error"]),
    ("ninja", "check_failed", ["ninja: build stopped: subcommand failed."]),
    ("black --check .", "check_failed", ["Oh no! 💥 💔 💥", "2 files would be reformatted, 1 file unchanged"]),
    ("black --check .", "check_passed", ["All done! ✨ 🍰 ✨"]),
    ("black --check .", "check_passed", ["3 files would be left unchanged.", "1 file left unchanged."]),
    ("dotnet build", "check_passed", ["Build succeeded."]),
    ("nginx -t", "check_failed", ["nginx: configuration file /etc/nginx/nginx.conf test failed"]),
    ("nginx -t", "check_passed", ["nginx: configuration file /etc/nginx/nginx.conf test is successful"]),
    # A compiler's own line about a place, where no summary ends its report.
    ("gcc a.c", "check_failed", [
        "a.c:3:1: error: expected declaration", "a.c:3:1: fatal error: b.h: No such file", "src/a.y:3: error: no",
        "a.ts(3,1): error TS2304: Cannot find name", "error[E0308]: mismatched types", "a.py:1:1: F401 unused",
        "a.py:1:1: E501: too long",
    ]),
    ("mypy src", "content", ["a.c:3:1: warning: unused", "a.c: error: x", "see a.c:3:1: error: x", "a.py:1:1: note"]),
    # Words of what was run, and no report.
    ("pytest", "content", [
        "", "0 failed, 3 passed", "all 3 passed", "I think: 3 passed in 0.1s", "0 passed in 0.1s",
        "3 passed in 0.1s" + 21 * "x", "a.c:3:1: error: expected declaration",
    ]),
    ("mypy src", "content", ["Tests:       9 passed, 9 total", "2 failing", "checked it"]),
]  # fmt: skip


@pytest.mark.parametrize(("command", "said", "line"), [(c, said, line) for c, said, many in SUMMARIES for line in many])
def test_the_last_line_of_a_report_says_how_it_went(command: str, said: str, line: str) -> None:
    assert kind(command, f"something that it printed\n\n  {line}\n\n") == said


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        # What stands above the last line was printed by somebody.
        ("pytest", "1 failed in 0.1s\nThat is all.", "content"),
        ("pytest", "1 failed in 0.1s\n2 passed in 0.1s", "tests_passed"),
        ("mypy src", "Success: no issues found in 1 source file\nThat is all.", "content"),
        ("mypy src", "Success: no issues found in 1 source file\na.py:1: error: no", "check_failed"),
        ("gcc a.c", "a.c:3:1: error: no\n   3 | x\n     | ^", "check_failed"),
        ("pytest", "a.c:3:1: error: no\n   3 | x", "content"),
        # A block of several lines: one that counts a failure is enough, and the block ends where other words stand.
        ("jest", "Test Suites: 1 failed, 6 passed, 7 total\nTests:       40 passed, 40 total", "tests_failed"),
        ("jest", "Test Suites: 6 passed, 6 total\nTests:       1 failed, 40 passed, 41 total", "tests_failed"),
        ("jest", "Test Suites: 6 passed, 6 total\nTests:       40 passed, 40 total\nSnapshots:   0 total\n"
         "Time:        1 s\nRan all test suites.", "tests_passed"),
        ("vitest run", "Test Files  3 passed (3)\nTests  9 passed (9)\nStart at  10:00\nDuration  1s", "tests_passed"),
        ("vitest run", "Tests  1 failed | 8 passed (9)\nStart at  10:00:00\nDuration  1s", "tests_failed"),
        ("mocha", "3 passing (12ms)\n2 failing", "tests_failed"),
        ("mocha", "2 failing\n3 passing (12ms)", "tests_failed"),
        ("mocha", "2 failing\nsomething\n3 passing (12ms)", "tests_passed"),
        ("mocha", "1 failing\n3 passing (12ms)\nsomething", "content"),
        ("node --test", "# tests 3\n# suites 0\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n"
         "# duration_ms 12.5", "tests_failed"),
        ("node --test", "# tests 3\n# pass 3\n# fail 0\n# duration_ms 12.5", "tests_passed"),
        ("jest", "Test Suites: 1 of 3 total\nTests:       9 passed, 9 total", "tests_passed"),
        # A block says each thing once: what stands above was printed before.
        ("jest", "Tests:       2 failed, 2 total\nTests:       9 passed, 9 total\nTime: 1 s", "tests_passed"),
        ("jest", "Test Suites: 1 failed, 1 passed, 2 total\nTests:       2 failed, 2 total\n"
         "Tests:       9 passed, 9 total\nTime: 1 s", "tests_passed"),
        ("jest", "Tests:       9 passed, 9 total\nTests:       2 failed, 2 total\nTime: 1 s", "tests_failed"),
        ("jest", "Tests:       2 failed, 2 total\n" + "Time: 1 s\n" * (LAST_LINES - 1), "tests_failed"),
        ("jest", "Tests:       2 failed, 2 total\n" + "Time: 1 s\n" * LAST_LINES, "content"),
        ("mypy src", "Tests:       2 failed, 2 total\nTime: 1 s", "content"),
        # What changes something, and a recipe, are believed in no word.
        ("mkdir a", "1 failed in 0.1s", "content"),
        ("git push", "OK", "content"),
        ("make", "1 failed in 0.1s", "content"),
        ("make test", "exit code: 2", "content"),
        ("make && pytest", "1 failed in 0.1s", "content"),
        ("mkdir a && pytest", "1 failed in 0.1s", "tests_failed"),
        ("pytest --help", "1 failed in 0.1s", "content"),
        # Colours and characters that show nothing are no part of the line.
        ("pytest", "\x1b[31m1 failed in 0.1s\x1b[0m", "content"),
        ("pytest", "1 fa\u200biled in 0.1s\r\n", "tests_failed"),
    ],
)  # fmt: skip
def test_what_counts_of_a_report_of_several_lines(command: str, output: str, said: str) -> None:
    assert kind(command, output) == said


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        # The status stands in the first or the last line, in any of the forms that harnesses have.
        ("mypy src", "exit code: 0", "check_passed"),
        ("mypy src", "exit code: 2", "exit_nonzero"),
        ("mypy src", "Exit code 1", "exit_nonzero"),
        ("mypy src", "Exit status: 0", "check_passed"),
        ("mypy src", "code: 1", "exit_nonzero"),
        ("mypy src", "[exit code: 0]", "check_passed"),
        ("mypy src", "(exit code -9)", "exit_nonzero"),
        ("mypy src", "[The command completed with exit code 0.]", "check_passed"),
        ("mypy src", "The command exited with status 3.", "exit_nonzero"),
        ("mypy src", "Process finished with exit code 0", "check_passed"),
        ("mypy src", "Program failed with code 1", "exit_nonzero"),
        ("mypy src", "exit code: 2\nsome words\nmore words", "exit_nonzero"),
        ("mypy src", "some words\nmore words\nexit code: 2", "exit_nonzero"),
        ("mypy src", "exit code: 2\nsome words\nexit code: 2", "exit_nonzero"),
        ("mypy src", "some words\nexit code: 2\nmore words", "content"),
        # Two that do not agree say nothing.
        ("mypy src", "exit code: 0\nsome words\nexit code: 2", "content"),
        ("mypy src", "exit code: 2\nexit code: 0", "content"),
        ("mypy src", "exit code: 1000", "content"),
        ("mypy src", "exit code: two", "content"),
        ("mypy src", "7", "content"),
        # Beside a summary the summary speaks, wherever the status stands.
        ("pytest", "exit code: 0\n..\n1 failed in 0.1s", "tests_failed"),
        ("pytest", "..\n1 failed in 0.1s\nexit code: 0", "tests_failed"),
        ("pytest", "..\n3 passed in 0.1s\nexit code: 0", "tests_passed"),
        ("pytest", "exit code: 0\n..\n3 passed in 0.1s", "tests_passed"),
        ("pytest", "exit code: 0\n3 passed in 0.1s\nexit code: 0", "tests_passed"),
        ("pytest", "exit code: 1\n3 passed in 0.1s\nexit code: 0", "tests_passed"),
        # What a status says of each kind.
        ("pytest", "exit code: 0", "exit_zero"),
        ("pytest", "exit code: 1", "exit_nonzero"),
        ("pytest", "exit code: 5", "nothing_ran"),
        ("jest", "exit code: 5", "exit_nonzero"),
        ("mkdir a", "exit code: 0", "exit_zero"),
        ("mkdir a", "mkdir: no\nexit code: 1", "exit_nonzero"),
        ("mkdir a && mypy src", "exit code: 0", "check_passed"),
        ("mypy --help", "exit code: 0", "exit_zero"),
        # The shell's status is another program's.
        ("mypy src | tail -3", "exit code: 0", "content"),
        ("mypy src || true", "exit code: 0", "content"),
        ("pytest; true", "exit code: 1", "content"),
        ("pytest | tail -3", "1 failed in 0.1s\nexit code: 0", "tests_failed"),
        # A recipe prints what it likes; what the shell prints behind it counts.
        ("make; echo $?", "exit code: 0\n0", "exit_zero"),
        ("make; echo $?", "all sorts\n2", "exit_nonzero"),
        ("make && mypy src; echo $?", "all sorts\n0", "exit_zero"),
        ("mypy src; echo $?", "0", "check_passed"),
        ("mypy src; echo $?", "2", "exit_nonzero"),
        ("mypy src; echo exit code: $?", "exit code: 2", "exit_nonzero"),
        ("mypy src; echo STATUS=$?", "a\nSTATUS=2", "exit_nonzero"),
        ("mypy src; echo $?", "2\nsome words", "content"),
        ("mypy src; echo $?", "some words 2", "content"),
        ("mypy src; echo $?", "1000", "content"),
        ("pytest; echo $?", "1 failed in 0.1s\n1", "tests_failed"),
        ("pytest; echo $?", "3 passed in 0.1s\n0", "tests_passed"),
        ("pytest; echo $?", "..\n1 failed in 0.1s\n1", "tests_failed"),
        ("mypy src; pytest; echo $?", "..\n1", "content"),
        ("mypy src; echo $?", "", "content"),
        ("mypy src", "", "content"),
        # The shell does not find a program of this very command.
        ("pytest", "bash: pytest: command not found", "command_not_found"),
        ("pytest", "bash: line 1: pytest: command not found", "command_not_found"),
        ("pytest", "/bin/sh: 1: pytest: not found", "command_not_found"),
        ("pytest", "zsh: command not found: pytest", "command_not_found"),
        (".venv/bin/pytest", "bash: .venv/bin/pytest: not found", "command_not_found"),
        ("pytest", "dash: -c: line 3: pytest: not found\nexit code: 127", "command_not_found"),
        ("pytest", "bash: pytest: command not found\nmore", "command_not_found"),
        ("pytest", "exit code: 127\nbash: pytest: command not found\nmore", "command_not_found"),
        ("pytest", "exit code: 0\nbash: pytest: command not found\nmore\nexit code: 127", "command_not_found"),
        ("pytest", "bash: pytest: command not found\nmore\nand more", "content"),
        ("pytest", "more\nbash: pytest: command not found", "content"),
        ("pytest", "bash: python: command not found", "content"),
        ("pytest", "bash: pytest: is wrong", "content"),
        ("pytest; echo $?", "bash: pytest: command not found\n127", "command_not_found"),
    ],
)  # fmt: skip
def test_what_the_status_beside_a_report_says(command: str, output: str, said: str) -> None:
    assert kind(command, output) == said


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        # one file fails to load: all tests that ran passed
        ("vitest run", "Test Files  1 failed | 2 passed (3)\nTests  5 passed (5)\nDuration  1s", "tests_failed"),
        ("vitest run", "Test Files  3 passed (3)\nTests  5 passed (5)\nDuration  1s", "tests_passed"),
        # a test prints what looks like a runner's count
        ("jest", "Tests: 1 failed\nTest Suites: 1 passed, 1 total\nTests:       5 passed, 5 total", "tests_passed"),
        ("jest", "Tests:       5 passed, 5 total\nTests:       1 failed, 5 total", "tests_failed"),
        ("node --test", "# fail 1\n# tests 5\n# pass 5\n# fail 0\n# cancelled 0", "tests_passed"),
        ("mocha", "5 passing (20ms)\n1 failing", "tests_failed"),
        # of tests and checks the one is told that wrote the last line
        ("pytest && mypy src", "5 passed in 0.3s\nFound 1 error in 1 file (checked 3 source files)", "check_failed"),
        ("pytest && mypy src", "5 passed in 0.3s\nSuccess: no issues found in 3 source files", "check_passed"),
        ("pytest && mypy src", "1 failed, 4 passed in 0.3s", "tests_failed"),
        ("pytest && pyright", "5 passed in 0.3s\n1 error, 0 warnings, 0 informations", "check_failed"),
        ("pytest && pyright", "1 error in 0.3s", "tests_failed"),
        ("mypy src && pytest", "Success: no issues found in 3 source files\n5 passed in 0.3s", "tests_passed"),
        ("mypy src && pytest", "src/a.py:3: error: Name is not defined", "check_failed"),
    ],
)
def test_whose_count_it_is(command: str, output: str, said: str) -> None:
    assert kind(command, output) == said
