"""What the client that opened a session calls itself, and the tokens that an upstream says it used."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("agent", sa.Text(), nullable=True))
    op.add_column("turns", sa.Column("used_prompt", sa.Integer(), nullable=True))
    op.add_column("turns", sa.Column("used_response", sa.Integer(), nullable=True))
