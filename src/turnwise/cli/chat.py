"""A recorded session as a chat: who said what, what was called and what came back, and what became of each answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from turnwise.cli.options import ago
from turnwise.judges.sources.visible import visible
from turnwise.messages import call_answered, calls_of, from_chat, text_of, thinking_in
from turnwise.types import Message

MOST = {"system": 200, "thinking": 200, "tool": 300, "user": 4000, "assistant": 4000}
"""Characters that are shown of what each of them says."""
SOME_LINES = 6
MOST_LINES = {"user": 200, "assistant": 200}
MOST_OF_ARGUMENTS = 160
MOST_OF_LABEL = 80
NEW_LINE = "\n    "
STYLES = {"user": "bold", "assistant": "green", "call": "yellow", "note": "dim"}

Line = tuple[str, str]
"""Text and the style it is shown in."""


def session_lines(rows: list[dict[str, Any]], shown: dict[str, str], one_line_each: bool) -> Iterator[Text]:
    """Recorded sessions. No id is cut: what one is about stands below it in a terminal, behind it in a pipe."""
    cells = [
        [
            shown[row["id"]],
            agent_name(row),
            f"{row['turns']} turn{'' if row['turns'] == 1 else 's'}, {row['trained']} trained",
            ago(row["last_seen_at"]),
            row["close_reason"] or "open",
        ]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row, told in zip(rows, cells, strict=True):
        line = Text("  ".join(cell.ljust(width) for cell, width in zip(told, widths, strict=True)), style="dim")
        yield line.append(f"{'  ' if one_line_each else NEW_LINE}{row['about']}", style="not dim")


def chat_lines(session: dict[str, Any], short: dict[str, str], full: bool) -> Iterator[Line]:
    """The lines of a session. `short` has the ids of its turns as they are shown; `full` cuts nothing short."""
    told = [f"session {session['id']}", f"opened by {agent_name(session)}", session["close_reason"] or "open"]
    if session["parent_id"]:
        told.insert(1, f"branched off {session['parent_id']}")
    yield ", ".join(told), STYLES["note"]
    calls: dict[str, str] = {}
    for turn in session["turns"]:
        yield "", ""
        for message in (*turn["added"], *([turn["answer"]] if turn["answer"] else [])):
            yield from _message(from_chat(message), calls, full)
        yield f"  {_became(turn, short[turn['id']])}", STYLES["note"]


def agent_name(session: dict[str, Any]) -> str:
    """What a client calls itself, without the details behind it; its hash where it does not say."""
    name = visible(session["agent"] or "").partition("(")[0].strip()
    return name[:30] or f"client {session['client'][:8]}"


def _message(message: Message, calls: dict[str, str], full: bool) -> Iterator[Line]:
    role, text, made = message.role, visible(text_of(message)).strip(), calls_of(message)
    if thought := thinking_in(message):
        yield from _said("thinking", "thinking", visible(thought).strip(), full)
    label = f"tool {calls[found]}" if (found := call_answered(message)) in calls else role
    if text or not made:
        yield from _said(role, " ".join(visible(label).split())[:MOST_OF_LABEL], text, full)
    for call in made:
        calls[call.id] = call.name
        arguments = _cut(_arguments(call.arguments), MOST_OF_ARGUMENTS, full)
        yield f"  -> {' '.join(visible(call.name).split())}({arguments})", STYLES["call"]


def _said(who: str, label: str, text: str, full: bool) -> Iterator[Line]:
    style = STYLES.get(who, STYLES["note"])
    lines = MOST_LINES.get(who, SOME_LINES)
    yield f"{label}: " + _cut(text, MOST.get(who, MOST["system"]), full, lines).replace("\n", "\n  "), style


def _cut(text: str, most: int, full: bool, lines: int = 1) -> str:
    kept = "\n".join(text[:most].split("\n")[:lines])
    if full or len(kept) == len(text):
        return text
    return f"{kept.rstrip()} … ({len(text):,} characters; --full shows them)"


def _arguments(given: str) -> str:
    """Arguments on one line, as a person would write the call down; what is no object stays as it is."""
    try:
        parsed = json.loads(given)
        if isinstance(parsed, dict):
            given = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in parsed.items())
    except (ValueError, RecursionError):
        pass  # it is shown as it came
    return " ".join(visible(given).split())


def _became(turn: dict[str, Any], short: str) -> str:
    state = turn["state"] + (f" ({turn['exclusion']})" if turn["exclusion"] else "")
    told = [f"turn {turn['index']}  {short}", turn["kind"], f"version {turn['version']}", state]
    if turn["prompt_tokens"] or turn["response_tokens"]:
        told.append(f"{turn['prompt_tokens']} + {turn['response_tokens']} tokens")
    for verdict in turn["verdicts"]:
        hint = f"; hint: {verdict['hint']}" if verdict["hint"] else ""
        told.append(f"{verdict['score']:+d} by {verdict['judge']} ({verdict['reason']}){hint}")
    return " ".join(visible(", ".join(told)).split("\n"))
