"""What the gate refused goes back, with a count; the gate looks only at turns never trained on; the last hints."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.dialects.sql import where
from turnwise.journal.schema import Text

revision = "0009"
down_revision = "0008"

LOOKED_AT = "good_verdict IS NOT NULL AND kind = 'main' AND response_tokens > 0"


def upgrade() -> None:
    op.add_column("samples", sa.Column("refusals", sa.Integer(), server_default="0", nullable=False))
    op.add_column("samples", sa.Column("refused_as", Text, nullable=True))
    op.create_index("ix_verdicts_hints", "verdicts", ["id"], unique=False, **where("hint IS NOT NULL"))
    _look_at(f"{LOOKED_AT} AND state = 'excluded'")


def _look_at(which: str) -> None:
    op.drop_index("ix_turns_good", table_name="turns")
    op.create_index("ix_turns_good", "turns", ["good_verdict"], unique=False, **where(which))
