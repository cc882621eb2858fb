"""What the gateway writes: turns as they are asked for and answered, next states, feedback, closed sessions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, insert, select, update

from turnwise.errors import TooLate, UnknownTurn
from turnwise.journal import schema
from turnwise.journal.blobs import Content
from turnwise.journal.counts import UNRECOGNISED, tell
from turnwise.journal.lookups import Lookups
from turnwise.journal.schema import pack_ids, pack_json, pack_logprobs
from turnwise.messages import calls_of, history_to_chat, saying, text_of, to_chat
from turnwise.types import REVIVABLE, Exclusion, FinishReason, Message, TurnKind, TurnState, Verdict

S, T = schema.sessions.c, schema.turns.c

# Statements of the hot path are made once: building one takes longer than SQLite takes to run it.
_NEXT_SEEN = select(func.coalesce(func.max(S.seen_seq), 0) + 1).scalar_subquery().correlate(None)
_SESSION_SEEN = (
    update(schema.sessions)
    .where(S.id == bindparam("which"))
    .values(
        last_seen_at=bindparam("now"),
        seen_mono=bindparam("mono"),
        seen_seq=_NEXT_SEEN,
        closed_at=None,
        close_reason=None,
    )
)
_NEXT_INDEX = select(func.coalesce(func.max(T.idx), -1) + 1).where(T.session_id == bindparam("which")).scalar_subquery()
_INSERT_TURN = insert(schema.turns).values(idx=_NEXT_INDEX)
_UNANSWERED = (
    select(T.kind, T.pinned, T.state, T.exclusion, S.closed_at)
    .join(schema.sessions, S.id == T.session_id)
    .where(T.id == bindparam("which"))
)
_STATE = select(T.state).where(T.id == bindparam("which"))
CLOSED_AT_ONCE = 300
"""Turns that closing a session moves in one transaction."""
_WAITING = (
    select(T.id, T.state, T.exclusion, T.response_tokens)
    .where(T.session_id == bindparam("which"), schema.WAITING)
    .limit(CLOSED_AT_ONCE + 1)
)
_MAIN = (  # as many as tell one from several
    select(T.id)
    .where(
        T.session_id == bindparam("which"),
        T.kind == TurnKind.MAIN,
        T.finish_reason.not_in([FinishReason.ABORT, FinishReason.ERROR]),
    )
    .limit(2)
)
_IN_HAND = select(T.id, T.state, T.exclusion).where(schema.SERVED)
_HAS_NEXT_STATE = select(T.state, T.exclusion, T.next_state_at).where(T.id == bindparam("which"))


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A request as the gateway understood it, before its answer.

    With ``extends_parent`` the fields ``messages`` and ``prompt_ids`` hold only what follows the parent's answer, and
    ``hint_at`` still counts from the start of the whole prompt.
    """

    id: str
    session_id: str
    client: str
    source: str
    kind: TurnKind
    parent_id: str | None
    branch_of: str | None  # the session this one branched off from, for a new session
    extends_parent: bool
    bridged: bool
    version: int
    pinned: bool
    model: str
    request_hash: str
    retry_key: str | None
    temperature: float
    hint_at: int | None
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    params: dict[str, Any]
    prompt_ids: list[int]
    prompt_tokens: int
    next_state: list[Message]  # for the turn ``answers``; empty when this is no reaction to an earlier turn
    answers: str | None  # the turn that ``next_state`` follows
    format: str = "chat"  # the wire format
    agent: str | None = None  # what the client calls itself
    unrecognised: bool = False  # its history has an answer, and no turn was found that it goes on from


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine and the parser made of a turn. ``logprobs`` is None when the engine gave none. ``used`` are the
    tokens of prompt and answer as an upstream counts them, and ``too_long`` is whether it took the prompt for that.
    ``supersedes`` is the turn whose place this one takes, unless it failed or was broken off.

    The hashes are those that `gateway.lineage` finds a turn by; None for an answer that was cut short.
    """

    message: Message
    context_hash: str | None
    finish_reason: FinishReason
    response_ids: list[int]
    logprobs: list[float] | None
    thread_hash: str | None = None
    answer_hash: str | None = None
    stop_string: str | None = None
    used: tuple[int, int] | None = None
    too_long: bool = False
    supersedes: str | None = None


class Recording(Lookups):
    """The gateway's side of the journal."""

    def begin_turn(self, new: NewTurn) -> None:
        """Record a request, and its messages as the next state of the turn it answers: durable before generation."""
        self.begin_turn_soon(new).result()

    def begin_turn_soon(self, new: NewTurn) -> Future[None]:
        """`begin_turn` with the next group of writes: the future is done once the request is durable."""
        now, mono = self.clock(), self.monotonic()
        row = {
            "which": new.session_id,
            "id": new.id,
            "session_id": new.session_id,
            "kind": new.kind,
            "state": TurnState.SERVED,
            "state_at": now,
            "parent_id": new.parent_id,
            "extends_parent": new.extends_parent,
            "bridged": new.bridged,
            "version": new.version,
            "pinned": new.pinned,
            "model": new.model,
            "client": new.client,
            "request_hash": new.request_hash,
            "retry_key": new.retry_key,
            "format": new.format,
            "temperature": new.temperature,
            "hint_at": new.hint_at,
            "created_at": now,
            "prompt_tokens": new.prompt_tokens,
            "response_tokens": 0,
            "messages": pack_json(history_to_chat(new.messages)),
            "params": pack_json(new.params),
            "prompt_ids": pack_ids(new.prompt_ids),
            "attempts": 0,
            "retry_at": 0.0,
            "begun_mono": mono,
        }

        tools = Content(new.tools) if new.tools else None

        def write(c: Connection) -> None:
            if new.extends_parent and c.execute(_STATE, {"which": new.parent_id}).one_or_none() is None:
                raise UnknownTurn(f"turn {new.parent_id}, which this goes on from, was deleted meanwhile; ask again")
            if c.execute(_SESSION_SEEN, {"which": new.session_id, "now": now, "mono": mono}).rowcount == 0:
                self._open_session(c, new, now, mono)
            if new.answers is not None and new.next_state:
                self._next_state(c, new.answers, new.next_state, now)
            if new.unrecognised:
                tell(c, UNRECOGNISED)
            c.execute(_INSERT_TURN, row | {"tools_id": tools.store(c) if tools else None})

        return self.writes.submit(write)

    def _open_session(self, c: Connection, new: NewTurn, now: float, mono: float) -> None:
        c.execute(
            insert(schema.sessions).values(
                id=new.session_id,
                client=new.client,
                source=new.source,
                agent=new.agent,
                parent_id=new.branch_of,
                created_at=now,
                last_seen_at=now,
                seen_mono=mono,
                seen_seq=_NEXT_SEEN,
            )
        )

    def finish_turn(self, turn_id: str, answer: Answer) -> None:
        """Record the complete answer: served -> waiting, or excluded when it can never be trained on."""
        self.finish_turn_soon(turn_id, answer).result()

    def finish_turn_soon(self, turn_id: str, answer: Answer) -> Future[None]:
        """`finish_turn` with the next group of writes: the future is done once the answer is durable."""
        columns = {
            "context_hash": answer.context_hash,
            "thread_hash": answer.thread_hash,
            "answer_hash": answer.answer_hash,
            "finish_reason": answer.finish_reason,
            "answered_at": self.clock(),
            "response_tokens": len(answer.response_ids),
            "answer": pack_json(to_chat(answer.message) | _stopped_by(answer)),
            "response_ids": pack_ids(answer.response_ids),
            "logprobs": pack_logprobs(answer.logprobs),
        }
        if answer.used is not None:
            columns["used_prompt"], columns["used_response"] = answer.used

        def write(c: Connection) -> None:
            row = c.execute(_UNANSWERED, {"which": turn_id}).one_or_none()
            if row is None:
                return  # it was forgotten while it was being answered
            reason = _why_excluded(row, answer)
            to = TurnState.EXCLUDED if reason else TurnState.WAITING
            self.move(c, turn_id, to, exclusion=reason, row=row, **columns)
            if answer.supersedes is not None and answer.finish_reason not in (FinishReason.ABORT, FinishReason.ERROR):
                self._supersede(c, answer.supersedes)
            self.log(c, "turn", turn_id, {})

        return self.writes.submit(write)

    def recover_interrupted(self, lost: Callable[[str], bool] | None = None) -> int:
        """Exclude turns that a dead gateway left unanswered. Called by the gateway of a home at its start.

        With `lost`, only those of which it says so: their answers have lost their end. It is asked while nobody else
        writes, so what it says of a turn that it holds cannot be overtaken by the turn's own end.
        """
        with self.reading() as c:
            if not c.execute(_IN_HAND.limit(1)).first():
                return 0
        with self.transaction() as c:
            rows = [row for row in c.execute(_IN_HAND).all() if lost is None or lost(row.id)]
            self.move_all(c, rows, TurnState.EXCLUDED, Exclusion.INTERRUPTED)
            return len(rows)

    def react(self, turn_id: str, messages: list[Message]) -> None:
        """Record what came back to a turn, alone: it cannot be answered, so no turn of its own comes of it."""
        now, mono = self.clock(), self.monotonic()

        def write(c: Connection) -> None:
            session = c.execute(select(T.session_id).where(T.id == turn_id)).scalar_one_or_none()
            if session is not None:
                c.execute(_SESSION_SEEN, {"which": session, "now": now, "mono": mono})
                self._next_state(c, turn_id, messages, now)

        self.writes.submit(write).result()

    def _next_state(self, c: Connection, turn_id: str, messages: list[Message], now: float) -> None:
        row = c.execute(_HAS_NEXT_STATE, {"which": turn_id}).one_or_none()
        if row is None or row.next_state_at is not None:
            return  # a turn has one next state: the first that came
        stored = history_to_chat(messages)
        columns = {"next_state": pack_json(stored), "next_state_at": now}
        if row.state == TurnState.WAITING:
            self.move(c, turn_id, TurnState.JUDGING, row=row, **columns)
        else:
            c.execute(update(schema.turns).where(T.id == turn_id).values(columns))
        self.log(c, "next_state", turn_id, {"messages": stored})

    def _supersede(self, c: Connection, turn_id: str) -> None:
        state = c.execute(select(T.state).where(T.id == turn_id)).scalar_one_or_none()
        if state == TurnState.WAITING:
            self.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.SUPERSEDED)

    # -- sessions and feedback ----------------------------------------------------------------------------------

    def close_session(self, session_id: str, reason: str, idle_before: float | None = None) -> bool:
        """Close a session: its turns without a next state are excluded, or kept if binary RL needs the only one.

        With `idle_before`, in seconds of the monotonic clock, only if it is idle still: not seen since, and no answer
        under way. Returns False when there is no such session, or it is not idle. Closing twice is harmless.
        """
        while True:
            with self.transaction() as c:
                row = c.execute(select(S.closed_at).where(S.id == session_id)).one_or_none()
                if row is None:
                    return False
                if idle_before is not None and not c.execute(_idle(idle_before).where(S.id == session_id)).first():
                    return False
                waiting = c.execute(_WAITING, {"which": session_id}).all()
                if len(waiting) > CLOSED_AT_ONCE:
                    self.move_all(c, waiting, TurnState.EXCLUDED, Exclusion.NO_NEXT_STATE)
                    continue  # it is closed once the rest of them fits into one short transaction
                if row.closed_at is None:
                    c.execute(
                        update(schema.sessions)
                        .where(S.id == session_id)
                        .values(closed_at=self.clock(), close_reason=reason)
                    )
                keeps = self.config.train.method == "binary" and len(waiting) == 1 and waiting[0].response_tokens > 0
                if keeps and len(c.execute(_MAIN, {"which": session_id}).all()) == 1:
                    self.move(c, waiting[0].id, TurnState.READY)
                    c.execute(insert(schema.samples).values(turn_id=waiting[0].id, reward=0.0, **self._ready()))
                else:
                    self.move_all(c, waiting, TurnState.EXCLUDED, Exclusion.NO_NEXT_STATE)
            return True

    def idle_sessions(self, before: float) -> list[str]:
        """Open sessions last seen before this time of the monotonic clock that have no answer under way."""
        with self.reading() as c:
            return [row.id for row in c.execute(_idle(before).limit(200))]

    @staticmethod
    def takes_feedback(state: TurnState, exclusion: str | None) -> bool:
        """Whether the person's word can still change what is learned from a turn."""
        open_states = {TurnState.WAITING, TurnState.JUDGING, TurnState.READY}
        return state in open_states or (state is TurnState.EXCLUDED and exclusion in REVIVABLE)

    def feedback(self, turn_id: str, score: int | None, text: str | None) -> str:
        """The person's own word on a turn; it outranks every judge. Returns what came of it, as a sentence.

        A score alone or with text (the text becomes the hint) settles the verdict. Text alone is the next state, for
        the judge. Raises UnknownTurn, and TooLate for one that is past being judged.
        """
        with self.transaction() as c:
            row = c.execute(select(T.state, T.exclusion).where(T.id == turn_id)).one_or_none()
            if row is None:
                raise UnknownTurn(f"there is no turn {turn_id}")
            state = TurnState(row.state)
            if score is None:
                if state is TurnState.WAITING:
                    self._next_state(c, turn_id, [saying("user", text or "")], self.clock())
                    return "taken as the turn's next state"
                raise TooLate(f"the turn is already {state}; send a score to change its verdict")
            verdict = Verdict(score=score, hint=text, judge="person", reason="explicit feedback")
            if not self.takes_feedback(state, row.exclusion):
                self._insert_verdict(c, turn_id, verdict)
                return f"recorded, but the turn is already {row.exclusion or state}"
            self._settle(c, turn_id, verdict)
            return "taken as the turn's verdict"

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _settle(self, c: Connection, turn_id: str, verdict: Verdict) -> None:
        """Record a verdict and make the turn a sample, or exclude it for want of a signal."""
        self._insert_verdict(c, turn_id, verdict)
        self.move(c, turn_id, TurnState.JUDGED)
        c.execute(schema.samples.delete().where(schema.samples.c.turn_id == turn_id))
        method = self.config.train.method
        turn = c.execute(select(T.response_tokens, T.hint_at).where(T.id == turn_id)).one()
        # A hint without a place in the prompt teaches nothing.
        hint = verdict.hint if method in ("combined", "opd") and turn.hint_at is not None else None
        reward = float(verdict.score) if method in ("combined", "binary") else 0.0
        if reward == 0 and not hint:
            self.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.NO_SIGNAL)
            return
        if not turn.response_tokens:
            self.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.NOT_TRAINABLE)
            return
        c.execute(insert(schema.samples).values(turn_id=turn_id, reward=reward, hint=hint, **self._ready()))
        self.move(c, turn_id, TurnState.READY)

    def _ready(self) -> dict[str, float]:
        return {"created_at": self.clock(), "ready_mono": self.monotonic()}

    def _insert_verdict(self, c: Connection, turn_id: str, verdict: Verdict) -> None:
        votes = [{"score": v.score, "hint": v.hint, "raw": v.raw} for v in verdict.votes]
        said = {name: getattr(verdict, name) for name in ("judge", "score", "hint", "reason")}
        cost = {name: getattr(verdict, name) for name in ("prompt_tokens", "completion_tokens", "seconds")}
        row = {"turn_id": turn_id, "votes": pack_json(votes), "created_at": self.clock()}
        c.execute(insert(schema.verdicts).values(row | said | cost))
        self.log(c, "verdict", turn_id, {**said, "votes": votes, "cost": cost})


def _idle(before: float) -> Select[tuple[str]]:
    """Open sessions last seen before this time of the monotonic clock, with no answer under way."""
    busy = select(T.session_id).where(schema.SERVED)
    return select(S.id).where(S.closed_at.is_(None), S.seen_mono < before, S.id.not_in(busy))


def _stopped_by(answer: Answer) -> dict[str, str]:
    """What is stored of the stop string that ended an answer, beside its message."""
    return {"stop_string": answer.stop_string} if answer.stop_string else {}


def _why_excluded(row: Any, answer: Answer) -> Exclusion | None:
    """Why an answered turn can never be trained on, or None."""
    if answer.finish_reason is FinishReason.ABORT:
        return Exclusion.ABORTED
    if answer.finish_reason is FinishReason.ERROR:
        return Exclusion.TOO_LONG if answer.too_long else Exclusion.INFRASTRUCTURE
    if answer.finish_reason is FinishReason.CONTENT_FILTER:
        return Exclusion.CONTENT_FILTER  # what a filter says is not the model's doing, so there is nothing to judge
    if row.kind == TurnKind.SIDE:
        return Exclusion.SIDE_TURN
    if row.pinned:
        return Exclusion.PINNED_VERSION
    if not answer.response_ids and not (text_of(answer.message) or calls_of(answer.message)):
        return Exclusion.NOT_TRAINABLE  # nothing was said; an upstream's answer without ids is still judged
    if row.closed_at is not None:
        return Exclusion.NO_NEXT_STATE  # the session was closed while the answer was being written
    return None
