"""Trajectories: sessions that play a task. What a client says of one at its first request, and the outcome at its end.

A trajectory is of one group from its first request on, or from when it was announced, has its steps numbered, and gets
one outcome: a number, or the word that there is none, since something failed that is not the policy's doing, or a limit
ended it. It is posted once; posted again it has to be the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update

from turnwise.config import StreamConfig, StreamsConfig
from turnwise.errors import RolloutRefused
from turnwise.journal import schema
from turnwise.journal.rollouts.groups import any_overdue, close_overdue, settle_group
from turnwise.journal.schema.rollouts import environment_leases, task_groups, trajectories
from turnwise.journal.store import Store
from turnwise.types import UNANSWERED, Exclusion, Rollout, TurnKind, TurnState

T, G, J = schema.turns.c, task_groups.c, trajectories.c
CUT_OFF = "cut off: "
"""How the word begins that a rollout has no outcome since a limit ended it."""
LARGEST_OUTCOME = 1e6
"""Either way; what is further away is no reward."""
AGAIN = "@"
"""What stands between the name of a rollout and the number of the try, where it is played again."""


def name_of(session_id: str) -> str:
    """A rollout's name, however often it is tried: without the number of a try, from the second on."""
    name, _, number = session_id.rpartition(AGAIN)
    is_try = number.isascii() and number.isdecimal() and not number.startswith("0") and number != "1"
    return name if name and is_try else session_id


@dataclass(frozen=True, slots=True)
class Posted:
    """What came of an outcome: the group, how many of its ``size`` rollouts have ended, and its state."""

    group_id: str
    ended: int
    size: int
    state: str
    why: str | None
    steps: int
    """That the rollout itself made."""


def take_up(
    c: Connection, session_id: str, said: Rollout | None, now: float, mono: float, streams: StreamsConfig
) -> bool:
    """Whether a session is a rollout; one that begins becomes a trajectory of the group that its client named.

    Raises RolloutRefused for one that has ended, or of which the client says now what it did not say at first.
    """
    row = c.execute(select(trajectories).where(J.session_id == session_id)).one_or_none()
    if row is not None:
        _check_goes_on(c, row, said)
        return True
    if said is None:
        return False
    if c.execute(select(T.id).where(T.session_id == session_id).limit(1)).first() is not None:
        raise RolloutRefused(
            f"session {session_id} began without a word of a rollout, so it is none; begin a rollout in a session of "
            "its own",
            "not_a_rollout",
        )
    stream = streams.named(said.stream) or StreamConfig()
    _join(c, said, now, mono, stream.open_groups)
    c.execute(insert(trajectories).values(session_id=session_id, group_id=said.group_id, created_at=now))
    return True


def is_rollout(c: Connection, session_id: str) -> bool:
    """Whether a session plays a task."""
    return c.execute(select(J.session_id).where(J.session_id == session_id)).first() is not None


def _check_goes_on(c: Connection, row: Any, said: Rollout | None) -> None:
    if row.ended_at is not None:
        raise RolloutRefused(
            f"the rollout {row.session_id} has its outcome already; begin another one in a session of its own",
            "rollout_ended",
        )
    group = c.execute(select(task_groups).where(G.id == row.group_id)).one()
    if said is not None:
        _check_same(group, said)
    if group.state != "open":
        raise RolloutRefused(f"the group {group.id} is closed: {group.why or 'it is complete'}", "group_closed")


def _check_same(group: Any, said: Rollout) -> None:
    told = Rollout(group.stream, group.task_id, group.id, group.size)
    if told != said:
        raise RolloutRefused(
            f"the group {group.id} is one of {group.size} rollouts of task {group.task_id} in the stream "
            f"{group.stream}; this request says otherwise. Give each group an id of its own",
            "group_mismatch",
        )


def _join(c: Connection, said: Rollout, now: float, mono: float, most_open: int) -> None:
    """Count one more rollout in the group, which the first of them opens."""
    group = c.execute(select(task_groups).where(G.id == said.group_id)).one_or_none()
    if group is None:
        live = select(func.count()).where(G.state == "open", G.stream == said.stream)
        if c.execute(live).scalar_one() >= most_open:
            raise RolloutRefused(
                f"the stream {said.stream} has {most_open} groups that wait for their rollouts "
                f"(streams.{said.stream}.open_groups); end one of them, or wait until it is closed",
                "too_many_groups",
                status=429,
            )
        named = {"id": said.group_id, "stream": said.stream, "task_id": said.task_id, "size": said.group_size}
        c.execute(insert(task_groups).values(named | {"state": "open", "created_at": now, "begun_mono": mono}))
        return
    _check_same(group, said)
    there = c.execute(select(func.count()).where(J.group_id == group.id)).scalar_one()
    if group.state != "open":
        raise RolloutRefused(f"the group {group.id} is closed: {group.why or 'it is complete'}", "group_closed")
    if there >= group.size:
        raise RolloutRefused(f"the group {group.id} has its {group.size} rollouts already", "group_full")


def step_of(c: Connection, store: Store, session_id: str, parent_id: str | None, supersedes: str | None) -> int:
    """The index of the step that begins now. Raises RolloutRefused where it is one more than the stream allows.

    An answer that is asked for again is the same step, and so is one behind a step whose answer failed.
    """
    again = None if supersedes is None else _step(c, session_id, supersedes)
    before = None if parent_id is None else _step(c, session_id, parent_id)
    if again is not None:
        step = again
    elif before is not None:
        step = before + 1
    else:
        whole = or_(T.finish_reason.is_(None), T.finish_reason.not_in(UNANSWERED))
        last = select(func.max(T.step)).where(T.session_id == session_id, whole)
        found = c.execute(last).scalar_one()
        step = 0 if found is None else found + 1
    stream = c.execute(
        select(G.stream).join(trajectories, J.group_id == G.id).where(J.session_id == session_id)
    ).scalar_one()
    goes_on = (J.session_id == session_id, J.ended_at.is_(None), J.failure.is_not(None))
    c.execute(update(trajectories).where(*goes_on).values(failure=None))  # what had cut it off is behind it
    limits = store.config.streams.named(stream)
    if limits is not None and limits.max_steps is not None and step >= limits.max_steps:
        raise RolloutRefused(
            f"the rollout {session_id} has made its {limits.max_steps} steps (streams.{stream}.max_steps); post its "
            "outcome",
            "step_limit",
            status=400,
        )
    return step


def _step(c: Connection, session_id: str, turn_id: str) -> int | None:
    return c.execute(select(T.step).where(T.id == turn_id, T.session_id == session_id)).scalar_one_or_none()


def drop_trajectories(c: Connection, sessions: Collection[str]) -> None:
    """Delete what is known of these rollouts, and groups that had no others."""
    of = select(J.group_id).where(J.session_id.in_(sessions))
    groups = c.execute(of.distinct()).scalars().all()
    c.execute(delete(trajectories).where(J.session_id.in_(sessions)))
    played = {name_of(session) for session in sessions} | set(sessions)
    c.execute(delete(environment_leases).where(environment_leases.c.session_id.in_(played)))
    c.execute(delete(task_groups).where(G.id.in_(groups), ~exists().where(J.group_id == G.id)))


class Trajectories:
    """The side of those who play tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def owner(self, session_id: str) -> Rollout | None:
        """What is known of a session as a rollout; None where it is none."""
        found = select(G.stream, G.task_id, G.id, G.size).join(trajectories, J.group_id == G.id)
        with self._store.reading() as c:
            row = c.execute(found.where(J.session_id == session_id)).one_or_none()
            return None if row is None else Rollout(*row)

    def client_of(self, session_id: str) -> str | None:
        """The key of the client that asks in a session; None where nobody has asked yet."""
        with self._store.reading() as c:
            of = schema.sessions.c
            return c.execute(select(of.client).where(of.id == session_id)).scalar_one_or_none()

    def announce(self, session_id: str, said: Rollout, instead_of: str | None = None) -> int:
        """Say of a session that it is a rollout, before its first request or again; the client need say nothing then.
        Gives how many of its steps were answered.

        ``instead_of``: a rollout of the same group that its player lost in the middle. It and earlier tries of it are
        masked, and this one has its place. Raises RolloutRefused where one of them has ended, an answer is under way,
        the group is closed, or it is no rollout that is known.
        """
        with self._store.transaction() as c:
            if instead_of is not None:
                self._give_way(c, instead_of, said, session_id)
            take_up(c, session_id, said, self._store.clock(), self._store.now(c), self._store.config.streams)
            of = (T.session_id == session_id, T.finish_reason.is_not(None), T.finish_reason.not_in(UNANSWERED))
            return c.execute(select(func.count(T.step.distinct())).where(*of)).scalar_one()

    def _give_way(self, c: Connection, instead_of: str, said: Rollout, successor: str) -> None:
        """Take out a lost rollout of this group and its other tries."""
        name = name_of(instead_of)
        tries = c.execute(select(J.session_id).where(J.group_id == said.group_id)).scalars().all()
        mine = [one for one in tries if name_of(one) == name]
        taken_out = (J.session_id == instead_of, J.group_id == instead_of, J.ended_at.is_not(None))
        if not mine and c.execute(select(J.session_id).where(*taken_out)).first() is None:
            raise RolloutRefused(
                f"there is no rollout {instead_of} in the group {said.group_id} in whose place {successor} could be "
                "played; announce it without instead_of",
                "no_such_rollout",
                status=404,
            )
        for one in mine:
            if one != successor:
                self._take_out(c, one, said, successor)

    def _take_out(self, c: Connection, session_id: str, said: Rollout, successor: str) -> None:
        row = c.execute(select(trajectories).where(J.session_id == session_id)).one()
        if row.ended_at is not None:
            raise RolloutRefused(f"the rollout {session_id} has ended, so none takes its place", "rollout_ended")
        _check_goes_on(c, row, said)
        self._end_steps(c, session_id, Exclusion.INFRASTRUCTURE, ())
        why = f"it was lost in the middle, and is played again as {successor}"
        alone = {"id": session_id, "stream": said.stream, "task_id": said.task_id, "size": 1, "state": "dropped"}
        c.execute(insert(task_groups).values(alone | {"why": why, "created_at": row.created_at}))
        gone = {"group_id": session_id, "failure": why, "ended_at": self._store.clock()}
        c.execute(update(trajectories).where(J.session_id == session_id).values(gone))

    def cut_off(self, session_id: str, why: str) -> None:
        """A limit was met: unless the rollout goes on all the same, it is what ended it. Nothing for other sessions."""
        with self._store.transaction() as c:
            mine = (J.session_id == session_id, J.ended_at.is_(None))
            c.execute(update(trajectories).where(*mine).values(failure=CUT_OFF + why))

    def close_overdue(self) -> int:
        """Close the groups that have waited for too long; gives how many there were. For whoever does the upkeep."""
        with self._store.reading() as c:
            if not any_overdue(self._store, c):
                return 0
        with self._store.transaction() as c:
            return close_overdue(self._store, c)

    def post(
        self,
        session_id: str,
        outcome: float | None,
        failure: str | None = None,
        masked: Collection[int] = (),
        cut_off: str | None = None,
    ) -> Posted:
        """Take a rollout's outcome, or why there is none (``failure``). ``masked``: steps that are not trained on.

        ``cut_off``: the limit that ended it, where one did. Its stream says whether the outcome counts then.

        Raises RolloutRefused: for a session that is no rollout or that is not there, a step that it does not have, an
        answer under way, another outcome than the one it has, and a group that was closed.
        """
        with self._store.transaction() as c:
            row = c.execute(select(trajectories).where(J.session_id == session_id)).one_or_none()
            if row is None:
                raise self._unknown(c, session_id)
            if row.ended_at is not None:
                was_cut = row.outcome is None and str(row.failure).startswith(CUT_OFF)
                if (row.outcome, row.failure) != (outcome, failure) and not (was_cut and outcome is not None):
                    had = f"the outcome {row.outcome:g}" if row.outcome is not None else "the word that it failed"
                    raise RolloutRefused(
                        f"the rollout {session_id} has {had} already, which stays; an outcome is posted once",
                        "other_outcome",
                    )
                return _posted(c, row.group_id, session_id)
            group = c.execute(select(task_groups).where(G.id == row.group_id)).one()
            if group.state != "open":
                raise RolloutRefused(f"the group {group.id} is closed: {group.why or 'it is complete'}", "group_closed")
            stream = self._store.config.streams.named(group.stream) or StreamConfig()
            met = row.failure if cut_off is None else CUT_OFF + cut_off
            why = None if failure is None else Exclusion.INFRASTRUCTURE
            if outcome is not None and met is not None and stream.cut_off == "mask":
                outcome, failure, why = None, met, Exclusion.CUT_OFF
            self._end_steps(c, session_id, why, masked)
            ended = {"outcome": outcome, "failure": failure, "ended_at": self._store.clock()}
            c.execute(update(trajectories).where(J.session_id == session_id).values(ended))
            settle_group(self._store, c, row.group_id)
            return _posted(c, row.group_id, session_id)

    def _unknown(self, c: Connection, session_id: str) -> RolloutRefused:
        known = c.execute(select(schema.sessions.c.id).where(schema.sessions.c.id == session_id)).first()
        if known is None:
            return RolloutRefused(f"there is no session {session_id}", "session_not_found", status=404)
        return RolloutRefused(
            f"session {session_id} is no rollout: its first request had no X-Stream, so it takes no outcome",
            "not_a_rollout",
        )

    def _end_steps(self, c: Connection, session_id: str, all_for: Exclusion | None, masked: Collection[int]) -> None:
        """No next state will come to the last step: what waits is judged as far as it will ever be, or excluded, all of
        it where there is a reason for that."""
        of = (T.id, T.state, T.exclusion, T.step, T.kind)
        rows = c.execute(select(*of).where(T.session_id == session_id, T.kind == TurnKind.MAIN)).all()
        if any(row.state == TurnState.SERVED for row in rows):
            raise RolloutRefused(
                f"an answer in session {session_id} is under way; post the outcome when it has ended",
                "answer_under_way",
            )
        if missing := set(masked) - {row.step for row in rows}:
            raise RolloutRefused(
                f"the rollout {session_id} has no step {min(missing)}, so it cannot be masked", "no_such_step", 400
            )
        open_ones = [row for row in rows if row.state in (TurnState.WAITING, TurnState.JUDGING, TurnState.JUDGED)]
        for state in (TurnState.WAITING, TurnState.JUDGING, TurnState.JUDGED):
            these = [row for row in open_ones if row.state == state]
            out = [row for row in these if all_for is not None or row.step in masked]
            self._store.move_all(c, out, TurnState.EXCLUDED, all_for or Exclusion.MASKED)
            if state is TurnState.WAITING:
                self._store.move_all(c, [row for row in these if row not in out], TurnState.JUDGED)


def _posted(c: Connection, group_id: str, session_id: str) -> Posted:
    group = c.execute(select(task_groups).where(G.id == group_id)).one()
    ended = select(func.count()).where(J.group_id == group_id, J.ended_at.is_not(None))
    last = c.execute(select(func.max(T.step)).where(T.session_id == session_id)).scalar_one()
    steps = 0 if last is None else last + 1
    return Posted(group_id, c.execute(ended).scalar_one(), group.size, group.state, group.why, steps)
