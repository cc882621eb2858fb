"""Session lineage: which conversation a request belongs to, and which earlier answer it reacts to. Pure functions.

Clients resend the whole history with every request. The hash of a history and its answer is what the next request
must begin with, so lineage needs no header; a session id from the client, where there is one, narrows the search.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Protocol

from turnwise.types import Message, TurnKind, TurnState

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)


class RecordedTurn(Protocol):
    """The columns of a recorded turn that lineage looks at."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def context_hash(self) -> str | None: ...
    @property
    def next_state_at(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request belongs.

    ``parent``: the turn whose history and answer the request begins with. ``added``: the messages after that (all of
    them when there is no parent). ``answers``: the turn these messages are the next state of, if any.
    """

    session_id: str | None  # None: a new session
    branch_of: str | None
    parent: RecordedTurn | None
    added: list[Message]
    answers: str | None
    next_state: list[Message]


def canonical(message: Message) -> str:
    """A message as text in which only what a model sees counts.

    Content as a string or as a list of text parts is the same; so are tool calls whatever their ids, and marks such as
    `cache_control`. Surrounding white space of the content is ignored, because clients trim it.
    """
    calls = [
        [call.get("function", {}).get("name"), _arguments(call.get("function", {}).get("arguments"))]
        for call in message.get("tool_calls") or []
    ]
    return json.dumps([message.get("role"), content_text(message).strip(), calls], ensure_ascii=False, sort_keys=True)


def content_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


def _arguments(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except json.JSONDecodeError:
            return arguments
    return arguments


def chain_hashes(messages: list[Message], seed: str = "") -> list[str]:
    """`hashes[i]` stands for `messages[: i + 1]`; a continued conversation repeats the earlier hashes."""
    hashes = []
    value = hashlib.sha256(seed.encode()).hexdigest()
    for message in messages:
        value = hashlib.sha256(f"{value}\n{canonical(message)}".encode("utf-8", "surrogatepass")).hexdigest()
        hashes.append(value)
    return hashes


def extend_hash(value: str, message: Message) -> str:
    """The chain hash after one more message."""
    return hashlib.sha256(f"{value}\n{canonical(message)}".encode("utf-8", "surrogatepass")).hexdigest()


def place(
    messages: list[Message],
    hashes: list[str],
    candidates: list[RecordedTurn],
    *,
    explicit_session: str | None,
    last_in_session: RecordedTurn | None,
    last_answer: Message | None,
) -> Placement:
    """Find a main request's place among `candidates`, the turns whose context hash is among `hashes`, newest first.

    `last_in_session` and `last_answer` are the latest turn of the explicit session and what it said; they matter when
    the client rewrote its history, so that no hash fits.
    """
    by_length = {value: i + 1 for i, value in enumerate(hashes)}
    fitting = [c for c in candidates if c.context_hash in by_length and by_length[c.context_hash] < len(messages)]
    if fitting:
        longest = max(by_length[c.context_hash or ""] for c in fitting)
        best = [c for c in fitting if by_length[c.context_hash or ""] == longest]
        waiting = [c for c in best if c.state == TurnState.WAITING]
        parent = (waiting or best)[0]
        added = messages[longest:]
        rewritten = any(m["role"] == "assistant" for m in added)
        if not rewritten:
            fresh = parent.next_state_at is None
            branched = not fresh and explicit_session is None
            return Placement(
                session_id=None if branched else parent.session_id,
                branch_of=parent.session_id if branched else None,
                parent=parent,
                added=added,
                answers=parent.id if fresh else None,
                next_state=added if fresh else [],
            )
        if explicit_session is None:
            return Placement(None, parent.session_id, None, messages, None, [])
    if explicit_session is not None and last_in_session is not None and last_answer is not None:
        reaction = reaction_to(messages, last_answer)
        fresh = last_in_session.next_state_at is None
        if reaction and fresh:
            return Placement(explicit_session, None, None, messages, last_in_session.id, reaction)
    return Placement(explicit_session, None, None, messages, None, [])


def reaction_to(messages: list[Message], answer: Message) -> list[Message]:
    """What follows the last assistant message, if that message is `answer` as a client may have rewritten it."""
    positions = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not positions or _loose(messages[positions[-1]]) != _loose(answer):
        return []
    return messages[positions[-1] + 1 :]


def _loose(message: Message) -> tuple[str, list[str]]:
    text = " ".join(_THINK.sub("", content_text(message)).split())
    return text, [call.get("function", {}).get("name", "") for call in message.get("tool_calls") or []]


SIDE_RULES: list[tuple[str, re.Pattern[str]]] = [
    (
        "title",
        re.compile(
            r"\b(generate|write|create|suggest)\b.{0,60}\btitle\b.{0,80}\b(conversation|chat|session|thread)",
            re.I | re.S,
        ),
    ),
    (
        "title",
        re.compile(r"\b(summari[sz]e|name)\b.{0,40}\b(conversation|chat)\b.{0,60}\b(words?|title)\b", re.I | re.S),
    ),
    ("heartbeat", re.compile(r"^\W*heartbeat\b|\bHEARTBEAT_OK\b", re.I)),
    ("memory", re.compile(r"\b(memory flush|flush (your |the )?memor|store durable memories)\b", re.I)),
    ("suggestions", re.compile(r"\bsuggest\b.{0,40}\bfollow[- ]?up (questions|prompts)\b", re.I | re.S)),
]
"""Requests that an agent makes for its own housekeeping, by the words of their last message."""


def side_rule(messages: list[Message], max_tokens: int | None) -> str | None:
    """The name of the rule that makes this request a side turn, or None for the agent's own work.

    Only the last message counts, up to its first 600 characters, so that a long document which happens to contain such
    words is no side turn. A request for a single token is a probe.
    """
    if max_tokens == 1:
        return "probe"
    text = content_text(messages[-1])
    if messages[-1]["role"] != "user" or len(text) > 4000:
        return None
    return next((name for name, pattern in SIDE_RULES if pattern.search(text[:600])), None)


def turn_kind(header: str | None, messages: list[Message], max_tokens: int | None) -> TurnKind:
    """The client's word, when it gives one; else the rules above."""
    if header:
        return TurnKind(header)
    return TurnKind.SIDE if side_rule(messages, max_tokens) else TurnKind.MAIN
