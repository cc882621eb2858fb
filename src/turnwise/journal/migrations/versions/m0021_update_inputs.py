"""What the update of a batch read, so that it can be done again without what was forgotten."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("batches", sa.Column("read", sa.LargeBinary(), nullable=True))
