"""Failures that skills are made of, and skills that were left out of a turn's prompt to compare."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Text

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("skill_uses", sa.Column("withheld", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_table(
        "failures",
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("session_id", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("why", Text),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
    )
    pending = sa.text("state = 'pending'")
    op.create_index("ix_failures_pending", "failures", ["turn_id"], sqlite_where=pending, postgresql_where=pending)
    op.create_index("ix_skill_sources_turn", "skill_sources", ["turn_id"])
    # What was judged before this turnwise is not read for wishes: skills come of what is said from now on.
    op.execute(
        "INSERT INTO meta (name, value) SELECT 'failures_read', CAST(coalesce(max(id), 0) AS TEXT) FROM verdicts"
    )
