"""What many turns repeat word for word, such as an agent's tools, is stored once, under the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, insert, select

from turnwise.journal import schema
from turnwise.journal.packing import deflate, json_bytes

B, T = schema.blobs.c, schema.turns.c
_BY_HASH = select(B.id).where(B.hash == bindparam("hash"))
_INSERT = insert(schema.blobs).returning(B.id)
_HASH = select(B.hash).where(B.id == bindparam("which"))


class Content:
    """A value as JSON, and its hash: made once, outside of the transaction that stores it."""

    def __init__(self, value: Any) -> None:
        self._json = json_bytes(value)
        self.hash = hashlib.sha256(self._json).digest()

    def store(self, c: Connection) -> int:
        """The id under which it is stored; only what is new is written."""
        found = c.execute(_BY_HASH, {"hash": self.hash}).scalar_one_or_none()
        if found is not None:
            return found
        return c.execute(_INSERT, {"hash": self.hash, "data": deflate(self._json)}).scalar_one()

    def is_blob(self, c: Connection, blob_id: int) -> bool:
        return c.execute(_HASH, {"which": blob_id}).scalar_one_or_none() == self.hash


def sweep_blobs(c: Connection, ids: Iterable[int]) -> None:
    """Delete those of these blobs that no turn has any more."""
    for blob_id in ids:
        used = exists().where(T.tools_id == blob_id)
        c.execute(delete(schema.blobs).where(B.id == blob_id, ~used))
