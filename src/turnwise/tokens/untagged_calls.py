"""Tool calls that a model wrote as JSON and without the tags that it was told to put around them.

Small models of the Qwen2.5 family do so more often than not: bare, or fenced as code. Such JSON is taken for calls
where it ends the answer and is nothing but calls of tools that were offered; else it stays the text that it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from turnwise.patterns import anchored

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
_FENCE = "```"
_HEAD = anchored(r'\s*(?:```[a-z_]*\s*)?(?:<tools>\s*)?\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"arguments"\s*:\s*\{')
_HEAD_ROOM = 300
"""Characters within which the beginning of a call shows that it is one."""
_WRAPPERS = (f"{_FENCE}json", _FENCE, "<tools>", "</tools>", OPEN_CALL, CLOSE_CALL)


class UntaggedCalls:
    """Puts the tags around such calls. Feed it all text, then `finish`; both give the text to go on with.

    ``names`` are the tools that were offered. Text that may be a call is held back until that is known: a few words
    where it is none, and to the end of the answer where it is.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._is_call = False
        self._at_start = True

    def feed(self, text: str) -> str:
        self._held += text
        return "" if self._is_call else self._release()

    def finish(self) -> str:
        """The text is complete."""
        held, self._held = self._held, ""
        calls = self._read(held) if self._is_call or _HEAD.match(held) else None
        if calls is None:
            return held
        return "".join(f"{OPEN_CALL}\n{call}\n{CLOSE_CALL}\n" for call in calls)

    def _release(self) -> str:
        """What cannot be the beginning of a call, out of what is held."""
        given = ""
        while True:
            at = self._candidate()
            self._at_start = self._at_start and at == 0
            given, self._held = given + self._held[:at], self._held[at:]
            if not self._held.strip():
                return given
            head = _HEAD.match(self._held)
            if head:
                self._is_call = head.group(1) in self._names
            if self._is_call or (not head and len(self._held) < _HEAD_ROOM and self._may_begin()):
                return given
            self._at_start = False
            skip = len(self._held) - len(self._held[1:].lstrip("`{"))
            given, self._held = given + self._held[:skip], self._held[skip:]

    def _candidate(self) -> int:
        """Where in the held text a call may begin: at the answer's start, or at a fence (or what may become one)."""
        if self._at_start:
            stripped = self._held.lstrip()
            if not stripped or stripped[0] in "{<":
                return 0
        at = self._held.find(_FENCE)
        if at >= 0:
            return at
        return len(self._held.rstrip("`"))

    def _may_begin(self) -> bool:
        rest = self._held.lstrip()
        if rest.startswith(_FENCE):
            rest = rest[3:].lstrip("abcdefghijklmnopqrstuvwxyz_").lstrip()
        elif _FENCE.startswith(rest):
            return True
        rest = rest.removeprefix("<tools>").lstrip()
        return not rest or "<tools>".startswith(rest) or rest[0] == "{"

    def _read(self, text: str) -> list[str] | None:
        """The JSON of each call; None where there is anything else."""
        decoder, calls = json.JSONDecoder(), []
        rest = text.strip()
        while rest:
            wrapper = next((w for w in _WRAPPERS if rest.startswith(w)), None)
            if wrapper:
                rest = rest[len(wrapper) :].lstrip()
                continue
            try:
                body, end = decoder.raw_decode(rest)
            except (ValueError, RecursionError):
                return None
            if not self._names_a_tool(body):
                return None
            calls.append(rest[:end])
            rest = rest[end:].lstrip()
        return calls or None

    def _names_a_tool(self, body: Any) -> bool:
        return (
            isinstance(body, dict)
            and body.keys() == {"name", "arguments"}
            and body["name"] in self._names
            and isinstance(body["arguments"], dict)
        )
