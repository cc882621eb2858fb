"""Who said each piece of a next state. Trust is a property of the source, and each source has the one reader allowed.

- the **person**: what is left of a user message without all that was put into it (`person.py`). Their words alone
  praise, reproach and give hints.
- **diagnostic tools**: commands on an explicit list (`commands.py`). Their own summary and exit status count
  (`reports.py`); a hint from them is a sentence of ours with an error code in it.
- **our own check** of a call against the definition of its tool: no text of anybody is read for it.
- everything else is **content**: web pages, files, mails, logs, tools we do not know. Nothing in it moves a verdict or
  becomes a hint. What looks useful in it goes to the review list.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from turnwise.judges.sources.commands import Diagnostic, diagnostic, shell_command
from turnwise.judges.sources.person import MAX_READ, hiding_words
from turnwise.judges.sources.quotations import without_hidden
from turnwise.judges.sources.reports import MAX_READ as MAX_REPORT
from turnwise.judges.sources.reports import codes, outcome
from turnwise.judges.sources.visible import with_plain_marks
from turnwise.messages import call_answered, calls_of, text_of
from turnwise.types import Message, ToolCall

CONTENT = "tool.content"
MAX_PERSON_CHARS = 50_000
MAX_REPORT_CHARS = 1_000_000
"""Characters of user messages, and of tools' results, that are read in one next state; what is beyond is content."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """One tool's result: the call that asked for it, where there is one, and what it is worth as evidence."""

    tool: str
    command: str | None
    text: str
    kind: str
    codes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """What a person is told of where it came from."""
        return f"tool {self.tool}" if self.tool else "a tool"


@dataclass(frozen=True, slots=True)
class Sources:
    """A next state by source. ``person`` is "" where the person said nothing; ``foreign``: (source, text) pairs.

    ``quoting``: what the person said, with the phrases that they quote, hidden: nobody knows yet whose these are.
    """

    person: str
    results: list[ReadResult] = field(default_factory=list)
    foreign: list[tuple[str, str]] = field(default_factory=list)
    quoting: str = ""

    @property
    def diagnostics(self) -> list[str]:
        """What the trusted tools reported, in our own words."""
        return [line for result in self.results for line in _in_our_words(result)]


def by_source(answer: Message, next_state: list[Message], tools: list[dict[str, Any]] | None = None) -> Sources:
    """Every message of a next state by its source. ``tools``: the definitions that the request had, if known."""
    calls = _calls(answer)
    quoting: list[str] = []
    person: list[str] = []
    results: list[ReadResult] = []
    foreign: list[tuple[str, str]] = []
    left, reports_left = MAX_PERSON_CHARS, MAX_REPORT_CHARS
    for message in next_state:
        role, text = message.role, text_of(message)
        if role in ("tool", "function"):
            reports_left -= min(len(text), MAX_REPORT)
            result = _result(calls.get(call_answered(message) or ""), text, tools, reports_left >= 0)
            results.append(result)
            foreign.append((result.source, text))
        elif role == "user":
            left -= len(text)
            with_phrases = hiding_words(message) if left >= 0 else ""
            words = without_hidden(with_phrases)
            person += [words] if words else []
            quoting += [with_phrases] if words else []
            if len(text) > MAX_READ or left < 0 or words.split() != with_plain_marks(text).split():
                foreign.append(("a message of the person that holds more than their words", text))
        else:
            foreign.append((f"a message of the role {role[:20]!r}", text))
    return Sources("\n".join(person), results, foreign, "\n".join(quoting))


def _calls(answer: Message) -> dict[str, ToolCall]:
    """Each call of an answer by its id; an id that two calls share names neither of them."""
    made = calls_of(answer)
    ids = Counter(call.id for call in made)
    return {call.id: call for call in made if ids[call.id] == 1}


def _result(call: ToolCall | None, text: str, tools: list[dict[str, Any]] | None, read: bool) -> ReadResult:
    if call is None:
        return ReadResult("", None, text, CONTENT)
    name, arguments = call.name, call.arguments
    if misfit(name, arguments, tools):
        return ReadResult(name, None, text, "tool.bad_call")
    run: Diagnostic | None = diagnostic(name, arguments)
    if run is None or not read:
        return ReadResult(name, shell_command(name, arguments), text, CONTENT)
    return ReadResult(name, shell_command(name, arguments), text, outcome(name, run, text), tuple(codes(text)))


def misfit(name: str, arguments: Any, tools: list[dict[str, Any]] | None) -> bool:
    """Whether a call does not fit its tool's own definition: arguments that are no object, lack one or have one more.

    Nothing that came back is read. A tool whose definition we do not have is not judged.
    """
    functions = [tool.get("function") or {} for tool in tools or [] if isinstance(tool, dict)]
    mine = next((f for f in functions if f.get("name") == name), None)
    schema = mine.get("parameters") if mine else None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return True
    if not isinstance(arguments, dict):
        return True
    required, known = schema.get("required"), schema.get("properties")
    lacks = isinstance(required, list) and any(key not in arguments for key in required if isinstance(key, str))
    closed = schema.get("additionalProperties") is False and isinstance(known, dict)
    return lacks or (closed and any(key not in known for key in arguments))


_WORDS = {
    "tool.tests_passed": "The test run that it started passed.",
    "tool.tests_failed": "The test run that it started failed.",
    "tool.check_passed": "The compiler or checker that it ran found no error.",
    "tool.check_failed": "The compiler or checker that it ran found errors.",
    "tool.nothing_ran": "No tests ran.",
    "tool.exit_zero": "The command ended with status 0.",
    "tool.exit_nonzero": "The command ended with a status other than 0.",
    "tool.command_not_found": "The shell did not find the program.",
    "tool.bad_call": "The call did not fit the definition of its tool.",
}


def _in_our_words(result: ReadResult) -> list[str]:
    line = _WORDS.get(result.kind)
    return [] if line is None else [f"{line} Codes: {', '.join(result.codes)}." if result.codes else line]
