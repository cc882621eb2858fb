"""Late scores: a turn may be part of several versions, and a sample names the verdict that it was made of."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Id, Text

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("samples", sa.Column("verdict", Id, nullable=True))
    newest = "SELECT max(id) FROM verdicts WHERE verdicts.turn_id = samples.turn_id"
    op.execute(f"UPDATE samples SET verdict = ({newest})")  # else it would look as if that one had come late
    op.rename_table("provenance", "provenance_before")
    op.drop_index("ix_provenance_session", table_name="provenance_before")
    if op.get_bind().dialect.name == "postgresql":  # its index keeps the name that the new table's is to have
        op.drop_constraint("provenance_pkey", "provenance_before")
    op.create_table(
        "provenance",
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("session_id", Text, nullable=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_provenance_session", "provenance", ["session_id"])
    columns = "turn_id, session_id, version"
    op.execute(f"INSERT INTO provenance ({columns}) SELECT {columns} FROM provenance_before")
    op.drop_table("provenance_before")
