"""Sources of a skill that are no support data: turns in which a person said a wish stay samples."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("skill_sources", sa.Column("support", sa.Boolean(), server_default=sa.true(), nullable=False))
