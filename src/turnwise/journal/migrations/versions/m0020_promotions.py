"""Versions that a person made the serving one, and why."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Id, Text

revision = "0020"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "promotions",
        sa.Column("id", Id, sa.Identity(), primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("before", sa.Integer(), nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
    )
    op.create_index("ix_promotions_version", "promotions", ["version"])
