"""Shorter system prompts, and which of them stood in a turn's prompt."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Id, Text

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "compressions",
        sa.Column("id", Id, sa.Identity(), primary_key=True),
        sa.Column("digest", Text, nullable=False),
        sa.Column("session_id", Text, nullable=False),
        sa.Column("original", sa.LargeBinary(), nullable=False),
        sa.Column("shorter", sa.LargeBinary(), nullable=True),
        sa.Column("state", Text, nullable=False),
        sa.Column("why", Text, nullable=True),
        sa.Column("made_by", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_compressions_digest", "compressions", ["digest"], unique=True)
    op.create_index("ix_compressions_session", "compressions", ["session_id"])
    op.add_column("turns", sa.Column("compression", Id, nullable=True))
