"""Where a request belongs: looks the candidates up in the journal and lets `history` decide.

In this order: the history and answer of a recorded turn are the beginning of the request; its last answer has the id
of a tool call that we gave it (a client that rewrites answers); it is an earlier request with an answer that begins as
ours does (a client that writes something behind answers); the request has the same answers in the same order (a client
that rewrites its history), or the same but for calls and their results (a client that keeps what was said); its last
answer is one that only one session can have given (a client that compacted it); the same for the last answer but one,
where the client put an answer of its own behind it; the session that the client named; else a new session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from turnwise.gateway.lineage.history import (
    History,
    Lineage,
    Placement,
    Rewritten,
    compare_histories,
    hash_history,
    is_telling,
    last_answer_at,
    own_words,
    place_exactly,
    without_side_tail,
)
from turnwise.gateway.lineage.issued_calls import as_one_answer, beginnings, called, issued
from turnwise.journal import Journal, PossibleParent, SameRequest
from turnwise.messages import answer_of, answer_words, calls_of, canonical, digest_of, text_of
from turnwise.patterns import anchored
from turnwise.types import UNANSWERED, Message

LIKE_ENOUGH = 0.5
"""Share of a recorded request's messages that a rewritten history must still have to count as the same session."""


MOST_COMPARED = 5
"""Turns with one answer whose whole requests are read and compared."""

LONG_ENOUGH = 16
"""Characters of an answer that is known again in a longer one."""

MOST_PUT_BEHIND = 3
"""Answers of a client's own that are looked past to find ours."""

_COUNTED = anchored(r"^(.+:)(\d{1,6})$")


@dataclass(frozen=True, slots=True)
class Claim:
    """What the client says of its session. A ``weak`` id, such as a cache key, may be shared by conversations.

    ``main``: it says itself that this is a main turn. ``asked``: the hash of this request with the history that a hash
    stands for in place of its own.
    """

    client: str
    session_id: str | None
    weak: bool = False
    main: bool = False
    asked: Callable[[str], str] | None = None


def place(journal: Journal, messages: list[Message], history: History, claim: Claim) -> Placement:
    """The place of a main request; ``history`` are the hashes of its messages."""
    session = own_session(journal, claim)
    main = messages if claim.main else without_side_tail(messages)
    if len(main) < len(messages):
        found = _place(journal, main, hash_history(main), claim, session)
        # What was left out is in the prompt: it is rendered anew.
        return replace(found, parent=None, follows=found.behind, added=messages)
    return _place(journal, messages, history, claim, session)


def _place(journal: Journal, messages: list[Message], history: History, claim: Claim, session: str | None) -> Placement:
    found = _find(journal, messages, history, claim, session)
    if found is not None and found.answers is None and session is not None and claim.weak:
        # Of two conversations under one key with the same answers, one may wait for this.
        elsewhere = _find(journal, messages, history, replace(claim, session_id=None), None)
        if elsewhere is not None and elsewhere.parent is not None and elsewhere.answers is not None:
            return elsewhere
    if found is None and session is not None and claim.weak:
        elsewhere = _find(journal, messages, history, replace(claim, session_id=None), None)
        if journal.lookups.has_answers(session):  # another conversation has this key
            return elsewhere or Placement(None, None, None, messages, None, [])
        elsewhere = elsewhere or _by_counted_key(journal, messages, claim, session)
        if elsewhere is not None:  # the key is new: a client may change it when it compacts
            found = replace(elsewhere, session_id=session, branch_of=elsewhere.session_id or elsewhere.branch_of)
    return found or Placement(session, None, None, messages, None, [])


def repeated(same: list[SameRequest], placement: Placement, messages: list[Message], named: bool) -> SameRequest | None:
    """The turn that a main request asks again, for a lost or a regenerated answer; None where it repeats none.

    ``same`` are the turns with this very request, newest first. The same words are no repetition where a turn waits for
    them: a conversation that is held once more with the same answers began with a turn of its own, and each of its
    requests is what that one, and then the next, waits for. Where nothing stands before them, as with a first message
    or examples, the words say nothing of their session unless it is ``named``; nor do they repeat a turn that the
    conversation went on from.
    """
    if not same or placement.answers is not None:
        return None
    places = (placement.session_id, placement.branch_of)
    earlier = next((row for row in same if row.session_id in places), same[0])
    if placement.behind is None and (earlier.next_state_at is not None or not named):
        return None
    return earlier if named or last_answer_at(messages) is not None else None


def lineage_of(journal: Journal, messages: list[Message], placement: Placement) -> Lineage:
    """What a main request is that repeats none."""
    behind = placement.behind
    if behind is None:
        return Lineage.NEW if last_answer_at(messages) is None else Lineage.UNRECOGNISED
    if placement.branch_of is not None or (placement.answers is None and journal.lookups.was_answered_by(behind)):
        return Lineage.BRANCH
    return Lineage.CONTINUED


def _by_counted_key(journal: Journal, messages: list[Message], claim: Claim, session: str) -> Placement | None:
    """A key that ends in a count, one more than that of a session with this answer: the client compacted that one.

    The answer is the last of that session and of the same client, and it was new there: an answer that stood in the
    request already, an example say, tells nothing.
    """
    at, counted = last_answer_at(messages), _COUNTED.match(session)
    if at is None or counted is None:
        return None
    before = f"{counted[1]}{int(counted[2]) - 1}"
    if journal.lookups.session_client(before) != claim.client:
        return None
    found = _by_answer(journal, messages, at, Claim(claim.client, before), before)
    if found is None or found.answers is None or canonical(messages[at]) in _answers_in(journal, found.answers):
        return None
    return found


def _answers_in(journal: Journal, turn_id: str) -> set[str]:
    """The assistant messages of a recorded request."""
    return {canonical(m) for m in journal.lookups.messages(turn_id) if m.role == "assistant"}


def own_session(journal: Journal, claim: Claim) -> str | None:
    """The session that the client named; under a name of its own where another client has that name already."""
    if claim.session_id is None:
        return None
    owner = journal.lookups.session_client(claim.session_id)
    if owner is None or owner == claim.client:
        return claim.session_id
    return f"{claim.session_id}~{claim.client[:8]}"


def _find(
    journal: Journal, messages: list[Message], history: History, claim: Claim, session: str | None
) -> Placement | None:
    at = last_answer_at(messages)
    if at is None:
        return None
    after_answers = [history.chain[i] for i in range(len(messages) - 1) if messages[i].role == "assistant"]
    # A client that updates itself changes its name, but not its history: in a named session any client's turns count.
    named = claim.session_id
    by_id = beginnings(issued(messages[at]))
    for scope in dict.fromkeys((named, session)):
        candidates: list[PossibleParent] = [*journal.lookups.by_context(claim.client, after_answers, scope)]
        if by_id and not any(turn.id.startswith(by_id) for turn in candidates):  # it may be one of very many alike
            named_turns = journal.lookups.by_beginning(claim.client, by_id)
            candidates += [turn for turn in named_turns if scope in (None, turn.session_id)]
        exact = place_exactly(messages, history.chain, candidates, scope, by_id)
        if exact is not None:
            return _same_session_after_failures(journal, exact)
    return (
        _by_call(journal, messages, at, claim, session)
        or _by_request(journal, messages, history, at, claim, session)
        or _by_thread(journal, messages, history, claim, session)
        or _by_what_was_said(journal, messages, at, claim, session)
        or _by_answer(journal, messages, at, claim, session)
        or _by_answer_before(journal, messages, at, claim, session)
    )


def _same_session_after_failures(journal: Journal, placement: Placement) -> Placement:
    """A client that resends other words because no answer came has not branched off."""
    parent = placement.parent
    if placement.branch_of is None or parent is None or journal.lookups.was_answered_by(parent.id):
        return placement
    return replace(placement, session_id=parent.session_id, branch_of=None)


def _by_thread(
    journal: Journal, messages: list[Message], history: History, claim: Claim, session: str | None
) -> Placement | None:
    if history.thread is None:
        return None
    best: tuple[tuple[float, bool], Placement] | None = None
    for row in journal.lookups.by_thread(claim.client, history.thread, session)[:MOST_COMPARED]:
        change = compare_histories(journal.lookups.messages(row.id), messages)
        if change.likeness < LIKE_ENOUGH and session is None:
            continue
        placement = _rewritten(journal, row, change, messages, session)
        fit = change.likeness, placement.answers is not None
        if best is None or fit > best[0]:
            best = fit, placement
    return best[1] if best else None


def _rewritten(
    journal: Journal, row: PossibleParent, change: Rewritten, messages: list[Message], session: str | None
) -> Placement:
    """The place behind a turn whose history is another one now."""
    fresh = row.next_state_at is None
    same = session is not None or (change.moved and (fresh or not journal.lookups.was_answered_by(row.id)))
    return Placement(
        session_id=row.session_id if same else None,
        branch_of=None if same else row.session_id,
        parent=None,
        added=messages,
        answers=row.id if fresh else None,
        next_state=change.reaction if fresh else [],
        follows=row.id,
    )


def _by_call(journal: Journal, messages: list[Message], at: int, claim: Claim, session: str | None) -> Placement | None:
    """A client that rewrites answers, but sends back the id that we gave a call: its turn is named."""
    calls, text = issued(messages[at]), text_of(messages[at])
    for row in journal.lookups.by_beginning(claim.client, beginnings(calls)):
        if session not in (None, row.session_id) or not called(row.id, row.answer or answer_of(""), calls, text):
            continue
        whole = as_one_answer(messages, at, row.id)
        change = compare_histories(journal.lookups.messages(row.id), whole)
        return _rewritten(journal, row, change, messages, session)
    return None


def _by_request(
    journal: Journal, messages: list[Message], history: History, at: int, claim: Claim, session: str | None
) -> Placement | None:
    """A client that writes something behind an answer of ours: some put the program there again that they ran.

    Up to that answer the request is the very one that we gave it to.
    """
    sent = answer_words(messages[at])
    if at == 0 or claim.asked is None or calls_of(messages[at]):
        return None
    rows = journal.lookups.same_request(claim.client, claim.asked(history.chain[at - 1]))
    whole = [row for row in rows if row.finish_reason is not None and row.finish_reason not in UNANSWERED]
    for same in sorted(whole, key=_has_next_state):
        row = journal.lookups.turn(same.id) if session in (None, same.session_id) else None
        if row is None:
            continue
        ours = row.answer or answer_of("")
        words = answer_words(ours)
        if not calls_of(ours) and len(words) >= LONG_ENOUGH and sent.startswith(words):
            change = compare_histories(journal.lookups.messages(row.id), messages)
            return _rewritten(journal, row, change, messages, session)
    return None


def _by_what_was_said(
    journal: Journal, messages: list[Message], at: int, claim: Claim, session: str | None
) -> Placement | None:
    """A client that keeps of each exchange what was said, and drops the calls and results on the way to it."""
    said = _said(messages[:at])
    rows = journal.lookups.by_answer(claim.client, digest_of(messages[at]), session)
    for row in sorted(rows, key=_has_next_state)[:MOST_COMPARED]:
        if _said(journal.lookups.messages(row.id)) == said:
            same = Rewritten(moved=True, likeness=1.0, reaction=own_words(messages[at + 1 :]))
            return _rewritten(journal, row, same, messages, session)
    return None


def _has_next_state(row: PossibleParent | SameRequest) -> bool:
    """What rows are sorted by, so that the newest that waits for one comes first."""
    return row.next_state_at is not None


def _said(messages: list[Message]) -> list[str]:
    return [canonical(m) for m in messages if m.role != "tool" and not calls_of(m)]


def _by_answer(
    journal: Journal, messages: list[Message], at: int, claim: Claim, session: str | None
) -> Placement | None:
    answer = messages[at]
    if (session is None or claim.weak) and not is_telling(answer):
        return None
    rows = journal.lookups.by_answer(claim.client, digest_of(answer), session)
    if not rows or (session is None and len({row.session_id for row in rows}) > 1):
        return None
    row = rows[0]
    fresh = row.next_state_at is None
    return Placement(
        session_id=session,
        branch_of=None if session else row.session_id,
        parent=None,
        added=messages,
        answers=row.id if fresh else None,
        next_state=own_words(messages[at + 1 :]) if fresh else [],
        follows=row.id,
    )


def _by_answer_before(
    journal: Journal, messages: list[Message], at: int, claim: Claim, session: str | None
) -> Placement | None:
    """A client that puts answers of its own behind ours, which it gives itself in the model's name.

    They are its own when they stood in the recorded request as well; any other may be another model's, and what
    follows it is no reaction to ours.
    """
    before: int | None = at
    for _ in range(MOST_PUT_BEHIND):
        before = last_answer_at(messages[:before])
        if before is None:
            return None
        shorter = messages[: before + 1] + messages[at + 1 :]
        found = _by_answer(journal, shorter, before, claim, session) if is_telling(messages[before]) else None
        if found is None or found.answers is None:
            continue
        known = _answers_in(journal, found.answers)
        behind = messages[before + 1 : at + 1]
        if any(m.role == "assistant" and canonical(m) not in known for m in behind):
            return None
        whole = known <= {canonical(m) for m in messages if m.role == "assistant"}
        same = found.branch_of if whole and session is None else found.session_id
        return replace(found, session_id=same, branch_of=None if same else found.branch_of, added=messages)
    return None
