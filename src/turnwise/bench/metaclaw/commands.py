"""The check commands of the questions, taken apart and checked by our own rules. No shell and no script ever runs them.

A command is a row of parts with `&&` between them: `python scripts/check_….py` with its words, or `python -c` with a
piece of code; a word may be `$(python -c …)`, that is, what a piece prints.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnwise.bench.metaclaw import rules
from turnwise.bench.metaclaw.rules import Surroundings
from turnwise.bench.metaclaw.snippets import play_snippet, read_snippet
from turnwise.errors import BenchDataError

MOST_OF_A_COMMAND = 8000
"""Characters."""
SCRIPTS = {
    "check_iso8601.py": (),
    "check_filename.py": ("--dir", "--ext", "--min-count"),
    "check_metadata.py": (),
    "check_backup.py": (),
    "check_done_log.py": ("--min-entries", "--task-prefix", "--min-count"),
}
"""The bench's checkers, which we do ourselves, and their options."""

Word = str | ast.Module
"""As it stands, or a piece whose output it is."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A call of one of the bench's checker scripts."""

    script: str
    words: tuple[Word, ...]
    options: dict[str, str]


Part = RuleCheck | ast.Module


def read_command(command: str) -> list[Part]:
    """The parts of a check command. Raises BenchDataError where one of them is not understood."""
    if len(command) > MOST_OF_A_COMMAND:
        raise BenchDataError(f"a check command has more than {MOST_OF_A_COMMAND} characters")
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise BenchDataError(f"the check command {command[:80]!r} cannot be taken apart: {e}") from None
    return [_part(part, command) for part in _split(words)]


def check(parts: Sequence[Part], around: Surroundings) -> str | None:
    """None where all parts of a command are content, else what the first one that is not says."""
    for part in parts:
        if isinstance(part, ast.Module):
            well, _ = play_snippet(part, around)
            fault = None if well else f"not so: {'; '.join(ast.unparse(part).splitlines())[-160:]}"
        else:
            fault = _held(part, around)
        if fault is not None:
            return fault
    return None


def _held(part: RuleCheck, around: Surroundings) -> str | None:
    words: list[str] = []
    for word in part.words:
        if isinstance(word, ast.Module):
            well, word = play_snippet(word, around)
            if not well or not word:
                return "no file of the name that is asked for"
        words.append(word)
    match part.script:
        case "check_iso8601.py":
            return rules.check_times(around, words[0], words[1:])
        case "check_filename.py":
            least = _number(part.options.get("--min-count", "1"))
            return rules.check_names(around, part.options["--dir"], part.options["--ext"], least)
        case "check_metadata.py":
            return rules.check_metadata(around, words[0])
        case "check_backup.py":
            return rules.check_backup(around, words[0])
    return rules.check_done(around, words[0], least_entries(part), part.options.get("--task-prefix"))


def least_entries(part: RuleCheck) -> int:
    """Of a done.log. Two questions say `--min-count` beside `--min-entries`; the larger one counts."""
    return max(1, *(_number(part.options.get(option, "1")) for option in ("--min-entries", "--min-count")))


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 4:
        raise BenchDataError(f"{text[:20]!r} in a check command is no number")
    return int(text)


def _split(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in (*words, "&&"):
        if word != "&&":
            part.append(word)
            continue
        yield part
        part = []


def _part(words: list[str], command: str) -> Part:
    if len(words) == 3 and words[:2] == ["python", "-c"]:
        return read_snippet(words[2])
    script = words[1].removeprefix("scripts/") if len(words) > 2 and words[0] == "python" else ""
    if script not in SCRIPTS:
        raise BenchDataError(
            f"a part of the check command {command[:80]!r} is not understood: {' '.join(words)[:80]!r}"
        )
    plain: list[Word] = []
    options: dict[str, str] = {}
    rest = words[2:]
    while rest:
        word, *rest = rest
        if word == "$(python" and len(rest) >= 2 and rest[0] == "-c" and rest[1].endswith(")"):
            plain.append(read_snippet(rest[1].removesuffix(")")))
            rest = rest[2:]
        elif word in SCRIPTS[script] and rest:
            options[word], *rest = rest
        elif word.startswith("-") or any(sign in word for sign in "$`;|<>&"):
            raise BenchDataError(f"{word[:40]!r} in the check command {command[:80]!r} is not understood")
        else:
            plain.append(word)
    return _complete(RuleCheck(script, tuple(plain), options), command)


def _complete(part: RuleCheck, command: str) -> RuleCheck:
    """The part, where it says all that its checker has to know. Raises BenchDataError."""
    lacks = {"--dir", "--ext"} - part.options.keys() if part.script == "check_filename.py" else set()
    least = {"check_filename.py": 0, "check_iso8601.py": 2}.get(part.script, 1)
    if lacks or len(part.words) < least:
        raise BenchDataError(f"the check command {command[:80]!r} does not say what {part.script} is to check")
    for option in ("--min-count", "--min-entries"):
        _number(part.options.get(option, "1"))
    return part
