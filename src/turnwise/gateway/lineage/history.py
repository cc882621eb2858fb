"""Session lineage: which conversation a request belongs to, and which earlier answer it reacts to. Pure functions.

Clients resend the whole history with every request. The hash of a history and its answer is what the next request
must begin with, so lineage needs no header; a session id from the client, where there is one, narrows the search.

A client may also send another history than before: a message of its own that moves to the end with every request, a
changed system prompt, a summary in place of old turns. Then the answers themselves are the thread to follow: all of
them in their order, or the last one alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from turnwise.agents.known import ASKS, IN_FIRST_OF_TWO, INSTRUCTS, INTERNAL
from turnwise.agents.shape import HOUSEKEEPING, Words
from turnwise.journal import PossibleParent
from turnwise.messages import LEFT_OUT, calls_of, canonical, digest_of, images_of, text_of, without_pictures
from turnwise.types import Message, TurnKind, TurnState


class Lineage(StrEnum):
    """What a request was found to be: the header `x-turnwise-lineage`."""

    NEW = "new"
    CONTINUED = "continued"
    BRANCH = "branch"
    REGENERATED = "regenerated"
    RETRY = "retry"
    SIDE = "side"
    UNRECOGNISED = "unrecognised"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request belongs.

    ``parent``: the turn whose history and answer the request begins with. ``added``: the messages after that (all of
    them when there is no parent). ``answers``: the turn these messages are the next state of, if any. ``follows``: the
    turn this one comes after, where it has no parent because its history is another.
    """

    session_id: str | None  # None: a new session
    branch_of: str | None
    parent: PossibleParent | None
    added: list[Message]
    answers: str | None
    next_state: list[Message]
    follows: str | None = None

    @property
    def behind(self) -> str | None:
        """The turn this one comes after, whether its history is the same or another."""
        return self.follows if self.parent is None else self.parent.id


@dataclass(frozen=True, slots=True)
class History:
    """What a history is found by: ``chain[i]`` stands for its first i + 1 messages, ``thread`` for all its answers."""

    chain: list[str]
    thread: str | None


def hash_history(messages: list[Message]) -> History:
    """Each message is read once; a continued conversation repeats the earlier chain."""
    chain: list[str] = []
    value, thread = "", None
    for message in messages:
        digest = digest_of(message)
        value = _extend(value, digest)
        chain.append(value)
        if message.role == "assistant":
            thread = _extend(thread or "", digest)
    return History(chain, thread)


def hash_answer(context: str, thread: str | None, answer: Message) -> tuple[str, str, str]:
    """The hashes of a history and its answer, of the thread with it, and of the answer alone."""
    digest = digest_of(answer)
    return _extend(context, digest), _extend(thread or "", digest), digest


def _extend(value: str, digest: str) -> str:
    return hashlib.sha256(f"{value}{digest}".encode()).hexdigest()


def last_answer_at(messages: list[Message]) -> int | None:
    """The position of the last assistant message."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)


def is_telling(answer: Message) -> bool:
    """Whether an answer is unlikely to be given twice, so that it alone can tell its session."""
    words = text_of(answer).split()
    return len(words) >= 8 or any(len(call.arguments) > 12 for call in calls_of(answer))


def place_exactly(
    messages: list[Message],
    hashes: list[str],
    candidates: Sequence[PossibleParent],
    explicit_session: str | None,
    by_id: tuple[str, ...] = (),
) -> Placement | None:
    """A request's place among `candidates`, the turns whose context hash is among `hashes`, newest first.

    Of turns with the same history and answer it is the one that the client names by a call's id (`by_id`: how turn ids
    begin), else the newest that waits. None when no recorded history is the beginning of this one.
    """
    by_length = {value: i + 1 for i, value in enumerate(hashes)}
    fitting = [c for c in candidates if c.context_hash in by_length and by_length[c.context_hash] < len(messages)]
    if not fitting:
        return None
    longest = max(by_length[c.context_hash or ""] for c in fitting)
    best = [c for c in fitting if by_length[c.context_hash or ""] == longest]
    named = [c for c in best if c.id.startswith(by_id)]
    waiting = [c for c in best if c.state == TurnState.WAITING]
    parent = (named or waiting or best)[0]
    added = messages[longest:]
    if any(m.role == "assistant" for m in added):
        return None  # it goes on with an answer that is not ours
    fresh = parent.next_state_at is None
    branched = not fresh and explicit_session is None
    return Placement(
        session_id=None if branched else parent.session_id,
        branch_of=parent.session_id if branched else None,
        parent=parent,
        added=added,
        answers=parent.id if fresh else None,
        next_state=own_words(added) if fresh else [],
    )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How a history differs from the recorded one that has the same answers.

    ``moved``: only messages at the end of the recorded request, or system messages, are gone; the session goes on.
    Otherwise the client changed what was said, which makes a branch. ``likeness``: the share of the recorded messages
    that are still there. ``reaction``: the new messages after the last answer, without those that stand there anew
    with every request.
    """

    moved: bool
    likeness: float
    reaction: list[Message]


def compare_histories(old: list[Message], new: list[Message]) -> Rewritten:
    """Compare a recorded request `old` with a `new` one that contains its answer as the last assistant message."""
    at = last_answer_at(new)
    assert at is not None
    kept = Counter(canonical(message) for message in new[:at])
    less = Counter(without_pictures(message) for message in new[:at] if LEFT_OUT in text_of(message))
    said = [message for message in old if message.role not in ("assistant", "system")]
    gone = [
        i
        for i, message in enumerate(said)
        if not _take(kept, canonical(message)) and not (images_of(message) and _take(less, without_pictures(message)))
    ]
    moved = all(i == len(said) - 1 and said[i].role == "user" for i in gone) and len(said) > len(gone)
    likeness = 1.0 - len(gone) / max(len(said), 1)
    reaction = new[at + 1 :]
    if gone and moved and len(reaction) > 1 and reaction[-1].role == "user":
        reaction = reaction[:-1]  # the message that moves: the client's own, not a reaction
    return Rewritten(moved, likeness, own_words(reaction))


def own_words(reaction: list[Message]) -> list[Message]:
    """A reaction without the messages that the agent puts behind it for itself, unless there is nothing else."""
    return [message for message in reaction if not is_internal(message)] or reaction


def _take(counts: Counter[str], key: str) -> bool:
    if not counts[key]:
        return False
    counts[key] -= 1
    return True


def is_internal(message: Message) -> bool:
    """Whether an agent puts this message at the end of a request for itself, behind what is asked."""
    if message.role != "user":
        return False
    text = text_of(message)[:80]
    return any(begins.search(text) for begins in INTERNAL)


def side_rule(messages: list[Message], max_tokens: int | None) -> str | None:
    """The kind of side turn that this request is by an agent's rules, or None for its own work.

    Only the message that is being worked on counts: the last one, or for housekeeping the user's last one when calls
    and their results follow it. Its first 600 characters, so that a long document which happens to contain such words
    is no side turn. Or the first of two where a conversation begins with two of the user's, for the kinds that an agent
    asks for so. A request for a single token is a probe.
    """
    if max_tokens == 1:
        return "probe"
    asked = [message for message in messages if message.role != "system"]
    roles = [message.role for message in asked]
    if roles == ["user", "user"] and (kind := side_rule(asked[:1], None)) in IN_FIRST_OF_TWO:
        return kind
    if roles == ["user"] and len(messages) == 2:
        instructed = _first_match(INSTRUCTS, messages[0])
        if instructed is not None:
            return instructed
    begins = _exchange_start(messages, len(messages))
    if begins is None:
        return None
    rule = _first_match(ASKS, messages[begins])
    under_way = any(not is_internal(message) for message in messages[begins + 1 :])
    return None if under_way and rule not in HOUSEKEEPING else rule


def _first_match(rules: Words, message: Message) -> str | None:
    text = text_of(message)
    begins = text[:600]
    return next((name for name, rule in rules if rule.search(begins)), None) if len(text) <= 4000 else None


def _exchange_start(messages: list[Message], end: int) -> int | None:
    """The user's message that the calls and results before `end` belong to; None where an answer stands between."""
    at = end - 1
    while at >= 0 and (messages[at].role == "tool" or calls_of(messages[at]) or is_internal(messages[at])):
        at -= 1
    return at if at >= 0 and messages[at].role == "user" else None


def without_side_tail(messages: list[Message]) -> list[Message]:
    """The history without the housekeeping between the agent's last own answer and what is asked now.

    A heartbeat that stays in the history is none of the turns a message reacts to.
    """
    at = last_answer_at(messages)
    end = begin = 0 if at is None else at + 1
    while begin and messages[begin - 1].role == "assistant":
        start = _exchange_start(messages, begin - 1)
        if start is None or _first_match(ASKS, messages[start]) not in HOUSEKEEPING:
            break
        begin = start
    return messages[:begin] + messages[end:]


def turn_kind(header: str | None, messages: list[Message], max_tokens: int | None) -> TurnKind:
    """The client's word, when it gives one; else the rules above."""
    if header:
        return TurnKind(header)
    return TurnKind.SIDE if side_rule(messages, max_tokens) else TurnKind.MAIN
