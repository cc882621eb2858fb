"""The journal's tables.

Every column that a query filters on is plain; everything bulky is a blob, compressed where that pays. A turn whose
prompt extends its parent's prompt and answer stores only what it added, so a session of n turns takes O(n) space, not
O(n²).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    false,
    text,
    true,
)
from sqlalchemy import Text as PlainText

from turnwise.journal.dialects.sql import IN_ORDER, WithoutNul, where

metadata = MetaData()
Id = Integer().with_variant(BigInteger(), "postgresql")
Text = PlainText().with_variant(WithoutNul(), "postgresql")


def _order() -> Column[int]:
    """The number that a row got at its insert. SQLite has it by itself; on PostgreSQL it is a column of its own."""
    return Column("rowid", BigInteger, key="seq", system=True)


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
    Column("seen_mono", Float),  # last_seen_at on the monotonic clock (clocks.py): what idle time is counted from
    Column("seen_seq", Id, nullable=False, server_default="0"),  # the highest had the last turn
    Column("agent", Text),  # what the client that opened it calls itself: its user agent
    _order(),
    Index("ix_sessions_open", "seen_mono", **where("closed_at IS NULL")),
    Index("ix_sessions_seen", "seen_seq"),
    Index("ix_sessions_parent", "parent_id", **where("parent_id IS NOT NULL")),
)

SERVED, WAITING, JUDGING, READY, TRAINED = (
    text(f"turns.state = '{state}'") for state in ("served", "waiting", "judging", "ready", "trained")
)
"""A state as a query has to name it to find its index: most turns are in none of these."""
GOOD = text(
    "turns.good_verdict IS NOT NULL AND turns.kind = 'main' AND turns.response_tokens > 0 AND turns.state = 'excluded'"
)
"""Well judged, of a kind that the gate can look at, and not trained on."""


def _newest_by(name: str, *columns: str, on_sqlite: tuple[str, ...] = (), **some: Any) -> Index:
    """PostgreSQL has the order of turns behind the columns, to find the newest first; SQLite's has it anyway, and tells
    more apart in the index alone."""
    return Index(name, *columns, *on_sqlite, info={IN_ORDER: columns}, **some).ddl_if(dialect="sqlite")


def _found_by(column: str, name: str) -> Index:
    return _newest_by(name, column, on_sqlite=("session_id",), **where(f"{column} IS NOT NULL"))


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
    Column("lease_until", Float),  # on the monotonic clock
    Column("attempts", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),  # on the monotonic clock; 0: at once
    Column("last_error", Text),
    Column("batch_id", Id),
    Column("begun_mono", Float),  # created_at on the monotonic clock
    Column("tools_id", Id),  # blobs.id; `tools` itself holds those of turns from before there were blobs
    Column("good_verdict", Id),  # the verdict that counts, where its score is +1: kept by a trigger
    Column("used_prompt", Integer),  # tokens as an upstream counts them; those above are of ids, which it does not give
    Column("used_response", Integer),
    Column("generation", Integer),  # of the skills that could have been in its prompt; null: it could have none
    Column("placed", LargeBinary),  # where wishes stand in its whole prompt's ids: starts and ends; null: nowhere
    Column("compression", Id),  # the shorter system prompt in its prompt; null: the client's own
    Column("step", Integer),  # its index in a rollout; null: it is of none
    _order(),  # that in which they were asked for; on SQLite an index ends with it
    Index("ix_turns_session", "session_id", "idx"),
    _newest_by("ix_turns_request", "client", "request_hash"),
    _found_by("context_hash", "ix_turns_context"),
    _found_by("thread_hash", "ix_turns_thread"),
    _found_by("answer_hash", "ix_turns_answer"),
    # The rest hold few rows each, so that turns are read only where they are wanted.
    Index("ix_turns_served", "session_id", **where("state = 'served'")),
    Index("ix_turns_waiting", "session_id", **where("state = 'waiting'")),
    Index("ix_turns_judging", "retry_at", **where("state = 'judging'")),
    Index("ix_turns_ready", "version", **where("state = 'ready'")),
    Index("ix_turns_trained", "session_id", **where("state = 'trained'")),
    Index(
        "ix_turns_good",
        "good_verdict",
        **where("good_verdict IS NOT NULL AND kind = 'main' AND response_tokens > 0 AND state = 'excluded'"),
    ),
    Index("ix_turns_pinned", "version", "created_at", **where("pinned = 1", postgresql="pinned")),
    Index("ix_turns_tools", "tools_id", **where("tools_id IS NOT NULL")),
    Index("ix_turns_parent", "parent_id", **where("parent_id IS NOT NULL")),
    Index("ix_turns_batch", "batch_id", **where("batch_id IS NOT NULL")),
)

blobs = Table(
    "blobs",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("hash", LargeBinary, nullable=False),  # SHA-256 of the JSON
    Column("data", LargeBinary, nullable=False),
    Index("ix_blobs_hash", "hash", unique=True),
)

counts = Table(
    "counts",
    metadata,
    Column("name", Text, primary_key=True),  # kept by triggers: see counts.py
    Column("n", Id, nullable=False),
    sqlite_with_rowid=False,
)

provenance = Table(
    "provenance",
    metadata,
    # A turn that a version learned from, and that was pruned, or is on its way into a later version once more.
    Column("turn_id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("reward", Float),  # that it was trained with; null: of a turn that was pruned
    Index("ix_provenance_session", "session_id"),
    sqlite_with_rowid=False,
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
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
    Index("ix_verdicts_hints", "id", **where("hint IS NOT NULL")),
)

samples = Table(
    "samples",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("reward", Float, nullable=False),
    Column("hint", Text),
    Column("created_at", Float, nullable=False),
    Column("ready_mono", Float),  # created_at on the monotonic clock; null: of an earlier boot
    Column("refusals", Integer, nullable=False, server_default="0"),  # batches with it that the gate refused
    Column("refused_as", Text),  # the configuration (refusals.py) of the last of them
    Column("verdict", Id),  # that it was made of; null: of none, or from before 0014
)

batches = Table(
    "batches",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("state", Text, nullable=False),  # open, done, refused, released
    Column("parent", Integer, nullable=False),
    Column("turn_ids", LargeBinary, nullable=False),
    Column("lease_owner", Text),
    Column("lease_token", Text),
    Column("lease_until", Float),  # on the monotonic clock
    Column("attempts", Integer, nullable=False, server_default="0"),  # leases since it last came further
    Column("last_error", Text),
    Column("version", Integer),  # the number that is kept for what comes of it
    Column("metrics", LargeBinary),
    Column("gate", LargeBinary),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("source", LargeBinary),  # what it learns from, where that is no turn: a file of a fine-tuning
    Column("read", LargeBinary),  # what its update read (queue/inputs.py): ids, rewards and settings
    Index("ix_batches_state", "state"),
)

versions = Table(
    "versions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer, nullable=False),
    Column("path", Text, nullable=False),
    Column("batch_id", Id, ForeignKey("batches.id")),
    Column("metrics", LargeBinary, nullable=False),
    Column("gate", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("published_at", Float, nullable=False),
    Column("serve_seq", Integer, nullable=False, server_default="0"),  # the highest serves; NOT_SERVING: does not
    Column("turn_ids", LargeBinary),  # what it was trained on: it stays known when the turns are pruned
    Column("pruned_at", Float),  # its folder was deleted
    Index("ix_versions_serve_seq", "serve_seq"),
)

promotions = Table(  # versions that a person made the serving one, and why
    "promotions",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("before", Integer, nullable=False),  # the version that served until then
    Column("reason", Text, nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_promotions_version", "version"),
)

NOT_SERVING = 0
"""`serve_seq` of the versions that were left for the base model."""

meta = Table(  # the whole journal: id, boot, boot_turn (clocks.py), last_version, records, failures_read, forgetting|…
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False),  # turn, next_state, verdict, move, batch, version
    Column("turn_id", Text),
    Column("data", LargeBinary, nullable=False),
)

review = Table(  # hints from sources without trust, which wait for the person's word
    "review",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("turn_id", Text, ForeignKey("turns.id"), nullable=False),
    Column("source", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("state", Text, nullable=False),  # pending, accepted, rejected
    Index("ix_review_turn", "turn_id", unique=True),
    Index("ix_review_state", "state", "id"),
)

skill_versions = Table(  # every text that a skill ever had
    "skill_versions",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("number", Integer, nullable=False),  # of this name, from 1
    Column("content", LargeBinary, nullable=False),  # the file, byte for byte
    Column("made_by", Text, nullable=False),  # person, hand (an edit of the file), import, evolver
    Column("created_at", Float, nullable=False),
    Column("after", Integer),  # the last policy version that there was then; null: not known
    Index("ix_skill_versions_name", "name", "number", unique=True),
)

skill_sources = Table(  # the failures and wishes that a version of a skill was made from: ids, and no text
    "skill_sources",
    metadata,
    Column("version", Id, primary_key=True),
    Column("turn_id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("support", Boolean, nullable=False, server_default=true()),  # never trained on; a wish's turn is none
    Index("ix_skill_sources_session", "session_id"),
    Index("ix_skill_sources_turn", "turn_id"),
    sqlite_with_rowid=False,
)

skill_uses = Table(  # which versions stood in a turn's prompt, or would have
    "skill_uses",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("version", Id, primary_key=True),
    Column("withheld", Boolean, nullable=False, server_default=false()),  # it fitted, and was left out to compare
    Index("ix_skill_uses_version", "version"),
    sqlite_with_rowid=False,
)

replays = Table(  # what came of asking the failing turns of a version of a skill again: figures, and no text of theirs
    "replays",
    metadata,
    Column("version", Id, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),  # passed, failed, unclear (nothing could be judged), waits (for the engine)
    Column("better", Integer, nullable=False, server_default="0"),  # turns that went better with it
    Column("worse", Integer, nullable=False, server_default="0"),
    Column("same", Integer, nullable=False, server_default="0"),
    Column("unclear", Integer, nullable=False, server_default="0"),
    Column("tries", Integer, nullable=False, server_default="1"),
    Column("why", Text, nullable=False),
    Column("updated_at", Float, nullable=False),
    Index("ix_replays_state", "state"),
)

compressions = Table(  # system prompts that are made shorter, by the hash of what they say
    "compressions",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("digest", Text, nullable=False),  # SHA-256 of the original
    Column("session_id", Text, nullable=False),  # that it came with first: it is forgotten with that
    Column("original", LargeBinary, nullable=False),  # the text, and the names of the request's tools
    Column("shorter", LargeBinary),
    Column("state", Text, nullable=False),  # wanted, ready, refused
    Column("why", Text),  # it was refused
    Column("made_by", Text),
    Column("created_at", Float, nullable=False),
    Index("ix_compressions_digest", "digest", unique=True),
    Index("ix_compressions_session", "session_id"),
)

failures = Table(  # turns with evidence of a failure or with a wish: ids, and no text
    "failures",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # wish, failure
    Column("state", Text, nullable=False),  # pending, used (something was made of it), left (nothing can be)
    Column("why", Text),  # it was left
    Column("tries", Integer, nullable=False, server_default="0"),  # of an evolver that made nothing usable of it
    Index("ix_failures_pending", "turn_id", **where("state = 'pending'")),
)

libraries = Table(  # the library after each change; the highest number is the one in force
    "libraries",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("what", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("cost", Integer, nullable=False, server_default="0"),  # ready samples that left the queue for it
    Column("entries", LargeBinary, nullable=False),  # by name: the version (skill_versions.id) and its state
)

loops = Table(
    "loops",
    metadata,
    Column("name", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("seen_mono", Float),  # updated_at on the monotonic clock; null: of an earlier boot
)
