"""What the gateway reads to place a request: recorded turns by what they share with it, and their token ids.

Statements are made once: building one takes longer than SQLite takes to run it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, func, select

from turnwise.errors import UnknownTurn
from turnwise.journal import schema
from turnwise.journal.blobs import Content
from turnwise.journal.clocks import ORDER
from turnwise.journal.contexts import RecentContexts
from turnwise.journal.core import JournalCore
from turnwise.journal.counts import FORGETS
from turnwise.journal.schema import unpack_json
from turnwise.messages import history_from_chat
from turnwise.types import Exclusion, FinishReason, Message, TurnKind, TurnState

S, T = schema.sessions.c, schema.turns.c

MOST_HASHES = 500
"""Hashes looked for at once: SQLite limits how many values a statement may have."""
MOST_FOUND = 20
"""Turns with one hash that are looked at."""

_TURN: Select[*tuple[Any, ...]] = select(schema.turns).where(T.id == bindparam("which"))
_BEYOND = "g"
"""Sorts behind all that may follow in an id: it goes on in hexadecimal digits."""
_BY_BEGINNING: Select[*tuple[Any, ...]] = select(
    *(T.id, T.session_id, T.client, T.state, T.context_hash, T.next_state_at, T.answer, ORDER.label("place"))
).where(T.id >= bindparam("start"), T.id < bindparam("end"))
_SESSION_CLIENT = select(S.client).where(S.id == bindparam("which"))
_CONTEXT = select(T.parent_id, T.extends_parent, T.prompt_ids, T.response_ids).where(T.id == bindparam("which"))
_FORGETS = select(schema.counts.c.n).where(schema.counts.c.name == FORGETS)
_FOLLOWERS = select(T.exclusion, T.finish_reason).where(T.parent_id == bindparam("which"))
_ANSWERED = select(T.id).where(T.session_id == bindparam("which"), T.kind == TurnKind.MAIN, T.context_hash.is_not(None))
_LAST_MAIN: Select[*tuple[Any, ...]] = (
    select(schema.turns)
    .where(T.session_id == bindparam("which"), T.kind == TurnKind.MAIN, T.answered_at.is_not(None))
    .order_by(T.idx.desc())
    .limit(1)
)
_REPLAYED = (
    *(T.id, T.session_id, T.version, T.retry_key, T.finish_reason, T.begun_mono, ORDER.label("place")),
    *(T.answer, T.response_ids, T.prompt_tokens, T.response_tokens, T.used_prompt, T.used_response, T.next_state_at),
)
_SAME_REQUEST: Select[*tuple[Any, ...]] = (
    select(*_REPLAYED)
    .where(T.client == bindparam("client"), T.request_hash == bindparam("hash"))
    .order_by(ORDER.desc())
    .limit(20)
)


@dataclass(frozen=True, slots=True)
class _Places:
    """Turns by one of their hashes, newest first: in a session, or of a client.

    A hash tells more than its scope does, so the scope is compared as an expression, which no index is looked up for:
    SQLite would else read all turns of a client to find those with one of two hashes. An answer may have been given ten
    thousand times: those of a session are told apart in the index alone, and so is which are the newest.
    """

    in_session: Select[*tuple[Any, ...]]
    of_client: Select[*tuple[Any, ...]]


def _by(column: ColumnElement[Any], *further: ColumnElement[bool]) -> _Places:
    found = and_(column.in_(bindparam("hashes", expanding=True)), *further)
    query: Select[*tuple[Any, ...]] = select(T.id, T.session_id, T.state, T.context_hash, T.next_state_at)
    scope = bindparam("scope")
    in_session = query.where(found, func.coalesce(T.session_id, "") == scope).order_by(ORDER.desc()).limit(MOST_FOUND)
    # The limit of -1, which is none, keeps SQLite from reading each of them before it knows the newest.
    newest = select(ORDER.label("place")).select_from(schema.turns).where(found).order_by(ORDER.desc()).limit(-1)
    places = newest.subquery("newest")
    of_client = query.select_from(places.join(schema.turns, places.c.place == ORDER))
    return _Places(in_session, of_client.where(func.coalesce(T.client, "") == scope).limit(MOST_FOUND))


_BY_CONTEXT, _BY_THREAD, _BY_ANSWER = _by(T.context_hash), _by(T.thread_hash), _by(T.answer_hash)
_WAITING_BY_CONTEXT = _by(T.context_hash, func.coalesce(T.state, "") == TurnState.WAITING)


class Lookups(JournalCore):
    """Reads by the gateway. Nothing here writes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recent = RecentContexts()
        self._forgets = 0

    def turns_by_context(self, client: str, hashes: list[str], session_id: str | None) -> list[Row[Any]]:
        """Answered turns whose messages plus answer have one of these hashes, newest first.

        The hashes are those of ever longer histories. A client usually goes on from its last answer, so the last hash
        is looked for alone; shorter ones only as long as nothing is found.
        """
        end = len(hashes)
        while end > 0:
            start = max(0, end - (1 if end == len(hashes) else MOST_HASHES))
            found = self._places(_BY_CONTEXT, hashes[start:end], client, session_id)
            if len(found) == MOST_FOUND and all(row.state != TurnState.WAITING for row in found):
                # The same conversation was held often at once: one that waits is further back.
                found += self._places(_WAITING_BY_CONTEXT, hashes[start:end], client, session_id)
            if found:
                return found
            end = start
        return []

    def turns_by_thread(self, client: str, thread_hash: str, session_id: str | None) -> list[Row[Any]]:
        """Answered turns whose history has exactly these answers, newest first."""
        return self._places(_BY_THREAD, [thread_hash], client, session_id)

    def turns_by_answer(self, client: str, answer_hash: str, session_id: str | None) -> list[Row[Any]]:
        """Turns that were answered like this, newest first."""
        return self._places(_BY_ANSWER, [answer_hash], client, session_id)

    def turns_beginning(self, client: str, beginnings: Sequence[str]) -> list[Row[Any]]:
        """Turns answered to this client whose ids begin like one of these, newest first. No index but that of ids."""
        found: list[Row[Any]] = []
        if beginnings:
            with self.reading() as c:
                for start in beginnings:
                    found += c.execute(_BY_BEGINNING, {"start": start, "end": start + _BEYOND}).all()
        answered = (row for row in found if row.client == client and row.context_hash is not None)
        return sorted(answered, key=lambda row: row.place, reverse=True)

    def _places(self, queries: _Places, hashes: list[str], client: str, session_id: str | None) -> list[Row[Any]]:
        query = queries.in_session if session_id else queries.of_client
        with self.reading() as c:
            return list(c.execute(query, {"hashes": hashes, "scope": session_id or client}))

    def turn_row(self, turn_id: str) -> Row[Any] | None:
        """A recorded turn as it is stored."""
        with self.reading() as c:
            return c.execute(_TURN, {"which": turn_id}).one_or_none()

    def session_client(self, session_id: str) -> str | None:
        """The client that opened a session."""
        with self.reading() as c:
            return c.execute(_SESSION_CLIENT, {"which": session_id}).scalar_one_or_none()

    def has_answers(self, session_id: str) -> bool:
        """Whether any main turn of a session was answered."""
        with self.reading() as c:
            return c.execute(_ANSWERED.limit(1), {"which": session_id}).one_or_none() is not None

    def was_answered_by(self, turn_id: str) -> bool:
        """Whether a turn that follows this one was answered, or is being answered."""
        failed = (FinishReason.ABORT, FinishReason.ERROR)
        with self.reading() as c:
            rows = c.execute(_FOLLOWERS, {"which": turn_id}).all()
        return any(row.finish_reason not in failed and row.exclusion != Exclusion.INTERRUPTED for row in rows)

    def last_main_turn(self, session_id: str) -> Row[Any] | None:
        with self.reading() as c:
            return c.execute(_LAST_MAIN, {"which": session_id}).one_or_none()

    def same_request(self, client: str, request_hash: str) -> list[Row[Any]]:
        """Turns of this client with exactly this request, newest first: candidates for a retry or a regeneration.

        The rows hold what a replay of the answer needs, and no more.
        """
        with self.reading() as c:
            return list(c.execute(_SAME_REQUEST, {"client": client, "hash": request_hash}))

    def is_recent(self, row: Any, seconds: float) -> bool:
        """Whether a turn of `same_request` was asked for at most this long ago, in this boot of the machine."""
        if row.begun_mono is None or row.place <= self.boot_turn:
            return False
        return 0 <= self.monotonic() - row.begun_mono <= seconds

    def context_messages(self, turn_id: str) -> list[Message]:
        """The messages of a recorded request. Raises UnknownTurn where it was deleted meanwhile."""
        with self.reading() as c:
            return history_from_chat(self.read_context(c, self._still_there(c, turn_id))[0])

    @staticmethod
    def _still_there(c: Connection, turn_id: str) -> Row[Any]:
        row = c.execute(_TURN, {"which": turn_id}).one_or_none()
        if row is None:
            raise UnknownTurn(f"turn {turn_id} was deleted meanwhile; ask again")
        return row

    def same_tools(self, row: Row[Any], tools: list[dict[str, Any]] | None) -> bool:
        """Whether a recorded request had exactly these tools."""
        if row.tools_id is None or tools is None:
            return row.tools_id is None and (unpack_json(row.tools) if row.tools else None) == tools
        with self.reading() as c:
            return Content(tools).is_blob(c, row.tools_id)

    def forget_contexts(self) -> None:
        """Drop what is kept in memory if anything was forgotten since this was last asked."""
        with self.reading() as c:
            self.read_boot_turn(c)
            forgets = c.execute(_FORGETS).scalar_one_or_none() or 0
        if forgets != self._forgets:
            self._forgets, self._recent = forgets, RecentContexts()

    def context_ids(self, row: Row[Any]) -> tuple[list[int], list[int]]:
        """Prompt ids and response ids of an answered turn: what a bridge extends. Raises UnknownTurn."""
        prompt, response = self._recent.get(row.id) or self._add_up(row)
        return prompt.tolist(), response.tolist()

    def _add_up(self, row: Any) -> tuple[array[int], array[int]]:
        """The same from what the row adds to its parent's context, which is usually still in memory."""
        chain = [row]
        before: array[int] = array("i")
        while chain[-1].extends_parent:
            parent = self._recent.get(chain[-1].parent_id)
            if parent is not None:
                before = parent[0] + parent[1]
                break
            with self.reading() as c:
                found = c.execute(_CONTEXT, {"which": chain[-1].parent_id}).one_or_none()
                if found is None:  # deleted since its child was read, which was made whole then
                    child = self._still_there(c, row.id)
                    whole = array("i", self.read_prompt_ids(c, child))
                    return whole, schema.id_array(child.response_ids) if child.response_ids else array("i")
            chain.append(found)
        prompt, response = before, array("i")
        for step in reversed(chain):
            prompt = before + schema.id_array(step.prompt_ids)
            response = schema.id_array(step.response_ids) if step.response_ids else array("i")
            before = prompt + response
        if row.response_ids:
            self._recent.put(row.id, prompt, response)
        return prompt, response
