"""What the gateway reads to place a request: recorded turns by what they share with it, and their token ids.

Statements are made once: building one takes longer than the database takes to run it.
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
from turnwise.journal.counts import FORGETS
from turnwise.journal.dialects.sql import MOST_ROWS
from turnwise.journal.packing import id_array, unpack_json
from turnwise.journal.pictures import pictures_of
from turnwise.journal.store import Store
from turnwise.journal.turns.reading import read_context, read_prompt_ids
from turnwise.journal.turns.recent_ids import RecentIds
from turnwise.journal.turns.recorded import CANDIDATE, SAME, STORED, WHOLE, PossibleParent, SameRequest, Turn, recorded
from turnwise.messages import history_from_chat
from turnwise.pictures.placed import PlacedPicture
from turnwise.types import UNANSWERED, Exclusion, Message, TurnKind, TurnState

S, T = schema.sessions.c, schema.turns.c

MOST_HASHES = 500
"""Hashes looked for at once: SQLite limits how many values a statement may have."""
MOST_FOUND = 20
"""Turns with one hash that are looked at."""

_TURN = STORED.where(T.id == bindparam("which"))
_ROW = WHOLE.where(T.id == bindparam("which"))
_BEYOND = "g"
"""Sorts behind all that may follow in an id: it goes on in hexadecimal digits."""
_BY_BEGINNING = STORED.where(T.id >= bindparam("start"), T.id < bindparam("end"))
_SESSION_CLIENT = select(S.client).where(S.id == bindparam("which"))
_FORGETS = select(schema.counts.c.n).where(schema.counts.c.name == FORGETS)
_FOLLOWERS = select(T.exclusion, T.finish_reason).where(T.parent_id == bindparam("which"))
_ANSWERED = select(T.id).where(T.session_id == bindparam("which"), T.kind == TurnKind.MAIN, T.context_hash.is_not(None))
_SAME_REQUEST = (
    SAME.where(T.client == bindparam("client"), T.request_hash == bindparam("hash"))
    .order_by(T.seq.desc())
    .limit(MOST_FOUND)
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
    of_client_sorted: Select[*tuple[Any, ...]]
    """The same for a database that does not keep a subquery's order, and that needs none: its index has the order."""


def _by(column: ColumnElement[Any], *further: ColumnElement[bool]) -> _Places:
    found = and_(column.in_(bindparam("hashes", expanding=True)), *further)
    scope = bindparam("scope")
    here, theirs = func.coalesce(T.session_id, "") == scope, func.coalesce(T.client, "") == scope
    # The limit, which is none, keeps SQLite from reading each of them before it knows the newest.
    newest = select(T.seq).select_from(schema.turns).where(found).order_by(T.seq.desc()).limit(MOST_ROWS)
    places = newest.subquery("newest")
    of_client = CANDIDATE.select_from(places.join(schema.turns, places.c.seq == T.seq)).where(theirs)
    return _Places(
        CANDIDATE.where(found, here).order_by(T.seq.desc()).limit(MOST_FOUND),
        of_client.limit(MOST_FOUND),
        CANDIDATE.where(found, theirs).order_by(T.seq.desc()).limit(MOST_FOUND),
    )


_BY_CONTEXT, _BY_THREAD, _BY_ANSWER = _by(T.context_hash), _by(T.thread_hash), _by(T.answer_hash)
_WAITING_BY_CONTEXT = _by(T.context_hash, func.coalesce(T.state, "") == TurnState.WAITING)


class Lookups:
    """Reads by the gateway. Nothing here writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent = RecentIds()
        self._forgets = 0

    def by_context(self, client: str, hashes: list[str], session_id: str | None) -> list[PossibleParent]:
        """Answered turns whose messages plus answer have one of these hashes, newest first.

        The hashes are those of ever longer histories. A client usually goes on from its last answer, so the last hash
        is looked for alone; shorter ones only as long as nothing is found.
        """
        end = len(hashes)
        while end > 0:
            start = max(0, end - (1 if end == len(hashes) else MOST_HASHES))
            found = self._places(_BY_CONTEXT, hashes[start:end], client, session_id)
            if len(found) == MOST_FOUND and all(turn.state != TurnState.WAITING for turn in found):
                # The same conversation was held often at once: one that waits is further back.
                found += self._places(_WAITING_BY_CONTEXT, hashes[start:end], client, session_id)
            if found:
                return found
            end = start
        return []

    def by_thread(self, client: str, thread_hash: str, session_id: str | None) -> list[PossibleParent]:
        """Answered turns whose history has exactly these answers, newest first."""
        return self._places(_BY_THREAD, [thread_hash], client, session_id)

    def by_answer(self, client: str, answer_hash: str, session_id: str | None) -> list[PossibleParent]:
        """Turns that were answered like this, newest first."""
        return self._places(_BY_ANSWER, [answer_hash], client, session_id)

    def by_beginning(self, client: str, beginnings: Sequence[str]) -> list[Turn]:
        """Turns answered to this client whose ids begin like one of these, newest first. No index but that of ids."""
        found: list[Turn] = []
        if beginnings:
            with self._store.reading() as c:
                for start in beginnings:
                    rows = c.execute(_BY_BEGINNING, {"start": start, "end": start + _BEYOND})
                    found += [recorded(Turn, row) for row in rows]
        answered = (turn for turn in found if turn.client == client and turn.context_hash is not None)
        return sorted(answered, key=lambda turn: turn.seq, reverse=True)

    def _places(self, queries: _Places, hashes: list[str], client: str, session_id: str | None) -> list[PossibleParent]:
        of_client = queries.of_client if self._store.database.keeps_order else queries.of_client_sorted
        query = queries.in_session if session_id else of_client
        with self._store.reading() as c:
            rows = c.execute(query, {"hashes": hashes, "scope": session_id or client})
            return [recorded(PossibleParent, row) for row in rows]

    def turn(self, turn_id: str) -> Turn | None:
        """A recorded turn as it is stored."""
        with self._store.reading() as c:
            row = c.execute(_TURN, {"which": turn_id}).one_or_none()
            return None if row is None else recorded(Turn, row)

    def session_client(self, session_id: str) -> str | None:
        """The client that opened a session."""
        with self._store.reading() as c:
            return c.execute(_SESSION_CLIENT, {"which": session_id}).scalar_one_or_none()

    def has_answers(self, session_id: str) -> bool:
        """Whether any main turn of a session was answered."""
        with self._store.reading() as c:
            return c.execute(_ANSWERED.limit(1), {"which": session_id}).one_or_none() is not None

    def was_answered_by(self, turn_id: str) -> bool:
        """Whether a turn that follows this one was answered, or is being answered."""
        with self._store.reading() as c:
            rows = c.execute(_FOLLOWERS, {"which": turn_id}).all()
        return any(row.finish_reason not in UNANSWERED and row.exclusion != Exclusion.INTERRUPTED for row in rows)

    def same_request(self, client: str, request_hash: str) -> list[SameRequest]:
        """Turns of this client with exactly this request, newest first: candidates for a retry or a regeneration."""
        with self._store.reading() as c:
            rows = c.execute(_SAME_REQUEST, {"client": client, "hash": request_hash})
            return [recorded(SameRequest, row) for row in rows]

    def is_recent(self, turn: SameRequest, seconds: float) -> bool:
        """Whether a turn was asked for at most this long ago, in this boot of the machine."""
        if turn.begun_mono is None or turn.seq <= self._store.boot_turn:
            return False
        return 0 <= self._store.monotonic() - turn.begun_mono <= seconds

    def messages(self, turn_id: str) -> list[Message]:
        """The messages of a recorded request, all of them. Raises UnknownTurn where it was deleted meanwhile."""
        with self._store.reading() as c:
            return history_from_chat(read_context(c, _still_there(c, turn_id))[0])

    def pictures(self, turn_id: str) -> tuple[PlacedPicture, ...]:
        """Those that stand in a turn's prompt."""
        with self._store.reading() as c:
            return pictures_of(c, [turn_id]).get(turn_id, ())

    def same_tools(self, turn: Turn, tools: list[dict[str, Any]] | None) -> bool:
        """Whether a recorded request had exactly these tools."""
        if turn.tools_id is None or tools is None:
            packed = turn.packed_tools
            return turn.tools_id is None and (unpack_json(packed) if packed else None) == tools
        with self._store.reading() as c:
            return Content(tools).is_blob(c, turn.tools_id)

    def drop_forgotten(self) -> None:
        """Drop what is kept in memory if anything was forgotten since this was last asked."""
        with self._store.reading() as c:
            self._store.read_boot_turn(c)
            forgets = c.execute(_FORGETS).scalar_one_or_none() or 0
        if forgets != self._forgets:
            self._forgets, self._recent = forgets, RecentIds()

    def ids(self, turn: Turn) -> tuple[list[int], list[int]]:
        """Prompt ids and response ids of an answered turn: what a bridge extends. Raises UnknownTurn."""
        prompt, response = self._recent.get(turn.id) or self._add_up(turn)
        return prompt.tolist(), response.tolist()

    def _add_up(self, turn: Turn) -> tuple[array[int], array[int]]:
        """The same from what the turn adds to its parent's ids, which are usually still in memory."""
        before = self._recent.get(turn.parent_id or "") if turn.extends_parent else (array("i"), array("i"))
        if before is not None:
            prompt = before[0] + before[1] + id_array(turn.packed_prompt_ids)
        else:
            with self._store.reading() as c:  # its row anew: where its parent was deleted meanwhile, it was made whole
                prompt = array("i", read_prompt_ids(c, [_still_there(c, turn.id)])[turn.id])
        response = id_array(turn.packed_response_ids) if turn.packed_response_ids else array("i")
        if turn.packed_response_ids:
            self._recent.put(turn.id, prompt, response)
        return prompt, response


def _still_there(c: Connection, turn_id: str) -> Row[Any]:
    row = c.execute(_ROW, {"which": turn_id}).one_or_none()
    if row is None:
        raise UnknownTurn(f"turn {turn_id} was deleted meanwhile; ask again")
    return row
