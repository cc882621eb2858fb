"""Growth: figures kept by triggers, an index for each question that is asked often, tools stored once, what was pruned.

The triggers themselves are made behind the last migration.
"""

import json
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

TURN = "'turns|' || {row}.state || '|' || coalesce({row}.exclusion, '')"
VERDICT = "'verdicts|' || {row}.judge || '|' || {row}.score"
SESSION = "CASE WHEN {row}.closed_at IS NULL THEN 'sessions|open' ELSE 'sessions|closed' END"
HINTS = "'hints' AS name FROM verdicts t WHERE hint IS NOT NULL"

OLD_INDEXES = (
    "ix_turns_state",
    "ix_turns_context",
    "ix_turns_thread",
    "ix_turns_answer",
    "ix_turns_parent",
    "ix_turns_batch",
    "ix_sessions_open",
)
INDEXES = [
    ("ix_turns_served", "turns", ["session_id"], "state = 'served'"),
    ("ix_turns_waiting", "turns", ["session_id"], "state = 'waiting'"),
    ("ix_turns_judging", "turns", ["retry_at"], "state = 'judging'"),
    ("ix_turns_ready", "turns", ["version"], "state = 'ready'"),
    ("ix_turns_trained", "turns", ["session_id"], "state = 'trained'"),
    ("ix_turns_good", "turns", ["good_verdict"], "good_verdict IS NOT NULL AND kind = 'main' AND response_tokens > 0"),
    ("ix_turns_pinned", "turns", ["version", "created_at"], "pinned = 1"),
    ("ix_turns_tools", "turns", ["tools_id"], "tools_id IS NOT NULL"),
    ("ix_turns_context", "turns", ["context_hash", "session_id"], "context_hash IS NOT NULL"),
    ("ix_turns_thread", "turns", ["thread_hash", "session_id"], "thread_hash IS NOT NULL"),
    ("ix_turns_answer", "turns", ["answer_hash", "session_id"], "answer_hash IS NOT NULL"),
    ("ix_turns_parent", "turns", ["parent_id"], "parent_id IS NOT NULL"),
    ("ix_turns_batch", "turns", ["batch_id"], "batch_id IS NOT NULL"),
    ("ix_sessions_open", "sessions", ["seen_mono"], "closed_at IS NULL"),
    ("ix_sessions_seen", "sessions", ["seen_seq"], None),
    ("ix_sessions_parent", "sessions", ["parent_id"], "parent_id IS NOT NULL"),
]


def upgrade() -> None:
    op.add_column("turns", sa.Column("tools_id", sa.Integer(), nullable=True))
    op.add_column("turns", sa.Column("good_verdict", sa.Integer(), nullable=True))
    op.add_column("sessions", sa.Column("seen_seq", sa.Integer(), server_default="0", nullable=False))
    op.add_column("versions", sa.Column("turn_ids", sa.LargeBinary(), nullable=True))
    op.add_column("versions", sa.Column("pruned_at", sa.Float(), nullable=True))
    op.create_table(
        "counts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_blobs_hash", "blobs", ["hash"], unique=True)
    op.create_table(
        "provenance",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("turn_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_provenance_session", "provenance", ["session_id"], unique=False)
    for name in OLD_INDEXES:
        op.drop_index(name)
    _fill(op.get_bind())
    for name, table, columns, where in INDEXES:
        op.create_index(name, table, columns, unique=False, sqlite_where=sa.text(where) if where else None)


def _fill(c: sa.Connection) -> None:
    """The new columns and figures from what is there."""
    run = c.exec_driver_sql
    run("UPDATE sessions SET seen_seq = coalesce((SELECT max(rowid) FROM turns WHERE session_id = sessions.id), 0)")
    run("UPDATE turns SET good_verdict = (SELECT CASE WHEN score = 1 THEN v.id END FROM verdicts v"
        " WHERE v.turn_id = turns.id ORDER BY judge = 'person' DESC, v.id DESC LIMIT 1)"
        " WHERE id IN (SELECT turn_id FROM verdicts)")  # fmt: skip
    kept = [(TURN, "turns"), (VERDICT, "verdicts"), (SESSION, "sessions")]
    for name in (*(f"{name} AS name FROM {table} t" for name, table in kept), HINTS):
        run(f"INSERT INTO counts (name, n) SELECT name, count(*) FROM (SELECT {name.format(row='t')}) GROUP BY name")
    for number, batch in run("SELECT number, batch_id FROM versions").fetchall():
        found = run("SELECT id FROM turns WHERE batch_id = ? AND state = 'trained' ORDER BY id", (batch,)).fetchall()
        ids = json.dumps([row[0] for row in found], separators=(",", ":")).encode()
        packed = b"\x00" + ids if len(ids) < 256 else zlib.compress(ids, 1)
        run("UPDATE versions SET turn_ids = ? WHERE number = ?", (packed, number))
