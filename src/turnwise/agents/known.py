"""The agents that are known, one file each, and what the gateway asks of them all. Adding one is a file and a line.

A request does not always say which agent it comes from, so the rules of all of them hold for each request.
"""

from __future__ import annotations

from typing import Any

from turnwise.agents import aider, chat_apps, claude_code, codex, mini_swe_agent, openclaw, opencode, qwen_code
from turnwise.agents.shape import Agent, SideKind, Words

AGENTS: dict[str, Agent] = {
    "openclaw": openclaw.AGENT,
    "codex": codex.AGENT,
    "claude-code": claude_code.AGENT,
    "opencode": opencode.AGENT,
    "qwen-code": qwen_code.AGENT,
    "aider": aider.AGENT,
    "mini-swe-agent": mini_swe_agent.AGENT,
}
"""Those that can be connected. A session's id is looked for in their headers in this order."""

_HABITS = [*(agent.habits for agent in AGENTS.values()), chat_apps.HABITS]


def _by_kind(words: Words) -> Words:
    return tuple(sorted(words, key=lambda word: list(SideKind).index(word[0])))


SESSION_HEADERS = tuple(name for habits in _HABITS for name in habits.session_headers)
"""Headers in which agents send their own session ids; `X-Session-Id` comes before them all."""
SUB_AGENT_HEADERS = tuple(habits.sub_agent_header for habits in _HABITS if habits.sub_agent_header is not None)
ASKS = _by_kind(tuple(word for habits in _HABITS for word in habits.asks))
"""Requests that an agent makes for its own housekeeping, by the words of the message that is worked on."""
INSTRUCTS = _by_kind(tuple(word for habits in _HABITS for word in habits.instructs))
"""The same by the beginning of the instructions, for a request that has nothing but them and one message."""
IN_FIRST_OF_TWO = frozenset(kind for habits in _HABITS for kind in habits.in_first_of_two)
INTERNAL = tuple(habits.internal for habits in _HABITS if habits.internal is not None)
"""How messages begin that an agent puts at the end of a request for itself."""
UNASKED_TOOLS = frozenset[str]().union(*(habits.unasked_tools for habits in _HABITS))
"""Types of tools that only their vendor can run: refusing them would refuse the agents that send them by default."""
ITEM_MARKS = frozenset[str]().union(*(habits.item_marks for habits in _HABITS))
"""Fields of a responses request's items that no model sees."""

ENVELOPES = tuple(envelope for habits in _HABITS for envelope in habits.envelopes)
"""What agents put around a person's words: channel, sender, time."""
BLOCKS = frozenset[str]().union(*(habits.blocks for habits in _HABITS))
"""Tags in which agents put notes of their own into a person's message."""


def session_in_user(user: Any) -> Any:
    """The session that an agent names in what it says of its user (`metadata.user_id`), as it was sent; or None."""
    if not isinstance(user, str):
        return None
    found = (habits.session_in_user(user) for habits in _HABITS if habits.session_in_user is not None)
    return next((session for session in found if session is not None), None)
