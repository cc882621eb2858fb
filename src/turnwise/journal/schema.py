"""The journal's tables, and the compact forms in which token ids, log-probs and messages are stored.

Every column that a query filters on is plain; everything bulky is a blob, compressed where that pays. A turn whose
prompt extends its parent's prompt and answer stores only what it added, so a session of n turns takes O(n) space, not
O(n²).
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("client", Text, nullable=False),  # who sent it: a hash of token and user agent
    Column("source", Text, nullable=False),  # header, url or lineage
    Column("parent_id", Text),  # the session this one branched off from
    Column("created_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("close_reason", Text),
    Index("ix_sessions_open", "closed_at", "last_seen_at"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("state_at", Float, nullable=False),
    Column("exclusion", Text),
    Column("parent_id", Text),
    Column("extends_parent", Boolean, nullable=False),  # blobs below hold only what was added to the parent
    Column("bridged", Boolean, nullable=False),  # prompt ids extend the parent's prompt and response ids
    Column("version", Integer, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("model", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("request_hash", Text, nullable=False),
    Column("context_hash", Text),  # hash of the messages and the answer: what the next request begins with
    Column("thread_hash", Text),  # of all answers in their order: what a rewritten history still has in common
    Column("answer_hash", Text),  # of the answer alone
    Column("format", Text),  # the wire format of the request
    Column("retry_key", Text),
    Column("temperature", Float, nullable=False),
    Column("hint_at", Integer),
    Column("finish_reason", Text),
    Column("created_at", Float, nullable=False),
    Column("answered_at", Float),
    Column("prompt_tokens", Integer, nullable=False),
    Column("response_tokens", Integer, nullable=False),
    Column("messages", LargeBinary, nullable=False),
    Column("tools", LargeBinary),
    Column("params", LargeBinary, nullable=False),
    Column("answer", LargeBinary),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("response_ids", LargeBinary),
    Column("logprobs", LargeBinary),
    Column("next_state", LargeBinary),
    Column("next_state_at", Float),
    Column("lease_owner", Text),
    Column("lease_token", Text),
    Column("lease_until", Float),
    Column("attempts", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    Column("last_error", Text),
    Column("batch_id", Integer),
    Index("ix_turns_session", "session_id", "idx"),
    Index("ix_turns_state", "state", "retry_at"),
    Index("ix_turns_context", "context_hash"),
    Index("ix_turns_request", "client", "request_hash", "created_at"),
    Index("ix_turns_thread", "thread_hash"),
    Index("ix_turns_answer", "answer_hash"),
    Index("ix_turns_parent", "parent_id"),
    Index("ix_turns_batch", "batch_id"),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("turn_id", Text, ForeignKey("turns.id"), nullable=False),
    Column("judge", Text, nullable=False),
    Column("score", Integer, nullable=False),
    Column("hint", Text),
    Column("reason", Text, nullable=False),
    Column("votes", LargeBinary, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("ix_verdicts_turn", "turn_id"),
)

samples = Table(
    "samples",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("reward", Float, nullable=False),
    Column("hint", Text),
    Column("created_at", Float, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("state", Text, nullable=False),  # open, done, refused, released
    Column("parent", Integer, nullable=False),
    Column("turn_ids", LargeBinary, nullable=False),
    Column("lease_owner", Text),
    Column("lease_token", Text),
    Column("lease_until", Float),
    Column("attempts", Integer, nullable=False, server_default="0"),  # leases since it last came further
    Column("last_error", Text),
    Column("version", Integer),
    Column("metrics", LargeBinary),
    Column("gate", LargeBinary),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Index("ix_batches_state", "state"),
)

versions = Table(
    "versions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer, nullable=False),
    Column("path", Text, nullable=False),
    Column("batch_id", Integer, ForeignKey("batches.id")),
    Column("metrics", LargeBinary, nullable=False),
    Column("gate", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("published_at", Float, nullable=False),
    Column("served_at", Float),  # when it was made to serve again, or NOT_SERVING; null: when it was published
)

NOT_SERVING = 0.0
"""`served_at` of the versions that were left for the base model."""

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False),  # turn, next_state, verdict, move, batch, version
    Column("turn_id", Text),
    Column("data", LargeBinary, nullable=False),
)

loops = Table(
    "loops",
    metadata,
    Column("name", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("updated_at", Float, nullable=False),
)


PLAIN = b"\x00"
"""The first byte of a blob that is not compressed; a zlib stream never begins with it."""

COMPRESS_FROM = 256
"""Bytes below which compressing costs more time than it saves space."""


def _deflate(raw: bytes) -> bytes:
    return PLAIN + raw if len(raw) < COMPRESS_FROM else zlib.compress(raw, 1)


def _inflate(blob: bytes) -> bytes:
    return blob[1:] if blob[:1] == PLAIN else zlib.decompress(blob)


def pack_json(value: Any) -> bytes:
    return _deflate(_ENCODER.encode(value).encode("utf-8", "surrogatepass"))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def unpack_json(blob: bytes) -> Any:
    return json.loads(_inflate(blob).decode("utf-8", "surrogatepass"))


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids [N] as little-endian int32."""
    return _pack(array("i", ids))


def unpack_ids(blob: bytes) -> list[int]:
    return id_array(blob).tolist()


def id_array(blob: bytes) -> array[int]:
    """Packed token ids as 4 bytes each."""
    return _unpack(array("i"), blob)


def pack_logprobs(values: Sequence[float] | None) -> bytes | None:
    """Log-probs [N] as little-endian float32, the precision the engine computes them in."""
    return None if values is None else _pack(array("f", values))


def unpack_logprobs(blob: bytes | None) -> list[float] | None:
    return None if blob is None else _unpack(array("f"), blob).tolist()


def _pack(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return _deflate(values.tobytes())


def _unpack(values: array[Any], blob: bytes) -> array[Any]:
    values.frombytes(_inflate(blob))
    if sys.byteorder == "big":
        values.byteswap()
    return values
