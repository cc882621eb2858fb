"""Forgetting a session: its rows, what was made of it elsewhere in the journal, its lines in records.jsonl, its traces.

Weights cannot forget: which versions learned from it is said. What other sessions hold as text of their own is theirs;
those that branched off are named, and are forgotten too where that is asked for.

The session's own row goes last. Until then the ids of what is gone stand in the journal, so that a forgetting that was
cut off is finished by asking for it again.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, exists, select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.clocks import M, set_meta
from turnwise.journal.counts import FORGETS, tell
from turnwise.journal.deletion.erasing import erase_turns, is_served, vacuum
from turnwise.journal.journal import Journal
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.pictures import sweep_pictures
from turnwise.journal.records.edits import read_records, rewrite_records
from turnwise.journal.rollouts.trajectories import drop_trajectories
from turnwise.journal.skills.forgetting import erase, made_from
from turnwise.journal.turns.set_aside import note_deleted
from turnwise.types import Exclusion, TurnState

T, S, B, V, E = schema.turns.c, schema.sessions.c, schema.batches.c, schema.versions.c, schema.events.c
P, D = schema.provenance.c, schema.verdicts.c

AT_ONCE = 100
"""Turns that go in one transaction."""
_REACTION = ("next_state", "verdict")
"""Events and records that show the reaction to a turn."""
NOTE = "forgetting|"
"""Facts of the journal with names like this hold what an unfinished forgetting has done: ids, and no text."""


@dataclass
class Forgotten:
    """What was deleted, and what cannot be.

    ``versions``: which turns each version learned from, of the sessions or with a reaction that came from them.
    ``branches``: sessions that branched off, stay, and hold copies of the text. ``reactions``: turns of other sessions
    whose next state came from here. ``skills``: those that were made from it, which go with it, and how many turns of
    other sessions have one of them in their prompts.
    """

    sessions: list[str]
    turns: int = 0
    versions: dict[int, list[str]] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)
    skills: dict[str, int] = field(default_factory=dict)
    released_batches: list[int] = field(default_factory=list)
    records: int = 0

    def learned(self, version: int | None, turn_id: str) -> None:
        """Name a version that learned from a turn."""
        if version is not None and turn_id not in self.versions.setdefault(version, []):
            self.versions[version] = sorted([*self.versions[version], turn_id])
            self.versions = dict(sorted(self.versions.items()))


def plan(journal: Journal, session_id: str, with_branches: bool = False) -> Forgotten:
    """What forgetting a session would do."""
    with journal.store.reading() as c:
        going, branches = [session_id], list(_branches(c, [session_id]))
        while with_branches and branches:
            going += branches
            branches = list(_branches(c, going))
        of_them = T.session_id.in_(going)
        done = Forgotten(going, len(c.execute(select(T.id).where(of_them)).all()), branches=sorted(branches))
        done.skills = made_from(c, going)
        child = schema.turns.alias()
        reacted = exists().where(
            child.c.parent_id == T.id, child.c.session_id.in_(going), child.c.created_at == T.next_state_at
        )
        trained = select(T.id, B.version).join(schema.batches, B.id == T.batch_id).where(schema.TRAINED)
        pruned = select(P.turn_id, P.version).where(P.session_id.in_(going))
        before = select(P.turn_id, P.version).join(schema.turns, T.id == P.turn_id).where(reacted)
        for query in (trained.where(of_them), trained.where(reacted), pruned, before):
            for turn_id, version in c.execute(query):
                done.learned(version, turn_id)
        ids = set(c.execute(select(T.id).where(of_them)).scalars())
        versions = select(V.number, V.turn_ids).where(V.turn_ids.is_not(None))
        for row in c.execute(versions).all() if ids else ():
            for turn_id in ids.intersection(unpack_json(row.turn_ids)):  # also those whose hints alone were learned
                done.learned(row.number, turn_id)
        return done


def _branches(c: Connection, sessions: Sequence[str]) -> Iterator[str]:
    """The sessions that branched off from these, without these."""
    of_them = select(T.id).where(T.session_id.in_(sessions))
    named = select(S.id).where(S.parent_id.in_(sessions), S.id.not_in(sessions))
    followed = select(T.session_id).where(T.parent_id.in_(of_them), T.session_id.not_in(sessions))
    yield from c.execute(named.union(followed)).scalars()


def forget(journal: Journal, session_id: str, with_branches: bool = False) -> Forgotten:
    """Delete a session so that its content is in no file of the home. Works beside a running server.

    Raises JournalError where the gateway runs in another home, whose files have it too, and where a reader keeps the
    write-ahead log from being emptied. Whatever it was that ended it early: call it again.
    """
    if not is_served(journal.store.config.home) and journal.store.has_gateway():
        raise JournalError("the gateway of this journal runs in another home; run `turnwise forget` there")
    done = plan(journal, session_id, with_branches)
    done.turns = 0
    gone = _take_up(journal, session_id, done)
    with journal.store.transaction() as c:
        _release_batches(journal, c, done)
        _note(c, session_id, done, [])
    while True:
        while ids := _erase_some(journal, done, session_id):
            gone.update(ids)
        # Where an earlier turnwise trained: weights that had seen the turns of a batch.
        shutil.rmtree(journal.store.config.home / "checkpoints", ignore_errors=True)
        sweep_pictures(journal.store)
        done.records += _forget_records(journal, done, gone)
        if is_served(journal.store.config.home):
            journal.store.scrub()
        else:
            vacuum(journal)  # also what an earlier turnwise, which did not overwrite, left in unused parts of pages
        with journal.store.transaction() as c:
            if _erase_rest(journal, c, done, session_id):
                break
    journal.store.scrub()
    return done


def _notes(session_id: str) -> Any:
    return M.name >= f"{NOTE}{session_id}|", M.name < f"{NOTE}{session_id}|\U0010ffff"


def _note(c: Connection, session_id: str, done: Forgotten, ids: list[str]) -> None:
    """Keep what was found and deleted, in the transaction that deletes it."""
    told = {key: getattr(done, key) for key in ("sessions", "released_batches", "reactions")}
    versions = [[version, turn_id] for version, turns in done.versions.items() for turn_id in turns if turn_id in ids]
    versions += [
        [version, turn] for version, turns in done.versions.items() for turn in turns if turn in done.reactions
    ]
    set_meta(c, f"{NOTE}{session_id}|{uuid.uuid4().hex}", json.dumps(told | {"gone": ids, "versions": versions}))


def _take_up(journal: Journal, session_id: str, done: Forgotten) -> set[str]:
    """Add what an earlier try has done already; gives the turns of the sessions that are gone."""
    with journal.store.reading() as c:
        gone: set[str] = set()
        for value in c.execute(select(M.value).where(*_notes(session_id))).scalars():
            note = json.loads(value)
            gone.update(note["gone"])
            for key in ("sessions", "released_batches", "reactions"):
                known = getattr(done, key)
                known += [item for item in note[key] if item not in known]
            for version, turn_id in note["versions"]:
                done.learned(version, turn_id)
        done.turns = len(gone)
        done.branches = [name for name in done.branches if name not in done.sessions]
        return gone | set(c.execute(select(P.turn_id).where(P.session_id.in_(done.sessions))).scalars())


def _release_batches(journal: Journal, c: Connection, done: Forgotten) -> None:
    hinted = select(T.id).join_from(schema.turns, schema.verdicts, D.turn_id == T.id)
    hinted = hinted.where(T.session_id.in_(done.sessions), D.hint.is_not(None)).limit(1)
    told = c.execute(hinted).one_or_none() is not None  # a batch may be learning from a hint of a session that goes
    for batch in c.execute(select(B.id, B.turn_ids).where(B.state == "open")).all():
        ids = unpack_json(batch.turn_ids)
        if not ids:  # it holds the trainer's place, and learns from no turn
            continue
        if told or c.execute(select(T.id).where(T.id.in_(ids), T.session_id.in_(done.sessions)).limit(1)).one_or_none():
            _release(journal, c, batch.id, done)


def _release(journal: Journal, c: Connection, batch: int, done: Forgotten) -> None:
    if batch not in done.released_batches:
        journal.batches.put_back(c, batch)
        done.released_batches.append(batch)


def _erase_some(journal: Journal, done: Forgotten, session_id: str) -> list[str]:
    """The next turns of the sessions; empty when there are none any more.

    A trainer may have leased some since the last ones went, or ended a batch of them.
    """
    with journal.store.transaction() as c:
        columns = (T.id, T.parent_id, T.created_at, T.state, T.batch_id, B.version)
        mine = select(*columns).outerjoin(schema.batches, B.id == T.batch_id).where(T.session_id.in_(done.sessions))
        rows = c.execute(mine.limit(AT_ONCE)).all()
        if not rows:
            return []
        ids = [row.id for row in rows]
        for row in rows:
            if row.state == TurnState.LEASED:
                _release(journal, c, row.batch_id, done)
            elif row.state == TurnState.TRAINED:
                done.learned(row.version, row.id)
            # The reaction to a turn and the request that it came with are written in one breath.
            answered = select(T.id, T.state, T.exclusion, T.batch_id).where(
                T.id == row.parent_id, T.session_id.not_in(done.sessions), T.next_state_at == row.created_at
            )
            for other in c.execute(answered).all():
                _forget_reaction(journal, c, other, done)
        erase_turns(journal.store, c, ids)
        _drop_events(c, ids)
        done.turns += len(ids)
        _note(c, session_id, done, ids)
        return ids


def _forget_reaction(journal: Journal, c: Connection, other: Any, done: Forgotten) -> None:
    """Take what came back from a turn of another session, with the verdicts on it; the person's own stay."""
    if other.state == TurnState.LEASED:
        _release(journal, c, other.batch_id, done)
        other = c.execute(select(T.id, T.state, T.exclusion, T.batch_id).where(T.id == other.id)).one()
    if other.state == TurnState.TRAINED:
        done.learned(c.execute(select(B.version).where(B.id == other.batch_id)).scalar_one_or_none(), other.id)
    done.reactions.append(other.id)
    c.execute(update(schema.turns).where(T.id == other.id).values(next_state=None))
    c.execute(delete(schema.verdicts).where(D.turn_id == other.id, D.judge != "person"))
    c.execute(delete(schema.review).where(schema.review.c.turn_id == other.id))
    by_person = c.execute(select(D.id).where(D.turn_id == other.id).limit(1)).one_or_none()
    if by_person is None:
        c.execute(delete(schema.samples).where(schema.samples.c.turn_id == other.id))
        if other.state in (TurnState.JUDGING, TurnState.JUDGED, TurnState.READY):
            journal.store.move(c, other.id, TurnState.EXCLUDED, row=other, exclusion=Exclusion.FORGOTTEN)
    waiting = c.execute(select(E.id, E.data).where(E.turn_id == other.id, E.kind.in_(_REACTION))).all()
    going = [row.id for row in waiting if unpack_json(row.data).get("judge") != "person"]
    c.execute(delete(schema.events).where(E.id.in_(going)))


def _drop_events(c: Connection, ids: Iterable[str]) -> None:
    """Take the turns' events out of the outbox. One without content stands in for them: the newest number stays."""
    c.execute(delete(schema.events).where(E.turn_id.in_(list(ids))))


def _erase_rest(journal: Journal, c: Connection, done: Forgotten, session_id: str) -> bool:
    """The sessions themselves, and what was noted; False where one of them went on meanwhile."""
    if c.execute(select(T.id).where(T.session_id.in_(done.sessions)).limit(1)).first():
        return False
    note_deleted(c, done.sessions, journal.store.config.gate, may_return=False)
    c.execute(update(schema.sessions).where(S.parent_id.in_(done.sessions)).values(parent_id=None))
    erase(c, journal.store, done.sessions)
    drop_trajectories(c, done.sessions)
    c.execute(delete(schema.sessions).where(S.id.in_(done.sessions)))
    c.execute(delete(schema.provenance).where(P.session_id.in_(done.sessions)))
    c.execute(delete(schema.meta).where(*_notes(session_id)))
    told = pack_json({"turns": done.turns, "versions": list(done.versions)})
    c.execute(schema.events.insert().values(at=journal.store.clock(), kind="forgotten", data=told))
    tell(c, FORGETS)
    return True


def _forget_records(journal: Journal, done: Forgotten, gone: set[str]) -> int:
    sessions, reactions = set(done.sessions), set(done.reactions)

    for record in read_records(journal.store.config.records_path):
        if record.get("session") in sessions:
            gone.add(str(record.get("turn")))

    def stays(record: dict[str, Any]) -> bool:
        turn, kind = record.get("turn"), record.get("kind")
        return turn not in gone and not (turn in reactions and kind in _REACTION and record.get("judge") != "person")

    return rewrite_records(journal.store.config.records_path, stays)
