"""Batches that learn from something else than turns: which file a supervised fine-tuning read."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("batches", sa.Column("source", sa.LargeBinary(), nullable=True))
