"""Opening a message: its text, what of it may be stored, and what may stand in another prompt.

Pure functions.
"""

from __future__ import annotations

import json

from turnwise.patterns import IGNORECASE, pattern
from turnwise.types import Message

# What a chat template or a tokenizer could take for one of its own tokens.
_MARK = pattern(
    r"<[|｜][^<>|｜\s]{1,60}[|｜]>|</?(?:s|bos|eos|pad|unk|think|im_start|im_end|(?:start|end)_of_turn|tool_calls?"
    r"|tool_response|tool_result|function_call)>|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]"
    r"|<</?SYS>>",
    IGNORECASE,
)
MARK_ROUNDS = 8
_NO_BRACKETS = str.maketrans("", "", "<>[]")
_LONE_SURROGATE = pattern("[\ud800-\udfff]")


def content_text(message: Message) -> str:
    """The text of a message's content, whether it is a string, a list of parts or absent."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [p if isinstance(p, str) else str(p.get("text") or "") for p in content if isinstance(p, str | dict)]
        return "\n".join(p for p in parts if p)
    return ""


def answer_text(answer: Message) -> str:
    """An assistant message as text: what it says, then each tool call as ``name(arguments)``."""
    lines = [content_text(answer)]
    for call in answer.get("tool_calls") or []:
        function = call.get("function") or {}
        arguments = function.get("arguments", "")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        lines.append(f"{function.get('name', 'unknown')}({arguments})")
    return "\n".join(line for line in lines if line)


def storable(text: str) -> str:
    """The text without halves of surrogate pairs, which no UTF-8 file or database takes."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def clean(text: str) -> str:
    """Text that may go into another prompt: storable, and without marks that a chat template has a meaning for."""
    text = storable(text)
    for _ in range(MARK_ROUNDS):  # taking one mark out may join the halves of another
        if (less := _MARK.sub("", text)) == text:
            return text
        text = less
    return text.translate(_NO_BRACKETS)  # marks in marks in marks: somebody's work
