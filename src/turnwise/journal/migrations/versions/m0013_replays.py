"""What came of asking the failing turns of a new skill again: with it, and without it."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Id, Text

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "replays",
        sa.Column("version", Id, primary_key=True, autoincrement=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("better", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("worse", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("same", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("unclear", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("why", Text, nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_replays_state", "replays", ["state"])
