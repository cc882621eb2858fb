"""Which groups of rollouts make a batch: ready ones, whole, as soon as their stream has enough of them.

A batch never holds a part of a group, and the streams share it (`shares.py`). A stream whose oldest group would be too
old for the next update is in this one, however few it has. Where some of a group's steps left the queue meanwhile, for
they are stale or of an earlier generation of skills, the rest of it goes as well, for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, func, select, update

from turnwise.journal import schema
from turnwise.journal.packing import unpack_json
from turnwise.journal.rollouts.groups import close_overdue
from turnwise.journal.rollouts.shares import fair_shares
from turnwise.journal.schema.rollouts import task_groups, trajectories
from turnwise.journal.store import Store
from turnwise.types import PERSONAL, Exclusion, TaskGroup, TurnState

T, G, J, S = schema.turns.c, task_groups.c, trajectories.c, schema.samples.c
AT_ONCE = 500
"""Turns of one look-up."""
LEFT_THE_QUEUE = (Exclusion.STALE, Exclusion.EARLIER_GENERATION, Exclusion.SUPPORT_DATA)


def ready_groups(
    store: Store, c: Connection, is_fresh: Callable[[int, int], bool], at_once: bool, is_begun: bool = False
) -> list[Any]:
    """The ready steps (`id`, `state`, `exclusion`, `seq`) of the groups of every stream that has enough of them, or
    whose oldest one has waited for `train.max_age_s`. With ``at_once`` one group is enough.
    ``is_fresh``: whether a version's samples are not stale when so many versions may lie between. ``is_begun``: there
    is an update anyway, so that what would be stale behind it goes along."""
    close_overdue(store, c)
    now, train = store.now(c), store.config.train
    due: dict[str, list[list[Any]]] = {}
    others: dict[str, list[list[Any]]] = {}
    for name, stream in store.config.streams.items():
        live = (
            select(G.id, G.ready_mono)
            .where(G.state == "ready", G.stream == name)
            .order_by(func.coalesce(G.ready_mono, -1.0), G.id)
        )
        fresh = partial(is_fresh, train.max_staleness)
        whole = [(row, steps) for row in c.execute(live) if (steps := _whole(store, c, row.id, fresh))]
        old = any(row.ready_mono is None or not 0 <= now - row.ready_mono < train.max_age_s for row, _ in whole)
        is_due = len(whole) >= stream.groups or at_once or old
        if whole:
            (due if is_due else others)[name] = [steps for _, steps in whole[: stream.groups]]
    if due or is_begun:
        # Of what no later update may use, all of it goes along; of the rest what would be too old for the next one.
        least = train.max_staleness - 1
        due |= {n: g for n, g in others.items() if least < 0 or not all(is_fresh(least, step.version) for step in g[0])}
    sizes = {name: [len(steps) for steps in groups] for name, groups in due.items()}
    shares = fair_shares(
        sizes, {name: stream.groups for name, stream in store.config.streams.items()}, train.max_rollout_steps
    )
    return [step for name, groups in due.items() for steps in groups[: shares[name]] for step in steps]


def _whole(store: Store, c: Connection, group_id: str, is_fresh: Callable[[int], bool]) -> list[Any]:
    """The ready steps of a group; none, and nothing of it is ready any more, where some left the queue."""
    of = (T.id, T.state, T.exclusion, T.seq, T.version)
    mine = select(*of).join(trajectories, J.session_id == T.session_id).join(schema.samples, S.turn_id == T.id)
    steps = c.execute(mine.where(J.group_id == group_id).order_by(T.seq)).all()
    ready = [row for row in steps if row.state == TurnState.READY]
    gone = next((Exclusion(row.exclusion) for row in steps if row.exclusion in LEFT_THE_QUEUE), None)
    if gone is None and not all(is_fresh(version) for version in {row.version for row in ready}):
        gone = Exclusion.STALE
    if gone is None and ready:
        return ready
    store.move_all(c, ready, TurnState.EXCLUDED, gone or Exclusion.GROUP_CLOSED)
    why = str(gone) if gone else "no step of it is left to train on"
    c.execute(update(task_groups).where(G.id == group_id).values(state="dropped", why=why))
    return []


def groups_used(c: Connection, turn_ids: Sequence[str]) -> None:
    """The groups of these steps are part of a version."""
    of = select(J.group_id).join(schema.turns, T.session_id == J.session_id).where(T.id.in_(turn_ids))
    c.execute(update(task_groups).where(G.id.in_(of)).values(state="used"))


def groups_ready_again(store: Store, c: Connection, turn_ids: Sequence[str]) -> None:
    """Nothing came of the groups of these steps, which are ready once more."""
    of = select(J.group_id).join(schema.turns, T.session_id == J.session_id).where(T.id.in_(turn_ids))
    c.execute(update(task_groups).where(G.id.in_(of)).values(state="ready", ready_mono=store.now(c)))


def learned_from(c: Connection, number: int) -> dict[str, Any]:
    """What a version's update had of each stream: of the person's turns how many, and of rollouts the groups with the
    trajectories of each (session, outcome, steps)."""
    batch = select(schema.versions.c.turn_ids).where(schema.versions.c.number == number)
    packed = c.execute(batch).scalar_one_or_none()
    ids = unpack_json(packed) if packed is not None else []
    named = select(T.id, T.session_id, T.step, J.outcome, G.id.label("group_id"), G.stream, G.task_id)
    of = named.outerjoin(trajectories, J.session_id == T.session_id).outerjoin(task_groups, G.id == J.group_id)
    streams: dict[str, Any] = {}
    for at in range(0, len(ids), AT_ONCE):
        for row in c.execute(of.where(T.id.in_(ids[at : at + AT_ONCE])).order_by(T.seq)):
            if row.step is None or row.group_id is None:
                streams.setdefault(PERSONAL, {"turns": 0})["turns"] += 1
                continue
            groups = streams.setdefault(row.stream, {"groups": {}})["groups"]
            group = groups.setdefault(row.group_id, {"task": row.task_id, "trajectories": {}})
            told = {"outcome": row.outcome, "steps": 0}
            group["trajectories"].setdefault(row.session_id, told)["steps"] += 1
    return streams


def groups_of(c: Connection, rows: Sequence[Any]) -> Iterator[tuple[str, str, TaskGroup]]:
    """Turn, stream and group of each of these turns (`id`, `session_id`) that is a step of a rollout."""
    sessions = {row.session_id for row in rows}
    named = select(J.session_id, G.id, G.stream).join(task_groups, G.id == J.group_id)
    of = {row.session_id: row for row in c.execute(named.where(J.session_id.in_(sessions)))}
    ended = select(J.group_id, J.outcome).where(J.group_id.in_({row.id for row in of.values()}), J.outcome.is_not(None))
    outcomes: dict[str, list[float]] = {}
    for row in c.execute(ended.order_by(J.session_id)):
        outcomes.setdefault(row.group_id, []).append(row.outcome)
    groups = {name: TaskGroup(name, tuple(found)) for name, found in outcomes.items()}
    for row in rows:
        if row.session_id in of and of[row.session_id].id in groups:
            yield row.id, of[row.session_id].stream, groups[of[row.session_id].id]
