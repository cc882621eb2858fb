"""Sessions that are set aside: judged like all others, looked at by the gate, and never trained on.

Which they are is said by the id of the conversation's first session: one that branched off holds its words.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from turnwise.config import GateConfig
from turnwise.journal import schema
from turnwise.sampling import is_set_aside

S = schema.sessions.c
_MOST_BRANCHES = 100
LATE = 2**31


def set_aside(c: Connection, session_id: str, gate: GateConfig) -> bool:
    """Whether nothing is to be learned from this session."""
    if not (gate.enabled and gate.probe_share):
        return False
    for _ in range(_MOST_BRANCHES):
        parent = c.execute(select(S.parent_id).where(S.id == session_id)).scalar_one_or_none()
        if parent is None:
            break
        session_id = parent
    return is_set_aside(session_id, _place(c, session_id), gate.probe_share, gate.probe_after)


def _place(c: Connection, session_id: str) -> int:
    """The how many-th session of this home it is; of one that was deleted its id alone decides."""
    return c.execute(select(S.seq).where(S.id == session_id)).scalar_one_or_none() or LATE
