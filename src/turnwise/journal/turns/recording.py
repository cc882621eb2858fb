"""Turns as the gateway writes them: asked for, answered, reacted to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from turnwise.errors import UnknownTurn
from turnwise.journal import prefixes, schema
from turnwise.journal.blobs import Content
from turnwise.journal.counts import UNRECOGNISED, tell
from turnwise.journal.packing import pack_ids, pack_json, pack_logprobs, pack_spans
from turnwise.journal.pictures import note_pictures
from turnwise.journal.rollouts.groups import is_voted_on
from turnwise.journal.rollouts.trajectories import step_of, take_up
from turnwise.journal.store import Store
from turnwise.journal.turns.reading import read_turns
from turnwise.journal.turns.recorded import WHOLE, WholeTurn
from turnwise.messages import calls_of, history_to_chat, text_of, to_chat
from turnwise.pictures.placed import PlacedPicture
from turnwise.pictures.store import PictureStore
from turnwise.sampling import exclusion_of_answer
from turnwise.types import UNANSWERED, Exclusion, FinishReason, Message, Rollout, TurnKind, TurnState

S, T = schema.sessions.c, schema.turns.c

# Statements of the hot path are made once: building one takes longer than the database takes to run it.
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
_INSERT_USE = insert(schema.skill_uses)
_UNANSWERED = (
    select(T.kind, T.pinned, T.state, T.exclusion, T.step, S.closed_at)
    .join(schema.sessions, S.id == T.session_id)
    .where(T.id == bindparam("which"))
)
_STATE = select(T.state).where(T.id == bindparam("which"))
_IN_HAND = select(T.id, T.state, T.exclusion).where(schema.SERVED)
_HAS_NEXT_STATE = select(T.state, T.exclusion, T.next_state_at, T.step).where(T.id == bindparam("which"))


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A request as the gateway understood it, before its answer.

    With ``extends_parent`` the fields ``messages`` and ``prompt_ids`` hold only what follows the parent's answer, and
    ``hint_at``, ``placed`` and ``pictures`` still count from the start of the whole prompt, and are all of it.
    ``placed`` are the starts and ends of the person's wishes there, which the client did not send. ``files`` are the
    bytes of pictures that came with the request, by their SHA-256: they are in the home when the turn is recorded.
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
    generation: int | None = None  # of the skills that could have been in its prompt
    skills: tuple[int, ...] = ()  # the versions of skills that are in it
    withheld: tuple[int, ...] = ()  # those that fitted and were left out to compare
    placed: tuple[tuple[int, int], ...] = ()
    compression: int | None = None  # the shorter system prompt in its prompt, where the client's own is not
    rollout: Rollout | None = None  # what its client says of the session as a rollout
    supersedes: str | None = None  # the turn whose answer is asked for again
    pictures: tuple[PlacedPicture, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    unrecognised: bool = False  # its history has an answer, and no turn was found that it goes on from

    @property
    def by_person(self) -> bool:
        """Whether a person waits for it: no upkeep of an agent, and no step of a rollout."""
        return self.kind is TurnKind.MAIN and self.rollout is None


def _uses(new: NewTurn) -> list[dict[str, Any]]:
    both = ((new.skills, False), (new.withheld, True))
    return [{"turn_id": new.id, "version": v, "withheld": withheld} for some, withheld in both for v in some]


_AS_GIVEN = [
    one.name
    for one in fields(NewTurn)
    if one.name in T and one.name not in ("messages", "tools", "params", "prompt_ids", "placed", "next_state")
]
"""What is stored of a new turn as it is; the rest is packed, or belongs to its session or to the turn it answers."""


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


class Turns:
    """Recorded turns, and how they come about."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, turn_id: str) -> WholeTurn | None:
        """The whole turn with its full messages and ids, or None."""
        with self._store.reading() as c:
            row = c.execute(WHOLE.where(T.id == turn_id)).one_or_none()
            return None if row is None else read_turns(c, [row])[0]

    def find(self, given: str) -> str:
        """The turn with this id, or the only one that begins like it. Raises UnknownTurn, or AmbiguousId."""
        with self._store.reading() as c:
            return prefixes.find_turn(c, given)

    def short_ids(self, ids: Iterable[str]) -> dict[str, str]:
        """As much of each of these ids as no other turn's begins with."""
        with self._store.reading() as c:
            return prefixes.shortened(c, "turn", ids)

    def newest_answered(self, session_id: str | None = None) -> str | None:
        """The id of the main turn that was recorded last of those with an answer, of one session or of all."""
        query = select(T.id).where(T.kind == TurnKind.MAIN, T.answer.is_not(None))
        if session_id is not None:
            query = query.where(T.session_id == session_id)
        with self._store.reading() as c:
            return c.execute(query.order_by(T.seq.desc()).limit(1)).scalar()

    # -- from request to answer ---------------------------------------------------------------------------------

    def begin(self, new: NewTurn) -> None:
        """Record a request, and its messages as the next state of the turn it answers: durable before generation."""
        self.begin_soon(new).result()

    def begin_soon(self, new: NewTurn) -> Future[None]:
        """`begin` with the next group of writes: the future is done once the request is durable."""
        now = self._store.clock()
        row = {name: getattr(new, name) for name in _AS_GIVEN} | {
            "which": new.session_id,
            "state": TurnState.SERVED,
            "state_at": now,
            "created_at": now,
            "response_tokens": 0,
            "messages": pack_json(history_to_chat(new.messages)),
            "params": pack_json(new.params),
            "prompt_ids": pack_ids(new.prompt_ids),
            "placed": pack_spans(new.placed),
            "attempts": 0,
            "retry_at": 0.0,
        }
        tools = Content(new.tools) if new.tools else None
        kept = PictureStore(self._store.config.home)

        def write(c: Connection) -> None:
            mono = self._store.now(c)
            if new.extends_parent and c.execute(_STATE, {"which": new.parent_id}).one_or_none() is None:
                raise UnknownTurn(f"turn {new.parent_id}, which this goes on from, was deleted meanwhile; ask again")
            step = None
            if (
                take_up(c, new.session_id, new.rollout, now, mono, self._store.config.streams)
                and new.kind is TurnKind.MAIN
            ):
                step = step_of(c, self._store, new.session_id, new.parent_id, new.supersedes)
            if c.execute(_SESSION_SEEN, {"which": new.session_id, "now": now, "mono": mono}).rowcount == 0:
                _open_session(c, new, now, mono)
            if new.answers is not None and new.next_state:
                self.take_next_state(c, new.answers, new.next_state, now)
            if new.unrecognised:
                tell(c, UNRECOGNISED)
            told = {"begun_mono": mono, "step": step, "tools_id": tools.store(c) if tools else None}
            c.execute(_INSERT_TURN, row | told)
            note_pictures(c, new.id, new.pictures)
            for sha256, data in new.files.items():  # a sweep may have come between their arrival and now
                kept.keep(sha256, data)
            if uses := _uses(new):
                c.execute(_INSERT_USE, uses)

        return self._store.writes.submit(write)

    def finish(self, turn_id: str, answer: Answer) -> None:
        """Record the complete answer: served -> waiting, or excluded when it can never be trained on."""
        self.finish_soon(turn_id, answer).result()

    def finish_soon(self, turn_id: str, answer: Answer) -> Future[None]:
        """`finish` with the next group of writes: the future is done once the answer is durable."""
        columns = {
            "context_hash": answer.context_hash,
            "thread_hash": answer.thread_hash,
            "answer_hash": answer.answer_hash,
            "finish_reason": answer.finish_reason,
            "answered_at": self._store.clock(),
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
            self._store.move(c, turn_id, to, exclusion=reason, row=row, **columns)
            if answer.supersedes is not None and answer.finish_reason not in UNANSWERED:
                self._supersede(c, answer.supersedes)
            self._store.log(c, "turn", turn_id, {})

        return self._store.writes.submit(write)

    def recover_interrupted(self, lost: Callable[[str], bool] | None = None) -> int:
        """Exclude turns that a dead gateway left unanswered. Called by the gateway of a home at its start.

        With `lost`, only those of which it says so: their answers have lost their end. It is asked while nobody else
        writes, so what it says of a turn that it holds cannot be overtaken by the turn's own end.
        """
        with self._store.reading() as c:
            if not c.execute(_IN_HAND.limit(1)).first():
                return 0
        with self._store.transaction() as c:
            rows = [row for row in c.execute(_IN_HAND).all() if lost is None or lost(row.id)]
            self._store.move_all(c, rows, TurnState.EXCLUDED, Exclusion.INTERRUPTED)
            return len(rows)

    def react(self, turn_id: str, messages: list[Message]) -> None:
        """Record what came back to a turn, alone: it cannot be answered, so no turn of its own comes of it."""
        now = self._store.clock()

        def write(c: Connection) -> None:
            session = c.execute(select(T.session_id).where(T.id == turn_id)).scalar_one_or_none()
            if session is not None:
                c.execute(_SESSION_SEEN, {"which": session, "now": now, "mono": self._store.now(c)})
                self.take_next_state(c, turn_id, messages, now)

        self._store.writes.submit(write).result()

    def take_next_state(self, c: Connection, turn_id: str, messages: list[Message], now: float) -> None:
        """Record what came back to a turn, unless something has already; it is the judge's from here on."""
        row = c.execute(_HAS_NEXT_STATE, {"which": turn_id}).one_or_none()
        if row is None or row.next_state_at is not None:
            return  # a turn has one next state: the first that came
        stored = history_to_chat(messages)
        columns = {"next_state": pack_json(stored), "next_state_at": now}
        if row.state == TurnState.WAITING:
            judged = row.step is not None and not is_voted_on(self._store, c, turn_id)
            self._store.move(c, turn_id, TurnState.JUDGED if judged else TurnState.JUDGING, row=row, **columns)
        else:
            c.execute(update(schema.turns).where(T.id == turn_id).values(columns))
        self._store.log(c, "next_state", turn_id, {"messages": stored})

    def _supersede(self, c: Connection, turn_id: str) -> None:
        state = c.execute(select(T.state).where(T.id == turn_id)).scalar_one_or_none()
        if state == TurnState.WAITING:
            self._store.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.SUPERSEDED)


def _open_session(c: Connection, new: NewTurn, now: float, mono: float) -> None:
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


def _stopped_by(answer: Answer) -> dict[str, str]:
    """What is stored of the stop string that ended an answer, beside its message."""
    return {"stop_string": answer.stop_string} if answer.stop_string else {}


def _why_excluded(row: Any, answer: Answer) -> Exclusion | None:
    """Why an answered turn can never be trained on, or None."""
    return exclusion_of_answer(
        row.kind,
        answer.finish_reason,
        pinned=bool(row.pinned),
        closed=row.closed_at is not None and row.step is None,  # a rollout ends with its outcome
        too_long=answer.too_long,
        empty=not (answer.response_ids or text_of(answer.message) or calls_of(answer.message)),
    )
