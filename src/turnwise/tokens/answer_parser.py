"""An answer's text, as it is sampled, split into reasoning, content and tool calls: pure, and incremental.

The text is fed in pieces of any size; the parts that come out are the same whatever the pieces were, and add up to the
message that is recorded. Tool calls in JSON (`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Qwen3 and our
ChatML write them) leave in pieces while they are sampled; those of other families leave whole, at the end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.messages import answer_of
from turnwise.patterns import DOTALL, anchored, pattern
from turnwise.tokens.answer_pieces import AnswerParts, CallPiece
from turnwise.tokens.untagged_calls import CLOSE_CALL, OPEN_CALL, UntaggedCalls
from turnwise.types import Message, ToolCall

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
_BLOCK = pattern(f"{OPEN_CALL}.*?(?:{CLOSE_CALL}|\\Z)", DOTALL, unbounded=True)
_HEAD = anchored(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"arguments"\s*:\s*(?=\{)', unbounded=True)
ParsedCall = tuple[str, dict[str, Any] | str]
"""Name and arguments of a call, as the renderer of a model family reads it."""


@dataclass(frozen=True, slots=True)
class AnswerGrammar:
    """How a model family writes an answer.

    ``reasoning``: it may begin with `<think>…</think>`. ``calls``: "json" as above; "tagged" has another notation
    between the same tags; "whole" can only be read by its renderer when the answer is complete. ``space``
    stands between those tags and the JSON. ``untagged``: its models forget the tags (`untagged_calls`).
    """

    reasoning: bool = False
    calls: Literal["json", "tagged", "whole"] = "json"
    space: str = "\n"
    untagged: bool = False


@dataclass(slots=True)
class _Call:
    name: str
    arguments: str = ""


class AnswerParser:
    """Reads one answer. Feed it all text, then `finish`; `message` is what has been read so far.

    ``with_tools``: calls are looked for only where tools were offered, which have these ``names``. ``in_reasoning``:
    the prompt itself ended with `<think>`. ``broken`` counts calls that had to stay text, wholly or in part: what
    stands between the arguments and the closing tag and is no JSON of the call's own is given as content, after it.
    """

    def __init__(
        self, grammar: AnswerGrammar, *, with_tools: bool, in_reasoning: bool = False, names: Collection[str] = ()
    ) -> None:
        self._grammar = grammar
        self._with_tools = with_tools
        self._untagged = UntaggedCalls(names) if grammar.untagged and with_tools and names else None
        self._state: Literal["start", "reasoning", "content", "head", "arguments", "tail", "held"]
        self._state = "reasoning" if in_reasoning else ("start" if grammar.reasoning else "content")
        if grammar.calls == "whole":
            self._state = "held"
        self._rest = ""
        self._space = ""  # white space that is dropped if a tag follows it
        self._fresh = True  # nothing of the present part has been given yet: leading line breaks are dropped
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.reasoning: str | None = "" if in_reasoning else None
        self.content = ""
        self.calls: list[_Call] = []
        self.broken = 0

    def feed(self, text: str) -> AnswerParts:
        """Take the next piece of text."""
        self._rest += self._untagged.feed(text) if self._untagged else text
        parts = AnswerParts()
        while self._step(parts):
            pass
        return parts

    def finish(self) -> AnswerParts:
        """The text is complete: give what was held back while it could have become something else."""
        parts = AnswerParts()
        if self._untagged:
            self._rest += self._untagged.finish()
            while self._step(parts):
                pass
        if self._state == "reasoning" and self._with_tools and OPEN_CALL in self._rest:
            self._reopen_calls(parts)
        elif self._state == "start":
            self._give_content(parts, self._space + self._rest)
        elif self._state == "reasoning":
            self._give_reasoning(parts, self._rest)
        elif self._state == "content":
            last = self._space + self._rest
            if last.strip() or not self.calls:  # a line break after the last call is no content
                self._give_content(parts, last)
        elif self._state == "tail":
            after = _beyond_call(self._rest)
            if not CLOSE_CALL.startswith(after.strip()):  # else the closing tag was cut off
                self._give_content(parts, after.rstrip())
        elif self._state == "held":
            return parts  # `adopt` takes it from here
        elif self._state == "head" and not self._block_as_call(parts, self._rest):
            self.broken += 1
            self._give_content(parts, self._space + OPEN_CALL + self._rest)
        self._rest = self._space = ""
        return parts

    @property
    def message(self) -> Message:
        """The assistant message read so far; its tool calls have no ids yet."""
        calls = [ToolCall(call.name, call.arguments) for call in self.calls]
        return answer_of(self.content, self.reasoning or "", calls)

    def adopt(self, content: str, reasoning: str | None, calls: Sequence[ParsedCall | str]) -> AnswerParts:
        """Take the reading of the family's own parser for what was held, and give what has not been given yet.

        A string among the ``calls`` is the text of one that could not be read: it stays text, as does the rest.
        """
        parts = AnswerParts()
        if reasoning and not self.reasoning:
            self.reasoning = reasoning
            parts.add("reasoning", reasoning)
        if self._grammar.calls == "tagged" and self._state == "held":
            self._adopt_blocks(parts, OPEN_CALL + self._rest, list(calls))
        else:
            if content.startswith(self.content):
                parts.add("content", content[len(self.content) :])
                self.content = content
            for call in calls:
                if self._state == "held" or not isinstance(call, str):  # else it was given as text already
                    self._adopt_call(parts, call)
        self._rest = self._space = ""
        return parts

    def _adopt_blocks(self, parts: AnswerParts, text: str, calls: list[ParsedCall | str]) -> None:
        """Calls in place of their blocks. Where the two differ in number, a call's block is the next with its name."""
        blocks = list(_BLOCK.finditer(text))
        paired = len(blocks) == len(calls)
        at = 0
        for block in blocks:
            before, at = self._space + text[at : block.start()], block.end()
            self._space = ""
            call = calls[0] if calls else ""
            mine = paired or (call and (isinstance(call, str) or call[0] in block.group()))
            if mine:
                calls.pop(0)
            if mine and not isinstance(call, str):
                self._give_content(parts, before.rstrip())
                self._adopt_call(parts, call)
            else:
                self.broken += 1
                self._give_content(parts, before + block.group())
        self._give_content(parts, text[at:].rstrip())
        for call in calls:
            if not isinstance(call, str):
                self._adopt_call(parts, call)

    def _adopt_call(self, parts: AnswerParts, call: ParsedCall | str) -> None:
        if isinstance(call, str):
            self.broken += 1
            self._give_content(parts, call)
        else:
            name, arguments = call
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            self._whole_call(parts, name, text)

    # -- one move of the machine: False when it needs more text ---------------------------------------------------

    def _step(self, parts: AnswerParts) -> bool:
        return getattr(self, f"_in_{self._state}")(parts)

    def _in_start(self, parts: AnswerParts) -> bool:
        text = self._rest.lstrip()
        if text.startswith(OPEN_THINK):
            self._rest = text[len(OPEN_THINK) :]
            self.reasoning = ""
            self._state, self._fresh = "reasoning", True
            return True
        if OPEN_THINK.startswith(text):
            return False
        self._state = "content"
        return True

    def _in_reasoning(self, parts: AnswerParts) -> bool:
        before, found, after = self._rest.partition(CLOSE_THINK)
        if found:
            self._give_reasoning(parts, before.rstrip())
            self._space = ""
            self._rest = after
            self._state, self._fresh = "content", True
            return True
        if self._with_tools and OPEN_CALL in before:
            return False  # a draft, or a call without the closing tag: known when the tag comes or the text ends
        hold = max(_partial_suffix(before, CLOSE_THINK), _partial_suffix(before, OPEN_CALL))
        ready = before[: len(before) - hold]
        kept = ready.rstrip()
        self._give_reasoning(parts, kept)
        self._rest = ready[len(kept) :] + before[len(before) - hold :]
        return False

    def _in_content(self, parts: AnswerParts) -> bool:
        if not self._with_tools:
            self._give_content(parts, self._rest)
            self._rest = ""
            return False
        before, found, after = self._rest.partition(OPEN_CALL)
        if not found:
            hold = _partial_suffix(before, OPEN_CALL)
            ready, self._rest = before[: len(before) - hold], before[len(before) - hold :]
        else:
            ready = before
        text = self._space + ready
        kept = text.rstrip()
        self._space = text[len(kept) :]
        self._give_content(parts, kept)
        if not found:
            return False
        self._rest = after
        self._state = "held" if self._grammar.calls == "tagged" else "head"
        return True

    def _in_head(self, parts: AnswerParts) -> bool:
        match = _HEAD.match(self._rest)
        if match:
            name = _json_string(match.group(1))
            if name:
                self.calls.append(_Call(name))
                parts.pieces.append(CallPiece(len(self.calls) - 1, name=name))
                self._rest = self._rest[match.end() :]
                self._state = "arguments"
                self._depth, self._in_string, self._escaped, self._space = 0, False, False, ""
                return True
        block, found, after = self._rest.partition(CLOSE_CALL)
        if not found:
            return False
        if not self._block_as_call(parts, block):
            self.broken += 1
            self._give_content(parts, self._space + OPEN_CALL + block + CLOSE_CALL)
        self._space = ""
        self._rest = after
        self._state = "content"
        return True

    def _in_arguments(self, parts: AnswerParts) -> bool:
        for i, char in enumerate(self._rest):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._in_string = False
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._give_arguments(parts, self._rest[: i + 1], last=True)
                    self._rest = self._rest[i + 1 :]
                    self._state = "tail"
                    return True
            elif char == "<":
                tail = self._rest[i:]
                if tail.startswith(CLOSE_CALL):  # the object was never closed
                    self._give_arguments(parts, self._rest[:i], last=True)
                    self._rest = tail
                    self._state = "tail"
                    return True
                if CLOSE_CALL.startswith(tail):
                    self._give_arguments(parts, self._rest[:i])
                    self._rest = tail
                    return False
        self._give_arguments(parts, self._rest)
        self._rest = ""
        return False

    def _in_tail(self, parts: AnswerParts) -> bool:
        """After the arguments: up to the closing tag, or the next call where that tag was forgotten."""
        before, found, after = self._rest.partition(CLOSE_CALL)
        text, again, _ = before.partition(OPEN_CALL)
        if again:
            self._rest = _beyond_call(text) + self._rest[len(text) :]
        elif found:
            stray = _beyond_call(before).rstrip()
            if stray:  # the call has been given already, so that only this can stay text
                self.broken += 1
                self._give_content(parts, stray)
            self._rest = after
        else:
            return False
        self._state = "content"
        return True

    def _in_held(self, parts: AnswerParts) -> bool:
        return False

    # -- giving ---------------------------------------------------------------------------------------------------

    def _give_reasoning(self, parts: AnswerParts, text: str) -> None:
        if self._fresh:
            text = text.lstrip("\n")
        if text:
            self._fresh = False
            self.reasoning = (self.reasoning or "") + text
            parts.add("reasoning", text)

    def _give_content(self, parts: AnswerParts, text: str) -> None:
        if self.reasoning is not None and not self.content:
            text = text.lstrip("\n")
        self.content += text
        parts.add("content", text)

    def _give_arguments(self, parts: AnswerParts, text: str, *, last: bool = False) -> None:
        if text or last:
            self.calls[-1].arguments += text
            parts.pieces.append(CallPiece(len(self.calls) - 1, arguments=text, last=last))

    def _whole_call(self, parts: AnswerParts, name: str, arguments: str) -> None:
        self.calls.append(_Call(name, arguments))
        parts.pieces.append(CallPiece(len(self.calls) - 1, name, arguments, last=True))

    def _block_as_call(self, parts: AnswerParts, block: str) -> bool:
        """A complete block whose keys stand in another order, or without arguments."""
        try:
            body = json.loads(block)
            json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):  # no JSON, or what no client could read: NaN, half of a surrogate pair
            return False
        if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not body["name"]:
            return False
        arguments = body.get("arguments", {})
        if not isinstance(arguments, dict):
            return False
        self._whole_call(parts, body["name"], json.dumps(arguments, ensure_ascii=False))
        return True

    # -- a call inside of reasoning that was never closed -----------------------------------------------------------

    def _reopen_calls(self, parts: AnswerParts) -> None:
        before, _, _ = self._rest.partition(OPEN_CALL)
        self._give_reasoning(parts, before.rstrip())
        self._rest = self._rest[len(before) :]
        self._state, self._fresh = "content", True
        while self._step(parts):
            pass
        parts.extend(self.finish())


def _beyond_call(text: str) -> str:
    """What follows a call's arguments and is no part of its object: neither more keys nor the last brace."""
    try:
        json.loads('{"arguments": {}' + text)
        return ""
    except (ValueError, RecursionError):
        pass
    return text.lstrip().removeprefix("}") if text.lstrip().startswith("}") else text


def _partial_suffix(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


def _json_string(text: str) -> str | None:
    """The string that a JSON literal stands for; None for one that is none, or that holds half of a surrogate pair."""
    try:
        value = json.loads(text)
        value.encode()
    except ValueError:
        return None
    return value
