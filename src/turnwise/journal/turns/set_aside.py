"""Sessions that are set aside: judged like all others, looked at by the gate, and never trained on.

Which they are is said by the id of the conversation's first session: one that branched off holds its words. Where that
first one is deleted, a note keeps what it said: for the gate what was trained on would be no test.
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
_NOTE = "aside|"
"""Facts of the journal with names like this say of a session what can no longer be told by where it came from: whether
it is set aside (no value), or never is (_LEARNED)."""
_LEARNED = "never"


def set_aside(c: Connection, session_id: str, gate: GateConfig) -> bool:
    """Whether nothing is to be learned from this session."""
    if not (gate.enabled and gate.probe_share):
        return False
    for _ in range(_MOST_BRANCHES):
        if (noted := meta(c, _NOTE + session_id)) is not None:
            return noted != _LEARNED
        parent = c.execute(select(S.parent_id).where(S.id == session_id)).scalar_one_or_none()
        if parent is None:
            break
        session_id = parent
    return is_set_aside(session_id, _place(c, session_id), gate.probe_share, gate.probe_after)


def note_deleted(c: Connection, sessions: Sequence[str], gate: GateConfig, *, may_return: bool) -> None:
    """Before sessions are deleted: what branched off from them has their words, and stays set aside, or stays not.

    ``may_return``: a client may go on with one of them under its name. The first ones of a home, from which all is
    learned, would then be among the later ones, so that too is noted; else nothing of them is kept.
    """
    early = select(S.id).where(S.id.in_(sessions), S.seq <= gate.probe_after)
    kept = {name: _noted(c, name, gate) for name in c.execute(early).scalars().all()} if may_return else {}
    branches = select(S.id, S.parent_id).where(S.parent_id.in_(sessions), S.id.not_in(sessions))
    kept |= {branch.id: _noted(c, branch.parent_id, gate) for branch in c.execute(branches).all()}
    c.execute(delete(schema.meta).where(M.name.in_([_NOTE + name for name in sessions])))
    for name, value in kept.items():
        set_meta(c, _NOTE + name, value)


def _noted(c: Connection, session_id: str, gate: GateConfig) -> str:
    return "" if set_aside(c, session_id, gate) else _LEARNED


def _place(c: Connection, session_id: str) -> int:
    """The how many-th session of this home it is; of one that was deleted its id alone decides."""
    return c.execute(select(S.seq).where(S.id == session_id)).scalar_one_or_none() or LATE
