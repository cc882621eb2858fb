"""A SQLite journal as an earlier turnwise left it: the migrations backwards, which only tests have a use for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from turnwise.journal import Journal
from turnwise.journal.dialects.sql import where
from turnwise.journal.schema import Text
from turnwise.journal.triggers import TRIGGERS

OLD_INDEXES = [
    ("ix_turns_state", "turns", ["state", "retry_at"]),
    ("ix_turns_context", "turns", ["context_hash"]),
    ("ix_turns_thread", "turns", ["thread_hash"]),
    ("ix_turns_answer", "turns", ["answer_hash"]),
    ("ix_turns_parent", "turns", ["parent_id"]),
    ("ix_turns_batch", "turns", ["batch_id"]),
    ("ix_sessions_open", "sessions", ["closed_at", "last_seen_at"]),
]
NEW_INDEXES = (
    "ix_turns_served",
    "ix_turns_waiting",
    "ix_turns_judging",
    "ix_turns_ready",
    "ix_turns_trained",
    "ix_turns_good",
    "ix_turns_pinned",
    "ix_turns_tools",
    "ix_turns_context",
    "ix_turns_thread",
    "ix_turns_answer",
    "ix_turns_parent",
    "ix_turns_batch",
    "ix_sessions_open",
    "ix_sessions_seen",
    "ix_sessions_parent",
)
MONOTONIC = {"sessions": "seen_mono", "turns": "begun_mono", "samples": "ready_mono", "loops": "seen_mono"}


def _from_0008(op: Operations) -> None:
    op.drop_column("turns", "used_response")
    op.drop_column("turns", "used_prompt")
    op.drop_column("sessions", "agent")


def _from_0007(op: Operations) -> None:
    op.drop_index("ix_review_state", table_name="review")
    op.drop_index("ix_review_turn", table_name="review")
    op.drop_table("review")


def _from_0006(op: Operations) -> None:
    c = op.get_bind()
    for trigger in TRIGGERS:
        c.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger.name}")
    c.exec_driver_sql(
        "UPDATE turns SET tools = (SELECT data FROM blobs WHERE blobs.id = tools_id) WHERE tools_id IS NOT NULL"
    )
    for name in NEW_INDEXES:
        op.drop_index(name)
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


def _from_0005(op: Operations) -> None:
    op.add_column("versions", sa.Column("served_at", sa.Float(), nullable=True))
    # Times that are in the order of the sequence, as later starts of serving have.
    op.execute("UPDATE versions SET served_at = CASE WHEN serve_seq = 0 THEN 0 ELSE 1e9 + serve_seq END")
    op.drop_index("ix_versions_serve_seq", table_name="versions")
    op.drop_column("versions", "serve_seq")
    op.drop_index("ix_turns_request", table_name="turns")
    op.create_index("ix_turns_request", "turns", ["client", "request_hash", "created_at"], unique=False)
    for table, column in MONOTONIC.items():
        op.drop_column(table, column)
    op.drop_table("meta")


def _from_0004(op: Operations) -> None:
    op.execute("UPDATE versions SET published_at = served_at WHERE served_at IS NOT NULL")
    op.create_index("ix_versions_published", "versions", ["published_at"], unique=False)
    op.drop_column("versions", "served_at")


def _from_0009(op: Operations) -> None:
    op.drop_index("ix_turns_good", table_name="turns")
    looked_at = "good_verdict IS NOT NULL AND kind = 'main' AND response_tokens > 0"
    op.create_index("ix_turns_good", "turns", ["good_verdict"], unique=False, **where(looked_at))
    op.drop_index("ix_verdicts_hints", table_name="verdicts")
    op.drop_column("samples", "refused_as")
    op.drop_column("samples", "refusals")


def _from_0010(op: Operations) -> None:
    for table in ("libraries", "skill_uses", "skill_sources", "skill_versions"):
        op.drop_table(table)
    op.drop_column("turns", "generation")


def _from_0011(op: Operations) -> None:
    op.execute("DELETE FROM meta WHERE name = 'failures_read'")
    op.drop_index("ix_skill_sources_turn", table_name="skill_sources")
    op.drop_table("failures")
    op.drop_column("skill_uses", "withheld")


def _from_0012(op: Operations) -> None:
    op.drop_column("skill_sources", "support")


def _from_0013(op: Operations) -> None:
    op.drop_index("ix_replays_state", table_name="replays")
    op.drop_table("replays")


def _from_0014(op: Operations) -> None:
    op.drop_column("samples", "verdict")
    op.rename_table("provenance", "provenance_after")
    op.drop_index("ix_provenance_session", table_name="provenance_after")
    op.create_table(
        "provenance",
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("session_id", Text, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_provenance_session", "provenance", ["session_id"])
    op.execute("INSERT INTO provenance SELECT turn_id, session_id, max(version) FROM provenance_after GROUP BY 1, 2")
    op.drop_table("provenance_after")


def _from_0015(op: Operations) -> None:
    op.drop_column("skill_versions", "after")
    op.drop_column("turns", "placed")


def _from_0016(op: Operations) -> None:
    op.drop_column("batches", "source")


def _from_0018(op: Operations) -> None:
    op.drop_column("turns", "step")
    op.drop_index("ix_trajectories_group", table_name="trajectories")
    op.drop_table("trajectories")
    op.drop_index("ix_task_groups_live", table_name="task_groups")
    op.drop_table("task_groups")


def _from_0017(op: Operations) -> None:
    op.drop_column("turns", "compression")
    op.drop_index("ix_compressions_session", table_name="compressions")
    op.drop_index("ix_compressions_digest", table_name="compressions")
    op.drop_table("compressions")


def _from_0021(op: Operations) -> None:
    op.drop_column("batches", "read")


def _from_0020(op: Operations) -> None:
    op.drop_index("ix_promotions_version", table_name="promotions")
    op.drop_table("promotions")


def _from_0022(op: Operations) -> None:
    op.drop_index("ix_environment_leases_run", table_name="environment_leases")
    op.drop_table("environment_leases")


def _from_0023(op: Operations) -> None:
    op.drop_index("ix_turn_pictures_sha256", table_name="turn_pictures")
    op.drop_table("turn_pictures")


STEPS = {
    "0023": _from_0023,
    "0022": _from_0022,
    "0021": _from_0021,
    "0020": _from_0020,
    "0018": _from_0018,
    "0017": _from_0017,
    "0016": _from_0016,
    "0015": _from_0015,
    "0014": _from_0014,
    "0013": _from_0013,
    "0012": _from_0012,
    "0011": _from_0011,
    "0010": _from_0010,
    "0009": _from_0009,
    "0008": _from_0008,
    "0007": _from_0007,
    "0006": _from_0006,
    "0005": _from_0005,
    "0004": _from_0004,
}


ORDER = dict(zip(STEPS, [*list(STEPS)[1:], "0003"], strict=True))
"""Which version each was made from."""


def take_back(journal: Journal, to: str) -> None:
    """Bring the schema back to that of a version."""
    with journal.store.transaction() as c:
        found = MigrationContext.configure(c)
        for version, step in STEPS.items():
            if version > to:
                assert found.get_current_revision() == version
                step(Operations(found))
                before = ORDER[version]
                c.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{before}'")
