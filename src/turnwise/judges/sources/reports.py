"""What diagnostic commands report about themselves: the runner's own summary in its last lines, and the exit status.

Called only for commands that are on the list (``commands.py``). What tests print, source that is quoted and messages
are never read; a summary counts where the program puts it, in the form it always has. Pure functions.
"""

from __future__ import annotations

import json

from turnwise.judges.sources.commands import CHECK, EFFECT, RECIPE, TEST, Diagnostic
from turnwise.judges.sources.visible import visible
from turnwise.patterns import IGNORECASE, Anchored, anchored

LAST_LINES = 8
"""Lines at the end among which a summary of several lines stands."""
MAX_LINE = 400
MAX_LINES = 400
MAX_CODES = 3
MAX_READ = 200_000
"""Characters of a report that are read: half at each end."""

# The very last line of a report, whole. Each has one group for what failed, where it says how many.
_FAILED = tuple(
    anchored(form)
    for form in (
        r"=* ?(?:\d+ \w+, )*[1-9]\d* (?:failed|errors?)(?:, \d+ [a-z]+)* in [\d.]+s.{0,20}",
        r"FAILED \((?:(?:failures|errors|skipped|expected failures)=\d+(?:, )?)+\)",
        r"[1-9]\d* examples?, [1-9]\d* failures?.{0,40}",
        r"Tests: \d+, Assertions: \d+, (?:Errors|Failures): [1-9]\d*.{0,80}",
        r"test result: FAILED\. .{0,160}",
        r"error: test failed, to rerun pass .{0,80}",
        r"FAIL(?:\s{1,4}\S{1,120})?(?:\s{1,4}[\d.]+s)?",
        r"Errors while running CTest.{0,80}",
        r"Found [1-9]\d* errors?(?: in \d+ files?.{0,60}|\.|,.{0,40})?",
        r"[1-9]\d* errors?, \d+ warnings?, \d+ \w+\s?",
        r"✖ \d+ problems? \([1-9]\d* errors?, \d+ warnings?\)",
        r"error: could not compile .{0,120}",
        r"error: aborting due to .{0,80}",
        r"[1-9]\d* errors?(?: generated\.)?",
        r"ninja: build stopped: .{0,80}",
        r"Oh no! .{0,80}|\d+ files? would be reformatted.{0,60}",
        r"BUILD FAILED.{0,40}|\[INFO\] BUILD FAILURE|\[ERROR\] BUILD FAILURE",
        r"Failed! .{0,160}",
        r"nginx: configuration file \S{1,120} test failed",
    )
)
_PASSED = tuple(
    anchored(form)
    for form in (
        r"=* ?(?:\d+ (?:skipped|deselected|xfailed|xpassed|warnings?), )*[1-9]\d* passed(?:, \d+ (?:skipped|deselected"
        r"|xfailed|xpassed|warnings?))* in [\d.]+s.{0,20}",
        r"OK(?: \((?:\w+=\d+(?:, )?)+\))?|OK \(\d+ tests?, \d+ assertions?\)",
        r"[1-9]\d* examples?, 0 failures.{0,40}",
        r"test result: ok\. [1-9]\d* passed; 0 failed; .{0,120}",
        r"(?:PASS|ok)(?:\s{1,4}\S{1,120})?(?:\s{1,4}(?:[\d.]+s|\(cached\)))?(?:\s{1,4}coverage: .{0,60})?",
        r"100% tests passed, 0 tests failed out of [1-9]\d*",
        r"Success: no issues found in \d+ source files?",
        r"0 errors, \d+ warnings?, \d+ \w+\s?|All checks passed!|Found 0 errors.{0,40}",
        r"All done! .{0,40}|\d+ files? (?:would be left unchanged|left unchanged|already formatted)\.?",
        r"✖ \d+ problems? \(0 errors, \d+ warnings?\)",
        r"BUILD SUCCESS(?:FUL)?.{0,40}|\[INFO\] BUILD SUCCESS|Build succeeded\.",
        r"Passed! .{0,160}",
        r"Finished `?\w{1,20}`? .{0,120}",
        r"nginx: configuration file \S{1,120} test is successful",
    )
)
_NOTHING = tuple(
    anchored(form)
    for form in (
        r"=* ?no tests ran in [\d.]+s.{0,20}|=* ?(?:\d+ (?:skipped|deselected), )*\d+ (?:skipped|deselected) in"
        r" [\d.]+s.{0,20}|Ran 0 tests in .{0,20}|collected 0 items",
        r"test result: ok\. 0 passed; .{0,120}|\?\s+\S{1,120}\s+\[no test files\]|No tests found.{0,60}",
        r"NO TESTS RAN.{0,20}|OK \(skipped=\d+\)",
    )
)
# Jest, Vitest, Mocha, surefire: a block of several lines of which one counts the failures.
_COUNTS = anchored(
    r"(?:Tests:? +|Test Files +|Test Suites: +)(?:(?P<f>\d+) failed ?[,|] ?)?.{0,20}?(?P<p>\d+) passed.{0,80}"
    r"|(?P<mf>[1-9]\d*) failing|(?P<mp>[1-9]\d*) passing \(.{0,20}\)"
    r"|(?:\[\w+\] )?Tests run: \d+, Failures: (?P<sf>\d+), Errors: (?P<se>\d+), Skipped: \d+.{0,80}"
    r"|# fail (?P<nf>\d+)"
)
_BESIDE_COUNTS = anchored(
    r"(?:Snapshots|Time|Start at|Duration|Ran all test suites|Test Suites)\b"
    r"|# (?:tests|suites|pass|cancelled|skipped|todo|duration_ms) [\d.]+"
)
_ONLY_FAILED = anchored(r"Tests:? +(?:\d+ skipped, )?[1-9]\d* failed.{0,80}")
_OF_CHECKS = anchored(
    r"Found \d|✖ |error: (?:could not compile|aborting) |\d+ errors?(?:$| generated|, \d+ warnings?, \d+ \w+\s?$)"
    r"|ninja: |Oh no! |nginx: |Success: |All checks |All done! |\d+ files? (?:would|left|already) "
)
"""How the last line of a checker begins, which no runner of tests writes."""
# A compiler's or linter's line about a place: nothing but the place and its own word for it is read.
_AT_PLACE = anchored(
    r"(?:[\w./+-]{1,200}:\d{1,6}:\d{1,6}: (?:fatal )?error: |[\w./+-]{1,200}:\d{1,6}: error: "
    r"|[\w./+-]{1,200}\(\d{1,6},\d{1,6}\): error (?P<ts>TS\d{3,5}): |error\[(?P<rust>E\d{4})\]: "
    r"|[\w./+-]{1,200}:\d{1,6}:\d{1,6}:? (?P<lint>[A-Z]{1,4}\d{3,4}):? )"
)
_STATUS = anchored(
    r"[\[(]?(?:(?:the )?(?:command|process|program) )?(?:completed|finished|exited|exit|failed)?(?: with)?"
    r" ?(?:exit )?(?:code|status)[:=]? (-?\d{1,3})[\])]?\.?[\])]?",
    IGNORECASE,
)
_ECHOED = anchored(r"(?:exit ?)?(?:code|status)? ?[:=]? ?(\d{1,3})", IGNORECASE)
_MISSING = anchored(r"(?:/bin/)?(?:ba|z|da)?sh: (?:-c: )?(?:line )?(?:\d+: )?([\w.+/-]{1,80}): (?:command )?not found")
_MISSING_ZSH = anchored(r"zsh: command not found: ([\w.+/-]{1,80})")

_HEADER_TOOLS = frozenset(["exec_command", "shell", "shell_command", "local_shell", "container.exec"])
_HEADER = ("Chunk ID:", "Wall time:", "Process exited with code ", "Exit code: ", "Original token count:", "Output:")


def outcome(tool: str, run: Diagnostic, text: str) -> str:
    """The kind of evidence that a diagnostic command's result is; ``content`` when it reports nothing we believe."""
    body, sure = _unwrapped(tool.lower(), visible(_read(text)))
    lines = [line.strip()[:MAX_LINE] for line in _ends(body)]
    lines = [line for line in lines if line]
    status, lines = _status(run, lines)
    if RECIPE in run.kinds:
        if not run.echoes:
            status = None
        lines = []  # a recipe may print any report
    if missing := _missing(run, lines):
        return missing
    said, whose = _said(run, lines)
    status = None if run.status_lost else sure if sure is not None else status
    if said == "nothing_ran":
        return "tool.nothing_ran"
    if sure is not None and not run.status_lost and said is not None:
        said = "failed" if sure else said  # the harness's own word decides
    if said is not None:
        return f"tool.{whose}_{said}"
    if status is not None and status != 0:
        return "tool.nothing_ran" if status == 5 and "pytest" in run.programs else "tool.exit_nonzero"
    if status == 0:
        # A checker that is silent found nothing. That a folder was made, or a recipe or help ended well, says nothing.
        silent = CHECK in run.kinds and RECIPE not in run.kinds
        return "tool.check_passed" if silent else "tool.exit_zero"
    return "tool.content"


def codes(text: str) -> list[str]:
    """The error codes that compilers and linters put at the beginning of their lines, at most MAX_CODES."""
    found: dict[str, None] = {}
    for line in _ends(visible(_read(text))):
        match = _AT_PLACE.match(line[:MAX_LINE])
        code = match and next((g for g in match.groups() if g), None)
        if code:
            found[code] = None
    return list(found)[:MAX_CODES]


def _read(text: str) -> str:
    """A long text's first and last whole lines."""
    if len(text) <= MAX_READ:
        return text
    head, tail = text[: MAX_READ // 2], text[-MAX_READ // 2 :]
    # A line that is cut could pass for one that the program wrote.
    return head.rpartition("\n")[0] + "\n" + tail.partition("\n")[2]


def _ends(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if len(lines) <= 2 * MAX_LINES else [*lines[:MAX_LINES], *lines[-MAX_LINES:]]


def _unwrapped(tool: str, text: str) -> tuple[str, int | None]:
    """The command's output and the status that the harness of this tool always puts beside it, if it does."""
    text = text.removeprefix("Error: ")
    if tool in _HEADER_TOOLS:
        return _without_header(text)
    if tool == "run_shell_command" and text.startswith("Command: "):
        head, _, tail = text.rpartition("\nExit Code: ")
        number = tail.split("\n", 1)[0].strip()
        output = head.partition("\nOutput: ")[2].rpartition("\nError: ")[0]
        return output, _number(number)
    if text.startswith("{") and '"returncode"' in text:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text, None
        if set(value) <= {"returncode", "output", "exception_info"} and isinstance(value.get("output"), str):
            return value["output"], value["returncode"] if type(value.get("returncode")) is int else None
    return text, None


def _without_header(text: str) -> tuple[str, int | None]:
    head, found, body = text.partition("Output:\n")
    status = None
    for line in head.split("\n"):
        if line and not line.startswith(_HEADER):
            return text, None
        for mark in ("Process exited with code ", "Exit code: "):
            if line.startswith(mark):
                status = _number(line.removeprefix(mark).strip())
    return (body, status) if found else (text, None)


def _status(run: Diagnostic, lines: list[str]) -> tuple[int | None, list[str]]:
    """The exit status in the first or the last line, where harnesses put it, and the other lines."""
    if not lines:
        return None, lines
    if run.echoes:
        echoed = _ECHOED.fullmatch(lines[-1])
        return _number(echoed[1]) if echoed else None, lines[:-1]
    first, last = _STATUS.fullmatch(lines[0]), _STATUS.fullmatch(lines[-1])
    if first and last and len(lines) > 1 and first[1] != last[1]:
        return None, lines[1:-1]
    match = last or first
    if match is None:
        return None, lines
    return _number(match[1]), lines[:-1] if last else lines[1:]


def _said(run: Diagnostic, lines: list[str]) -> tuple[str | None, str]:
    """``failed``, ``passed`` or ``nothing_ran`` as the last program put it, None where it did not; and which it was:
    ``tests`` or ``check``."""
    kinds = set(run.kinds)
    if kinds == {EFFECT} or not lines:
        return None, ""
    last = lines[-1]
    whose = "check" if TEST not in kinds or (CHECK in kinds and _OF_CHECKS.match(last)) else "tests"
    for said, forms in (("nothing_ran", _NOTHING), ("failed", _FAILED), ("passed", _PASSED)):
        if _any(forms, last):
            return said, whose
    if TEST in kinds:
        counted = _closing_block(lines)
        if counted:
            return "failed" if "failed" in counted else "passed", "tests"
    if CHECK in kinds and any(_AT_PLACE.match(line) for line in lines):
        return "failed", "check"
    return None, ""


def _closing_block(lines: list[str]) -> list[str]:
    """What the counting lines of the runner's last block say; the block ends at the first line that is none of it."""
    found: dict[str, str] = {}
    for line in reversed(lines[-LAST_LINES:]):
        said, name = _counted(line), next((word for word in line.split() if word.strip(":").isalpha()), "")
        if said is not None and name in found:
            break  # a block says each thing once: what stands above was printed before
        if said is not None:
            found[name] = said
        elif not _BESIDE_COUNTS.match(line):
            break
    return list(found.values())


def _counted(line: str) -> str | None:
    if _ONLY_FAILED.match(line):
        return "failed"
    match = _COUNTS.fullmatch(line)
    if match is None:
        return None
    numbers = match.groupdict()
    failed = any(int(numbers[g] or 0) for g in ("f", "mf", "sf", "se", "nf"))
    return "failed" if failed else "passed"


def _missing(run: Diagnostic, lines: list[str]) -> str | None:
    """The shell's word that a program of this very command does not exist, when it is all there is."""
    if not lines or len(lines) > 2:
        return None
    match = _MISSING.fullmatch(lines[0]) or _MISSING_ZSH.fullmatch(lines[0])
    return "tool.command_not_found" if match and match[1].rsplit("/", 1)[-1] in run.programs else None


def _any(forms: tuple[Anchored[str], ...], line: str) -> bool:
    return any(form.fullmatch(line) for form in forms)


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and len(digits) <= 10 else None
