"""Pictures: which stand in a turn's prompt, and where."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Text

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "turn_pictures",
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("start", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("placeholder", sa.Integer(), nullable=False),
        sa.Column("sha256", Text, nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("shown_width", sa.Integer(), nullable=False),
        sa.Column("shown_height", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_turn_pictures_sha256", "turn_pictures", ["sha256"])
