"""Leases of environments to rollouts, and the outcome of each until the gateway has it."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Text

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "environment_leases",
        sa.Column("session_id", Text, primary_key=True),
        sa.Column("run", Text, nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("folder", Text, nullable=True),
        sa.Column("until_mono", sa.Float(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("failure", Text, nullable=True),
        sa.Column("details", Text, nullable=True),
    )
    op.create_index("ix_environment_leases_run", "environment_leases", ["run"])
