"""Groups of rollouts: when one is complete, what becomes of its steps, and how one that never completes is closed.

A group's steps wait as `judged` until each of its rollouts has ended and each step that is voted on has its votes. Then
all of them become samples in one transaction. A group that does not come to that within its stream's time limit is
closed: what arrived is used where the stream says so, or excluded with that reason.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, insert, or_, select, update

from turnwise.config import StreamConfig
from turnwise.journal import schema
from turnwise.journal.packing import unpack_json
from turnwise.journal.schema.rollouts import task_groups, trajectories
from turnwise.journal.store import Store
from turnwise.methods import METHODS
from turnwise.sampling import has_spread, step_reward
from turnwise.types import Exclusion, TurnKind, TurnState

log = logging.getLogger(__name__)

T, G, J, D = schema.turns.c, task_groups.c, trajectories.c, schema.verdicts.c
AT_ONCE = 64
"""Groups that one claim settles, and that it closes."""
UNSETTLED = (TurnState.SERVED, TurnState.WAITING, TurnState.JUDGING)


def group_of_step(turn_id: str) -> Select[Any]:
    """The id of the group that a turn belongs to as a step; no row where it is none."""
    mine = select(J.group_id).join(schema.turns, T.session_id == J.session_id)
    return mine.where(T.id == turn_id, T.step.is_not(None))


def votes_on(store: Store, c: Connection, rows: Sequence[Any]) -> dict[str, int]:
    """How many votes the stream of each of these turns (`id`, `session_id`, `step`) wants on it, of those with one."""
    sessions = [row.session_id for row in rows if row.step is not None]
    if not sessions:
        return {}
    named = select(J.session_id, G.stream).join(task_groups, G.id == J.group_id).where(J.session_id.in_(sessions))
    streams = {session: store.config.streams.named(name) for session, name in c.execute(named).all()}
    return {row.id: stream.votes for row in rows if (stream := streams.get(row.session_id)) is not None}


def is_voted_on(store: Store, c: Connection, turn_id: str) -> bool:
    """Whether a judge votes on a step: its stream's method learns from votes, and there is a judge."""
    named = select(G.stream).join(trajectories, J.group_id == G.id).join(schema.turns, T.session_id == J.session_id)
    name = c.execute(named.where(T.id == turn_id)).scalar_one_or_none()
    stream = None if name is None else store.config.streams.named(name)
    if stream is None or not stream.votes:
        return False
    return METHODS[stream.method].scores and store.config.judge.enabled


def settle_group(store: Store, c: Connection, group_id: str) -> None:
    """Make samples of an open group's steps, if it is complete."""
    group = c.execute(select(task_groups).where(G.id == group_id, G.state == "open")).one_or_none()
    if group is None:
        return
    ended = select(func.count()).where(J.group_id == group_id, J.ended_at.is_not(None))
    if c.execute(ended).scalar_one() == group.size and not _unsettled(c, group_id):
        _make_ready(store, c, group, None)


def close_overdue(store: Store, c: Connection) -> int:
    """Settle what is complete by now, and close groups that have waited for too long; gives how many were closed.

    At most AT_ONCE of either kind, so that no request waits for long; the next claims do the rest.
    """
    now, closed = store.now(c), 0
    ended = select(func.count()).where(J.group_id == G.id, J.ended_at.is_not(None)).scalar_subquery()
    live = select(task_groups).where(G.state == "open").order_by(G.id).limit(AT_ONCE)
    found = [*c.execute(live.where(ended >= G.size)), *c.execute(live.where(_is_overdue(store, now)))]
    for group in {row.id: row for row in found}.values():
        settle_group(store, c, group.id)
        still = c.execute(select(G.state).where(G.id == group.id)).scalar_one() == "open"
        if still and _waited_too_long(store, group, now):
            closed += _close(store, c, group, _stream(store, group))
    return closed


def any_overdue(store: Store, c: Connection) -> bool:
    """Whether a group has waited for too long."""
    overdue = select(G.id).where(G.state == "open", _is_overdue(store, store.now(c)))
    return c.execute(overdue.limit(1)).first() is not None


def _waited_too_long(store: Store, group: Any, now: float) -> bool:
    """One that began in a time to come was not begun in this boot."""
    return group.begun_mono is None or not 0 <= now - group.begun_mono < _stream(store, group).group_wait_s


def _is_overdue(store: Store, now: float) -> ColumnElement[bool]:
    """`_waited_too_long` for the database."""
    waits = {name: stream.group_wait_s for name, stream in store.config.streams.items()}
    known = [and_(G.stream == name, G.begun_mono <= now - wait) for name, wait in waits.items()]
    other = and_(G.stream.not_in(list(waits)), G.begun_mono <= now - StreamConfig().group_wait_s)
    return or_(G.begun_mono.is_(None), G.begun_mono > now, other, *known)


def _close(store: Store, c: Connection, group: Any, stream: StreamConfig) -> bool:
    """Close a group that is not complete; False where an answer is under way, which ends first."""
    steps = _steps(c, group.id)
    if any(row.state == TurnState.SERVED for row in steps):
        return False
    ended = sum(1 for row in _rollouts(c, group.id) if row.ended_at is not None)
    why = f"{ended} of {group.size} rollouts had ended after {stream.group_wait_s:g} s"
    rule = stream.incomplete
    log.warning("the group %s of the stream %s is closed: %s (incomplete = %s)", group.id, group.stream, why, rule)
    used = {row.session_id for row in _rollouts(c, group.id) if row.outcome is not None and rule == "use"}
    for state in (TurnState.WAITING, TurnState.JUDGING, TurnState.JUDGED):
        out = [row for row in steps if row.state == state and (state != TurnState.JUDGED or row.session_id not in used)]
        unended = [row for row in out if row.session_id not in used and rule == "use"]
        store.move_all(c, unended, TurnState.EXCLUDED, Exclusion.NO_OUTCOME)
        store.move_all(c, [row for row in out if row not in unended], TurnState.EXCLUDED, Exclusion.GROUP_CLOSED)
    _make_ready(store, c, group, why)
    return True


def _make_ready(store: Store, c: Connection, group: Any, why: str | None) -> None:
    """Samples of all judged steps of a group; none where all its rollouts ended alike and the stream wants spread."""
    stream = _stream(store, group)
    outcomes = {row.session_id: row.outcome for row in _rollouts(c, group.id) if row.outcome is not None}
    steps = [row for row in _steps(c, group.id) if row.state == TurnState.JUDGED]
    if stream.dynamic_sampling and outcomes and not has_spread(list(outcomes.values())):
        store.move_all(c, steps, TurnState.EXCLUDED, Exclusion.CONSTANT_GROUP)
        return _end(c, group.id, "dropped", "its rollouts ended alike")
    empty = [row for row in steps if not row.response_tokens]
    store.move_all(c, empty, TurnState.EXCLUDED, Exclusion.NOT_TRAINABLE)
    steps = [row for row in steps if row not in empty]
    votes = _votes(c, [row.id for row in steps] if stream.votes else [])
    ready = {"created_at": store.clock(), "ready_mono": store.now(c)}
    samples = [
        {"turn_id": row.id, "reward": step_reward(stream.method, outcomes[row.session_id], votes.get(row.id, ()))}
        | ready
        for row in steps
    ]
    if samples:
        c.execute(insert(schema.samples), samples)
        store.move_all(c, steps, TurnState.READY)
    _end(c, group.id, "ready" if samples else "dropped", why or (None if samples else "it has no step to train on"))
    c.execute(update(task_groups).where(G.id == group.id).values(ready_mono=ready["ready_mono"]))
    return None


def _end(c: Connection, group_id: str, state: str, why: str | None) -> None:
    c.execute(update(task_groups).where(G.id == group_id).values(state=state, why=why))


def _stream(store: Store, group: Any) -> StreamConfig:
    """The stream of a group; the plain defaults for one that this configuration does not have any more."""
    return store.config.streams.named(group.stream) or StreamConfig()


def _rollouts(c: Connection, group_id: str) -> Sequence[Any]:
    return c.execute(select(trajectories).where(J.group_id == group_id)).all()


def _steps(c: Connection, group_id: str) -> Sequence[Any]:
    of = (T.id, T.session_id, T.state, T.exclusion, T.step, T.response_tokens)
    mine = select(*of).join(trajectories, J.session_id == T.session_id)
    return c.execute(mine.where(J.group_id == group_id, T.kind == TurnKind.MAIN).order_by(T.seq)).all()


def _unsettled(c: Connection, group_id: str) -> bool:
    return any(row.state in UNSETTLED for row in _steps(c, group_id))


def _votes(c: Connection, turn_ids: Sequence[str]) -> dict[str, list[float]]:
    """The valid votes of the last verdict on each step; the verdict itself, where its judge casts no votes."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in c.execute(select(D.turn_id, D.score, D.votes).where(D.turn_id.in_(turn_ids)).order_by(D.id)):
        scores = [float(v["score"]) for v in unpack_json(row.votes) if v["score"] is not None]
        found[row.turn_id] = scores or [float(row.score)]
    return found
