"""Sessions that are set aside: judged like all others, looked at by the gate, and never trained on.

Which they are is said by the id of the conversation's first session: one that branched off holds its words.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from turnwise.config import GateConfig
from turnwise.journal import schema
from turnwise.journal.clocks import M, meta, set_meta
from turnwise.sampling import is_set_aside

S = schema.sessions.c
_MOST_BRANCHES = 100
LATE = 2**31
_ORPHAN = "aside|"
"""Facts of the journal with names like this are of sessions that branched off one that was set aside and is gone."""


def set_aside(c: Connection, session_id: str, gate: GateConfig) -> bool:
    """Whether nothing is to be learned from this session."""
    if not (gate.enabled and gate.probe_share):
        return False
    for _ in range(_MOST_BRANCHES):
        parent = c.execute(select(S.parent_id).where(S.id == session_id)).scalar_one_or_none()
        if parent is None:
            break
        session_id = parent
    return meta(c, _ORPHAN + session_id) is not None or is_set_aside(
        session_id, _place(c, session_id), gate.probe_share, gate.probe_after
    )


def keep_branches_aside(c: Connection, sessions: Sequence[str], gate: GateConfig) -> None:
    """Before sessions are forgotten: what branched off from one that is set aside has its words, and stays so."""
    branches = select(S.id, S.parent_id).where(S.parent_id.in_(sessions), S.id.not_in(sessions))
    for branch in c.execute(branches).all():
        if set_aside(c, branch.parent_id, gate):
            set_meta(c, _ORPHAN + branch.id, "")
    c.execute(delete(schema.meta).where(M.name.in_([_ORPHAN + name for name in sessions])))


def _place(c: Connection, session_id: str) -> int:
    """The how many-th session of this home it is; of one that was deleted its id alone decides."""
    return c.execute(select(S.seq).where(S.id == session_id)).scalar_one_or_none() or LATE
