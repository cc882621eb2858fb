"""Refusals: what becomes of samples whose batch the gate refused, and when that has become a wall.

A refused batch taught nothing, so its samples are ready again. They are tried again together with samples that were
not in it, never by themselves, because the same batch under the same configuration comes to the same refusal. A change
of the configuration makes them as good as new, also those that were refused so often that they were set aside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from turnwise.config import Config
from turnwise.journal import schema
from turnwise.journal.clocks import meta, set_meta
from turnwise.journal.counts import read_count
from turnwise.journal.packing import unpack_json
from turnwise.journal.store import Store
from turnwise.types import Exclusion, TurnState

T, B, S = schema.turns.c, schema.batches.c, schema.samples.c

WALL = 3
"""Batches refused one after the other that make a person's business of it."""
MOST_REFUSALS = 2 * WALL
"""Refused batches that a sample may have been in; then it is set aside, for it may be what they have in common.

Twice as many as a person is told after, who then has as many batches' time to change what stands in the way."""
_REVIVED_FOR = "revived_for"
"""A fact of the journal: the configuration that what was set aside under another one has been looked through for."""
_LOOKED_BACK = 50


def configuration(config: Config) -> str:
    """What a refusal depends on beside the samples, in a few letters."""
    of = [
        config.model.path,
        config.train.model_dump(mode="json", exclude={"when"}),
        config.gate.model_dump(mode="json"),
    ]
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def give_back(store: Store, c: Connection, turn_ids: Sequence[str], gate: dict[str, Any]) -> None:
    """Make the samples of a refused batch ready again, but for those that were refused too often.

    What is only held, because something could not be measured, is no fault of the samples: it is not counted.
    """
    now = {"refusals": S.refusals + (0 if gate.get("held") else 1), "refused_as": configuration(store.config)}
    c.execute(update(schema.samples).where(S.turn_id.in_(turn_ids)).values(now))
    counted = select(S.turn_id, S.refusals).where(S.turn_id.in_(turn_ids))
    refusals = {row.turn_id: row.refusals for row in c.execute(counted)}
    for turn_id in turn_ids:
        if refusals.get(turn_id, 0) < MOST_REFUSALS:
            store.move(c, turn_id, TurnState.READY, batch_id=None)
            continue
        last = "; ".join(gate.get("reasons", []))
        why = f"it was in {MOST_REFUSALS} batches that the gate refused; the last time: {last}"
        store.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.REFUSED_BY_GATE, last_error=why)


def revive(store: Store, c: Connection, most: int) -> None:
    """Make up to ``most`` samples that were set aside under another configuration ready again.

    They are looked for once after each change of it, and as long as there are more of them.
    """
    if not read_count(c, "turns", TurnState.EXCLUDED, Exclusion.REFUSED_BY_GATE):
        return
    now = configuration(store.config)
    if meta(c, _REVIVED_FOR) == now:
        return
    refused = T.exclusion == Exclusion.REFUSED_BY_GATE
    wanted = select(T.id).join_from(schema.samples, schema.turns, S.turn_id == T.id).where(refused, S.refused_as != now)
    wanted = wanted.where(T.step.is_(None))  # the group of a step is over
    found = c.execute(wanted.order_by(T.seq).limit(most)).scalars().all()
    for turn_id in found:
        store.move(c, turn_id, TurnState.JUDGED)
        store.move(c, turn_id, TurnState.READY, batch_id=None, last_error=None)
    c.execute(update(schema.samples).where(S.turn_id.in_(found)).values(refusals=0))
    if len(found) < most:
        set_meta(c, _REVIVED_FOR, now)


def in_a_row(c: Connection) -> dict[str, Any]:
    """``count`` of the batches the gate refused since the last version; ``reasons`` and ``advice`` of the newest."""
    ended = select(B.state, B.gate).where(B.state.in_(["done", "refused"])).order_by(B.id.desc()).limit(_LOOKED_BACK)
    told: list[dict[str, Any]] = []
    for row in c.execute(ended):
        if row.state == "done":
            break
        gate = unpack_json(row.gate) if row.gate else {}
        if "advice" in gate:  # a batch that could not be trained on was not asked at the gate
            told.append(gate)
    newest = told[0] if told else {}
    return {"count": len(told), **{name: newest.get(name, []) for name in ("reasons", "advice")}}


def wall(refused: dict[str, Any]) -> str | None:
    """What stands in the way of every update, as a sentence, when `in_a_row` has become long enough to say so."""
    if refused["count"] < WALL:
        return None
    why, advice = ("; ".join(refused[name]) for name in ("reasons", "advice"))
    count = refused["count"]
    return f"nothing new is learned: the gate refused the last {count} batches, because {why}. To go on: {advice}"
