"""Rollouts: trajectories with outcomes, the groups that they form, and the index of each step."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.dialects.sql import where
from turnwise.journal.schema import Text

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "task_groups",
        sa.Column("id", Text, primary_key=True),
        sa.Column("stream", Text, nullable=False),
        sa.Column("task_id", Text, nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("why", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("begun_mono", sa.Float(), nullable=True),
        sa.Column("ready_mono", sa.Float(), nullable=True),
    )
    op.create_index("ix_task_groups_live", "task_groups", ["state"], **where("state IN ('open', 'ready')"))
    op.create_table(
        "trajectories",
        sa.Column("session_id", Text, primary_key=True),
        sa.Column("group_id", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("outcome", sa.Float(), nullable=True),
        sa.Column("failure", Text, nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
    )
    op.create_index("ix_trajectories_group", "trajectories", ["group_id"])
    op.add_column("turns", sa.Column("step", sa.Integer(), nullable=True))
