"""Leases of environments: who plays which rollout, and what came of it until the gateway has taken the outcome.

A lease has a time limit and a fencing token. Whoever comes after a holder that went silent gets the next token, and
from then on the earlier holder is refused. An outcome is written once and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, insert, select, update

from turnwise.errors import LeaseLost
from turnwise.journal.schema.rollouts import environment_leases
from turnwise.journal.store import Store

L = environment_leases.c
LEASE_S = 60.0
"""Seconds until a lease that nobody keeps can be taken by another."""


@dataclass(frozen=True, slots=True)
class EnvironmentLease:
    """A rollout's hold on an environment. ``left_folder``: what an earlier holder left behind, to be deleted;
    ``attempt``: the how many-th try began last, 0 for none; ``cut_off``: the limit that ended it."""

    session_id: str
    token: int
    state: str
    left_folder: str | None
    reward: float | None
    failure: str | None
    attempt: int = 0
    cut_off: str | None = None


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """What came of a rollout, as its host wrote it down: with a reward, or with why there is none."""

    reward: float | None
    failure: str | None
    details: Mapping[str, Any]


class EnvironmentLeases:
    """The host's side of the journal. Deadlines are on the journal's monotonic clock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def take(self, run: str, session_id: str) -> EnvironmentLease | None:
        """Lease a rollout; None while another holds it. One that is scored or posted is given as it stands, with a
        token of its own, and is not to be played again."""
        with self._store.transaction() as c:
            now = self._store.now(c)
            row = c.execute(select(environment_leases).where(L.session_id == session_id)).one_or_none()
            if row is None:
                values = {"session_id": session_id, "run": run, "token": 1, "state": "leased"}
                c.execute(insert(environment_leases).values(values | {"until_mono": now + LEASE_S}))
                return EnvironmentLease(session_id, 1, "new", None, None, None)
            # A deadline further off than a lease lasts is of an earlier boot.
            if row.state != "posted" and now < row.until_mono <= now + LEASE_S:
                return None
            self._set(c, session_id, {"token": row.token + 1, "until_mono": now + LEASE_S})
            known = json.loads(row.details) if row.details else {}
            return EnvironmentLease(
                session_id,
                row.token + 1,
                row.state,
                row.folder,
                row.reward,
                row.failure,
                int(known.get("attempt", row.state == "leased")),  # one begun by an earlier program does not say
                known.get("cut_off"),
            )

    def keep(self, lease: EnvironmentLease) -> None:
        """Hold on to a lease for another LEASE_S. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._check(c, lease)
            self._set(c, lease.session_id, {"until_mono": self._store.now(c) + LEASE_S})

    def begins(self, lease: EnvironmentLease, attempt: int) -> EnvironmentLease:
        """Say which try begins, before anybody hears of it. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._check(c, lease)
            self._set(c, lease.session_id, {"details": json.dumps({"attempt": attempt})})
            return replace(lease, attempt=attempt)

    def lies_in(self, lease: EnvironmentLease, folder: str | None) -> None:
        """Say where the episode's files are, before there are any. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._check(c, lease)
            self._set(c, lease.session_id, {"folder": folder})

    def score(
        self,
        lease: EnvironmentLease,
        reward: float | None,
        failure: str | None,
        details: Mapping[str, object],
        cut_off: str | None = None,
    ) -> None:
        """Write what came of a rollout. What stands there already stays. Raises LeaseLost."""
        told = {**details, "attempt": lease.attempt} | ({} if cut_off is None else {"cut_off": cut_off})
        with self._store.transaction() as c:
            if self._check(c, lease).state == "leased":
                said = {"reward": reward, "failure": failure, "details": json.dumps(told), "state": "scored"}
                self._set(c, lease.session_id, said)

    def posted(self, lease: EnvironmentLease) -> None:
        """The gateway has the outcome. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._check(c, lease)
            self._set(c, lease.session_id, {"state": "posted", "folder": None})

    def give_back(self, lease: EnvironmentLease) -> None:
        """End the hold, so that the next one need not wait. A lease that was lost is nobody's to give."""
        with self._store.transaction() as c:
            mine = (L.session_id == lease.session_id, L.token == lease.token)
            c.execute(update(environment_leases).where(*mine).values(until_mono=self._store.now(c)))

    def ended(self, session_id: str) -> EndedEpisode | None:
        """What came of the rollout that was played in a session; None where no host of this journal played it to its
        end, or this was not its last try."""
        name, _, attempt = session_id.rpartition("@")
        named = [session_id, name] if name and attempt.isdecimal() else [session_id]
        with self._store.reading() as c:
            of = select(L.session_id, L.reward, L.failure, L.details).where(
                L.session_id.in_(named), L.state != "leased"
            )
            rows = {row.session_id: row for row in c.execute(of)}
        for each in named:
            if (row := rows.get(each)) is not None:
                details = json.loads(row.details) if row.details else {}
                tried = details.get("attempt", 1)
                if (each == session_id and tried > 1) or (each != session_id and str(tried) != attempt):
                    continue
                return EndedEpisode(row.reward, row.failure, details)
        return None

    def of_run(self, run: str) -> Sequence[Any]:
        """Each rollout of a run: `session_id`, `state`, `reward`, `failure`."""
        of = select(L.session_id, L.state, L.reward, L.failure, L.folder).where(L.run == run).order_by(L.session_id)
        with self._store.reading() as c:
            return c.execute(of).all()

    def _check(self, c: Connection, lease: EnvironmentLease) -> Any:
        row = c.execute(select(environment_leases).where(L.session_id == lease.session_id)).one_or_none()
        if row is None or row.token != lease.token:
            raise LeaseLost(f"the rollout {lease.session_id} is another's by now; drop the work")
        return row

    def _set(self, c: Connection, session_id: str, values: Mapping[str, object]) -> None:
        c.execute(update(environment_leases).where(L.session_id == session_id).values(dict(values)))
