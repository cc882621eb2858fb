"""Which pictures stand in the prompts of turns, and the deletion of files that no turn has any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from turnwise.journal.schema.pictures import turn_pictures
from turnwise.journal.store import Store
from turnwise.pictures.placed import PlacedPicture, as_record
from turnwise.pictures.store import PictureStore

P = turn_pictures.c
AT_ONCE = 200
"""Files that are looked at in one transaction, and turns that are asked for in one statement."""
_INSERT = insert(turn_pictures)


def note_pictures(c: Connection, turn_id: str, pictures: Sequence[PlacedPicture]) -> None:
    """Record what stands in a turn's whole prompt."""
    if pictures:
        c.execute(_INSERT, [as_record(picture) | {"turn_id": turn_id} for picture in pictures])


def pictures_of(c: Connection, turn_ids: Sequence[str]) -> dict[str, tuple[PlacedPicture, ...]]:
    """The pictures in the prompts of these turns, in their order; a turn without any is left out."""
    found: dict[str, tuple[PlacedPicture, ...]] = {}
    for start in range(0, len(turn_ids), AT_ONCE):
        some = list(turn_ids[start : start + AT_ONCE])
        for row in c.execute(select(turn_pictures).where(P.turn_id.in_(some)).order_by(P.turn_id, P.start)):
            found[row.turn_id] = (*found.get(row.turn_id, ()), _picture(row))
    return found


def sweep_pictures(store: Store) -> int:
    """Delete the files that no turn has; gives their number.

    Nobody writes meanwhile, and whoever records a turn has its pictures there when it is recorded: so none is lost that
    came in just now.
    """
    kept, gone = PictureStore(store.config.home), 0
    there = kept.all()
    for start in range(0, len(there), AT_ONCE):
        some = there[start : start + AT_ONCE]
        with store.transaction() as c:
            used = set(c.execute(select(P.sha256).where(P.sha256.in_(some)).distinct()).scalars())
            gone += kept.drop_all_but(used, some)
    return gone


def _picture(row: Row[Any]) -> PlacedPicture:
    return PlacedPicture(**{name: getattr(row, name) for name in PlacedPicture.__slots__})
