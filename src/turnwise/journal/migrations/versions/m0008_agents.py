"""What the client that opened a session calls itself."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("agent", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("sessions", "agent")
