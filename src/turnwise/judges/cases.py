"""Labelled next states: reading and checking the JSONL files that judges are measured on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import TurnwiseError
from turnwise.messages import (
    calls_of,
    from_chat,
    history_from_chat,
    parts_of,
    result_of,
    saying,
    text_of,
    with_calls,
)
from turnwise.types import Message, ToolCall

_MARKED = {"T: ": "tool", "U: ": "user"}
_ROLES = {"user", "tool", "system", "assistant"}


class CaseError(TurnwiseError):
    """A line of a labelled file cannot be used; the message names the file, the line and what is missing."""


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled next state. ``label`` is +1, 0 or -1; ``directive``: it says how the answer should have been."""

    id: str
    setting: str
    messages: list[Message]
    answer: Message
    next_state: list[Message]
    label: int
    directive: bool
    hint: str


def read_cases(path: Path) -> list[Case]:
    """All cases of a JSONL file. Raises CaseError on the first bad line and on an empty file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise CaseError(f"cannot read {path}: {e}") from e
    cases = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                cases.append(_case(json.loads(line), number))
            except json.JSONDecodeError as e:
                raise CaseError(f"{path}, line {number}: not valid JSON ({e.msg} at column {e.colno})") from e
            except ValueError as e:
                raise CaseError(f"{path}, line {number}: {e}") from e
    if not cases:
        raise CaseError(f"{path} holds no cases; each line is an object with task, action, next_state and label")
    return cases


def _case(row: Any, number: int) -> Case:
    if not isinstance(row, dict):
        raise ValueError("each line must be a JSON object with task, action, next_state and label")
    missing = [key for key in ("task", "action", "next_state", "label") if key not in row]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}")
    if row["label"] not in (-1, 0, 1) or isinstance(row["label"], bool):
        raise ValueError(f"label must be -1, 0 or 1, not {row['label']!r}")
    if not isinstance(row.get("directive", False), bool):
        raise ValueError(f"directive must be true or false, not {row['directive']!r}")
    if not isinstance(row["task"], str):
        raise ValueError("task must be a string")
    answer = row["action"]
    if isinstance(answer, str):
        answer = {"role": "assistant", "content": answer}
    elif not isinstance(answer, dict):
        raise ValueError("action must be a string or an assistant message")
    state = row["next_state"]
    if isinstance(state, str):
        state = [{"role": "user", "content": state}]
    if not isinstance(state, list) or not state:
        raise ValueError("next_state must be a list with at least one message")
    for message in state:
        if not isinstance(message, dict) or "content" not in message or from_chat(message).role not in _ROLES:
            raise ValueError("each message of next_state needs a role (user or tool) and content")
    answer, state = _with_calls(from_chat(answer), history_from_chat(state))
    return Case(
        id=str(row.get("id", f"line-{number}")),
        setting=str(row.get("setting", "")),
        messages=[saying("user", row["task"])],
        answer=answer,
        next_state=state,
        label=int(row["label"]),
        directive=row.get("directive", False),
        hint=str(row.get("hint") or ""),
    )


def _with_calls(answer: Message, state: list[Message]) -> tuple[Message, list[Message]]:
    """The case as a gateway records it, where its action as text leaves no doubt about the call.

    ``… $ pytest -q`` is a command typed into a shell, and the results of tools are its. A call written any other way
    stays text, and its results are content.
    """
    text = text_of(answer)
    if calls_of(answer) or not any(message.role == "tool" for message in state):
        return answer, state
    before, prompt, command = text.rpartition("$ ")
    if not prompt or "\n" in command.strip() or (before and not before.endswith((" ", "\n"))):
        return answer, state
    call = ToolCall("bash", json.dumps({"command": command.strip()}), "case")
    state = [result_of("case", parts_of(m)) if m.role == "tool" else m for m in state]
    return with_calls(answer, [call]), state


def read_table(path: Path) -> list[Case]:
    """Cases of a tab-separated file: label, directive, task, answer, and the next state.

    In the last one `` || `` parts messages, ``T: `` marks a tool's and ``U: `` a person's, as one without a mark is.
    """
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            label, directive, task, action, text = (cell.replace("\\n", "\n") for cell in line.split("\t", 4))
        except ValueError as e:
            raise CaseError(f"{path}, line {number}: five tab-separated cells are needed") from e
        state = [{"role": _MARKED.get(part[:3], "user"), "content": part.removeprefix("U: ").removeprefix("T: ")}
                 for part in text.split(" || ")]  # fmt: skip
        row = {"task": task, "action": action, "next_state": state, "label": int(label)}
        cases.append(_case(row | {"directive": directive == "1", "id": f"{path.stem}-{number}"}, number))
    return cases
