"""Threads: how a turn is found again when its client sends another history; and an index for repeated requests."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("turns", sa.Column("thread_hash", sa.Text(), nullable=True))
    op.add_column("turns", sa.Column("answer_hash", sa.Text(), nullable=True))
    op.add_column("turns", sa.Column("format", sa.Text(), nullable=True))
    op.drop_index("ix_turns_request", table_name="turns")
    op.create_index("ix_turns_request", "turns", ["client", "request_hash", "created_at"], unique=False)
    op.create_index("ix_turns_thread", "turns", ["thread_hash"], unique=False)
    op.create_index("ix_turns_answer", "turns", ["answer_hash"], unique=False)
    op.create_index("ix_turns_parent", "turns", ["parent_id"], unique=False)
