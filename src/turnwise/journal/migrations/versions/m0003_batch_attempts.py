"""How often a batch was begun without coming further, and what ended it: so that it cannot stop learning for ever."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("batches", sa.Column("attempts", sa.Integer(), server_default="0", nullable=False))
    op.add_column("batches", sa.Column("last_error", sa.Text(), nullable=True))
