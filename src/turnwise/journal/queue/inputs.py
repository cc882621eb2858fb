"""What an update read of the journal, kept with its batch: so that it can be done again, without what was forgotten.

Kept are ids, rewards and settings, and no text. A hint or a turn that is forgotten is gone from here by being gone from
its own table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.batches import LAST_HINTS, PROBES, Batches
from turnwise.journal.store import Store
from turnwise.types import Batch, Sample

T, B, D, S = schema.turns.c, schema.batches.c, schema.verdicts.c, schema.samples.c
P, V = schema.provenance.c, schema.versions.c


@dataclass(frozen=True, slots=True)
class UpdateInputs:
    """A batch as it was read, without what is gone by now.

    ``samples``, ``probes`` and the rest as in `Batch` and `Trainer.train`; ``settings``: the sections ``train``,
    ``gate`` and ``streams`` of the configuration, and the model's path, as they were. ``left_out``: turns of it that
    are still there and were left out.
    """

    batch: int
    samples: list[Sample]
    hints: list[str]
    hint_turns: list[str]
    hinted: list[Sample]
    probes: list[Sample]
    settings: dict[str, Any]
    left_out: list[str]

    def as_batch(self, token: str, parent: int) -> Batch:
        """As a trainer takes it, on top of a version."""
        return Batch(self.batch, token, parent, self.samples, self.hints, self.hint_turns, self.hinted)


class UpdateRecords:
    """Keeping what updates read, and reading it again."""

    def __init__(self, store: Store, batches: Batches) -> None:
        self._store = store
        self._batches = batches

    def keep(self, batch: Batch, probes: Sequence[str]) -> None:
        """Keep what the update of a leased batch reads; ``probes``: what the gate looks at. Raises LeaseLost."""
        config, turns = self._store.config, [s.turn_id for s in batch.samples]
        with self._store.transaction() as c:
            self._batches.hold(c, batch)
            made_of = select(S.turn_id, S.verdict).where(S.turn_id.in_(turns))
            verdicts = {row.turn_id: row.verdict for row in c.execute(made_of)}
            read = {
                "samples": [[s.turn_id, s.reward, verdicts.get(s.turn_id), s.hint is not None] for s in batch.samples],
                "hints": [_verdict_of(c, *one) for one in zip(batch.hint_turns, batch.hints, strict=True)],
                "probes": list(probes),
                "model": config.model.path,
                "train": config.train.model_dump(mode="json"),
                "gate": config.gate.model_dump(mode="json"),
                "streams": config.streams.model_dump(mode="json"),
            }
            c.execute(update(schema.batches).where(B.id == batch.id).values(read=pack_json(read)))

    def turns_of(self, sessions: Collection[str]) -> list[str]:
        """The turns of these sessions."""
        with self._store.reading() as c:
            return list(c.execute(select(T.id).where(T.session_id.in_(sessions))).scalars())

    def examined_on(self, turns: Collection[str]) -> set[int]:
        """The versions that the gate examined on any of these turns."""
        made = select(V.number, B.read).join_from(schema.versions, schema.batches, B.id == V.batch_id)
        with self._store.reading() as c:
            rows = c.execute(made.where(B.read.is_not(None))).all()
        return {row.number for row in rows if not set(turns).isdisjoint(unpack_json(row.read)["probes"])}

    def learned_from(self, turns: Collection[str]) -> set[int]:
        """The versions that learned from any of these turns."""
        with self._store.reading() as c:
            rows = c.execute(select(V.number, V.turn_ids).where(V.turn_ids.is_not(None))).all()
        return {row.number for row in rows if not set(turns).isdisjoint(unpack_json(row.turn_ids))}

    def batches_of(self, versions: Collection[int]) -> dict[int, int]:
        """The batch that each version came of, where it is known."""
        with self._store.reading() as c:
            found = c.execute(select(V.number, V.batch_id).where(V.number.in_(versions), V.batch_id.is_not(None)))
            return {row.number: row.batch_id for row in found}

    def can_be_read(self, batch: int) -> bool:
        """Whether it is known what the update of a batch read."""
        with self._store.reading() as c:
            return c.execute(select(B.read).where(B.id == batch)).scalar_one_or_none() is not None

    def again(self, batch: int, without: Collection[str]) -> UpdateInputs:
        """What the update of a batch read, as if the turns ``without`` and all that is forgotten had never been.

        Where the last hints or the newest probes have become fewer, those that stood behind them come in, as they would
        have. Raises JournalError for a batch from before this was kept, or with turns that were pruned.
        """
        with self._store.reading() as c:
            kept = c.execute(select(B.read).where(B.id == batch)).scalar_one_or_none()
            if kept is None:
                raise JournalError(f"what the update of batch {batch} read is not known: it is from before it was kept")
            read = unpack_json(kept)
            _refuse_pruned(c, batch, [turn for turn, *_ in read["samples"]])
            told = _hints_then(c, read["hints"], without)
            probes = _probes_then(c, read, without)
            rewards, left_out = _samples_then(c, read["samples"], without)
        samples = [
            replace(sample, reward=rewards[sample.turn_id][0], hint=rewards[sample.turn_id][1])
            for sample in self._batches.read(list(rewards))
        ]
        turns = [turn for turn, _ in told]
        settings = {name: read[name] for name in ("model", "train", "gate", "streams") if name in read}
        return UpdateInputs(
            batch=batch,
            samples=samples,
            hints=[hint for _, hint in told],
            hint_turns=turns,
            hinted=self._batches.read(turns),
            probes=self._batches.read(probes),
            settings=settings,
            left_out=left_out,
        )


def _refuse_pruned(c: Connection, batch: int, turns: Sequence[str]) -> None:
    """Of what is forgotten nothing is left; of what was pruned there is a note that a version learned from it."""
    noted = select(P.turn_id).where(P.turn_id.in_(turns), P.turn_id.not_in(select(T.id))).limit(1)
    if c.execute(noted).one_or_none() is not None:
        raise JournalError(f"turns that batch {batch} learned from were pruned, so its update cannot be done again")


def _verdict_of(c: Connection, turn_id: str, hint: str) -> int | None:
    """The newest verdict that gave this hint on this turn."""
    return c.execute(select(func.max(D.id)).where(D.turn_id == turn_id, D.hint == hint)).scalar_one()


def _samples_then(
    c: Connection, kept: Sequence[Sequence[Any]], without: Collection[str]
) -> tuple[dict[str, tuple[float, str | None]], list[str]]:
    """Reward and hint of each turn that stays, in their order; and the turns that are there and are left out.

    Left out is also one whose verdict is gone: it came of words that are forgotten.
    """
    ids = [turn for turn, *_ in kept]
    there = set(c.execute(select(T.id).where(T.id.in_(ids))).scalars())
    numbers = [verdict for _, _, verdict, _ in kept if verdict is not None]
    hints = {row.id: row.hint for row in c.execute(select(D.id, D.hint).where(D.id.in_(numbers)))}
    stay: dict[str, tuple[float, str | None]] = {}
    for turn, reward, verdict, hinted in kept:
        if turn in there and turn not in without and (verdict is None or verdict in hints):
            stay[turn] = (reward, hints.get(verdict) if hinted else None)
    return stay, [turn for turn in ids if turn in there and turn not in stay]


def _hints_then(c: Connection, kept: Sequence[int | None], without: Collection[str]) -> list[tuple[str, str]]:
    """The turns and hints that an update was told, oldest first."""
    numbers = [number for number in kept if number is not None]
    wanted = select(D.id, D.turn_id, D.hint).where(D.hint.is_not(None), D.turn_id.not_in(list(without)))
    found = list(c.execute(wanted.where(D.id.in_(numbers)).order_by(D.id)))
    if len(kept) == LAST_HINTS and len(found) < LAST_HINTS and numbers:
        older = wanted.where(D.id < min(numbers)).order_by(D.id.desc()).limit(LAST_HINTS - len(found))
        found = [*reversed(c.execute(older).all()), *found]
    return [(row.turn_id, row.hint) for row in found]


def _probes_then(c: Connection, read: dict[str, Any], without: Collection[str]) -> list[str]:
    """The turns that the gate looked at, newest first."""
    kept, most = read["probes"], int(read["gate"]["probes"])
    verdicts = {row.id: row.good_verdict for row in c.execute(select(T.id, T.good_verdict).where(T.id.in_(kept)))}
    stay = [turn for turn in kept if turn in verdicts and turn not in without]
    known = [number for number in verdicts.values() if number is not None]
    if len(kept) == most and len(stay) < most and known:
        trained = [turn for turn, *_ in read["samples"]]
        older = select(T.id).where(PROBES, T.good_verdict < min(known), T.id.not_in([*without, *trained, *stay]))
        stay += c.execute(older.order_by(T.good_verdict.desc()).limit(most - len(stay))).scalars()
    return stay
