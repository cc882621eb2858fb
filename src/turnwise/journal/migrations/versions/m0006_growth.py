"""Growth: figures kept by triggers, an index for each question that is asked often, tools stored once, what was pruned.

The triggers stand here as they were made; `journal/counts.py` says what they keep.
"""

import json
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

ADD = "INSERT INTO counts (name, n) VALUES ({name}, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1;"
TAKE = "UPDATE counts SET n = n - 1 WHERE name = {name};"
TURN = "'turns|' || {row}.state || '|' || coalesce({row}.exclusion, '')"
VERDICT = "'verdicts|' || {row}.judge || '|' || {row}.score"
SESSION = "CASE WHEN {row}.closed_at IS NULL THEN 'sessions|open' ELSE 'sessions|closed' END"
COUNTED = {
    "turns": (TURN, "state, exclusion"),
    "verdicts": (VERDICT, "judge, score"),
    "sessions": (SESSION, "closed_at"),
}
HINTS = "'hints' AS name FROM verdicts t WHERE hint IS NOT NULL"
GOOD = """UPDATE turns SET good_verdict = (
    SELECT CASE WHEN score = 1 THEN id END FROM verdicts WHERE turn_id = {row}.turn_id
    ORDER BY judge = 'person' DESC, id DESC LIMIT 1
) WHERE id = {row}.turn_id;"""


def triggers() -> dict[str, str]:
    """Name and text of each trigger."""
    made: dict[str, str] = {}
    for table, (name, columns) in COUNTED.items():
        old, new = name.format(row="OLD"), name.format(row="NEW")
        add, take = ADD.format(name=new), TAKE.format(name=old)
        made[f"count_{table}_in"] = f"AFTER INSERT ON {table} BEGIN {add} END"
        made[f"count_{table}_out"] = f"AFTER DELETE ON {table} BEGIN {take} END"
        made[f"count_{table}_moved"] = (
            f"AFTER UPDATE OF {columns} ON {table} WHEN ({old}) IS NOT ({new}) BEGIN {take} {add} END"
        )
    hint, no_hint = ADD.format(name="'hints'"), TAKE.format(name="'hints'")
    made["count_hints_in"] = f"AFTER INSERT ON verdicts WHEN NEW.hint IS NOT NULL BEGIN {hint} END"
    made["count_hints_out"] = f"AFTER DELETE ON verdicts WHEN OLD.hint IS NOT NULL BEGIN {no_hint} END"
    made["good_verdict_in"] = f"AFTER INSERT ON verdicts BEGIN {GOOD.format(row='NEW')} END"
    made["good_verdict_out"] = f"AFTER DELETE ON verdicts BEGIN {GOOD.format(row='OLD')} END"
    return made


OLD_INDEXES = [
    ("ix_turns_state", "turns", ["state", "retry_at"]),
    ("ix_turns_context", "turns", ["context_hash"]),
    ("ix_turns_thread", "turns", ["thread_hash"]),
    ("ix_turns_answer", "turns", ["answer_hash"]),
    ("ix_turns_parent", "turns", ["parent_id"]),
    ("ix_turns_batch", "turns", ["batch_id"]),
    ("ix_sessions_open", "sessions", ["closed_at", "last_seen_at"]),
]
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
    for name, table, _ in OLD_INDEXES:
        op.drop_index(name, table_name=table)
    _fill(op.get_bind())
    for name, table, columns, where in INDEXES:
        op.create_index(name, table, columns, unique=False, sqlite_where=sa.text(where) if where else None)
    for name, text in triggers().items():
        op.execute(sa.text(f"CREATE TRIGGER {name} {text}".replace(":", "\\:")))


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


def downgrade() -> None:
    c = op.get_bind()
    for name in triggers():
        c.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
    c.exec_driver_sql(
        "UPDATE turns SET tools = (SELECT data FROM blobs WHERE blobs.id = tools_id) WHERE tools_id IS NOT NULL"
    )
    for name, table, *_ in INDEXES:
        op.drop_index(name, table_name=table)
    for name, table, columns in OLD_INDEXES:
        op.create_index(name, table, columns, unique=False)
    for table in ("provenance", "blobs", "counts"):
        op.drop_table(table)
    for table, columns in (
        ("versions", ("pruned_at", "turn_ids")),
        ("turns", ("good_verdict", "tools_id")),
        ("sessions", ("seen_seq",)),
    ):
        for column in columns:
            op.drop_column(table, column)
