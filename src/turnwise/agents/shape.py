"""What is written down of an agent, each in a file of its own: how it is told of turnwise, and how its requests look.

These are declarations. `known` collects them; the gateway asks that what a request is, and applies the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from turnwise.agents.endpoint import Endpoint
from turnwise.patterns import Pattern


class SideKind(StrEnum):
    """What an agent asks for its own housekeeping. Where words fit several kinds, the first of this order counts."""

    TITLE = "title"
    HEARTBEAT = "heartbeat"
    MEMORY = "memory"
    SUGGESTIONS = "suggestions"
    COMPACTION = "compaction"


HOUSEKEEPING = frozenset({SideKind.HEARTBEAT, SideKind.MEMORY})
"""Side turns in which an agent calls tools, and which it may leave in its history. No person writes their words."""

Words = tuple[tuple[SideKind, Pattern[str]], ...]
"""Kinds of side turns, and words that ask for them."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How an agent's requests tell what they are.

    ``session_headers`` hold the session's id, in the order in which they count. ``sub_agent_header`` tells the
    sub-agents of one session apart: each conversation of theirs is a session beside it. ``asks`` is looked for in the
    message that is worked on; ``instructs`` in the instructions, where a request has nothing but them and one message.
    Kinds in ``in_first_of_two`` are asked for in the first of two messages: the second is what it is about.
    ``internal`` begins a message that the agent puts at the end of a request for itself. ``session_in_user`` reads the
    session's id out of what it says of its user, where it stands in no header. ``unasked_tools`` are types of tools
    that only their vendor can run and that the agent sends by default; ``item_marks`` are fields that it puts into the
    items of a responses request and no model sees. ``envelopes`` are what it puts around a person's words (channel,
    sender, time), and ``blocks`` the names of the tags in which it puts notes of its own into their message.
    """

    session_headers: tuple[str, ...] = ()
    sub_agent_header: str | None = None
    asks: Words = ()
    instructs: Words = ()
    in_first_of_two: frozenset[SideKind] = frozenset()
    internal: Pattern[str] | None = None
    session_in_user: Callable[[str], str | None] | None = None
    unasked_tools: frozenset[str] = frozenset()
    item_marks: frozenset[str] = frozenset()
    envelopes: tuple[Pattern[str], ...] = ()
    blocks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Agent:
    """`file` gives the configuration file for an environment, `edit` its text with the endpoint in it.

    `first_prompt`: measured tokens of the first request by profile, smallest first (docs/clients.md has the profiles);
    empty where it was not measured.
    """

    file: Callable[[dict[str, str]], Path]
    edit: Callable[[str, Endpoint], str]
    try_it: str
    first_prompt: dict[str, int] = field(default_factory=dict)
    habits: Habits = Habits()
