"""Names of tools as an upstream takes them: letters, digits, `_` and `-`, and only so many.

Clients use others, as `GROUP.NAME`. Such a name is told in a form that fits, and a call of it gets its own name back. A
name that fits is told as it is. The same tools always have the same forms, so that an upstream's cache holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from turnwise.engines.upstream.conversation import ChatParams, UpstreamEvent
from turnwise.messages import calls_of, with_calls
from turnwise.patterns import pattern
from turnwise.types import Message

_LONGEST_MARK = 8
_FOREIGN = pattern(r"[^a-zA-Z0-9_-]")
Tools = list[dict[str, Any]] | None


class FittingNames:
    """The names in one conversation and the forms, of at most `longest` characters, in which it is told."""

    def __init__(self, messages: list[Message], tools: Tools, longest: int) -> None:
        names = dict.fromkeys(_names(messages, tools))
        taken = {name for name in names if name and len(name) <= longest and not _FOREIGN.search(name)}
        self._told: dict[str, str] = {}
        numbers: dict[str, int] = {}
        for name in names:
            if name not in taken:
                self._told[name] = form = _free_form(name, longest, taken, numbers)
                taken.add(form)
        self._own = {form: name for name, form in self._told.items()}

    def messages(self, messages: list[Message]) -> list[Message]:
        """The messages with the names in their tool calls as they are told."""
        if not self._told:
            return messages
        return [
            with_calls(message, [replace(call, name=self._form(call.name)) for call in calls])
            if (calls := calls_of(message))
            else message
            for message in messages
        ]

    def tools(self, tools: Tools) -> Tools:
        return [self._renamed(tool) for tool in tools] if tools and self._told else tools

    def params(self, params: ChatParams) -> ChatParams:
        """The params with the tool that must be called, if one must, as it is told."""
        choice = params.tool_choice
        return dataclasses.replace(params, tool_choice=self._renamed(choice)) if isinstance(choice, dict) else params

    def restored(self, event: UpstreamEvent) -> UpstreamEvent:
        """The event with the calls' own names."""
        for choice in event.given if self._own else []:
            for call in choice["delta"].get("tool_calls") or []:
                function = call.get("function") or {}
                function |= {"name": self._own.get(function["name"], function["name"])} if "name" in function else {}
        if not self._own or not event.tool_calls:
            return event
        pieces = [
            dataclasses.replace(piece, name=self._own.get(piece.name or "", piece.name)) for piece in event.tool_calls
        ]
        return dataclasses.replace(event, tool_calls=pieces)

    def _renamed(self, tool: dict[str, Any]) -> dict[str, Any]:
        """A tool or a choice of one, which both have their name in `function`."""
        function = tool["function"]
        return tool | {"function": function | {"name": self._form(function["name"])}}

    def _form(self, name: str) -> str:
        return self._told.get(name, name)


def _names(messages: list[Message], tools: Tools) -> Iterator[str]:
    for tool in tools or []:
        yield tool["function"]["name"]
    for message in messages:
        for call in calls_of(message):
            yield call.name


def _free_form(name: str, longest: int, taken: set[str], numbers: dict[str, int]) -> str:
    """What is told for a name, the likest that is free. `numbers` are the next ones for names that begin alike."""
    plain = (_FOREIGN.sub("_", name) or "_")[:longest]
    if plain not in taken:
        return plain
    alike = plain[: longest - _LONGEST_MARK]
    for number in count(numbers.get(alike, 2)):
        mark = f"_{number}"
        form = plain[: longest - len(mark)] + mark
        if form not in taken:
            numbers[alike] = number + 1
            return form
    raise AssertionError("numbers do not end")
