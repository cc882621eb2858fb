"""Where wishes stand in a turn's prompt, and which policy versions there were before a skill's text."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("turns", sa.Column("placed", sa.LargeBinary(), nullable=True))
    op.add_column("skill_versions", sa.Column("after", sa.Integer(), nullable=True))
