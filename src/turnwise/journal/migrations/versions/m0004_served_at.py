"""When a version was made to serve again, beside when it was published: a rollback no longer forgets the latter."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("versions", sa.Column("served_at", sa.Float(), nullable=True))
    op.drop_index("ix_versions_published", table_name="versions")
    # A rollback to the base model had taken away when its versions were published; they were made just before.
    op.execute("UPDATE versions SET served_at = 0, published_at = created_at WHERE published_at = 0")
