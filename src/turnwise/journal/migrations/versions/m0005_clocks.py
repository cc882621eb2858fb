"""No time decides any more: versions serve by a sequence, deadlines stand on the monotonic clock of a boot."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

MONOTONIC = {"sessions": "seen_mono", "turns": "begun_mono", "samples": "ready_mono", "loops": "seen_mono"}


def upgrade() -> None:
    name = sa.Column("name", sa.Text(), primary_key=True)
    op.create_table("meta", name, sa.Column("value", sa.Text(), nullable=False))
    op.execute("INSERT INTO meta SELECT 'last_version', coalesce(max(number), 0) FROM versions")
    for table, column in MONOTONIC.items():
        op.add_column(table, sa.Column(column, sa.Float(), nullable=True))
    op.drop_index("ix_turns_request", table_name="turns")
    op.create_index("ix_turns_request", "turns", ["client", "request_hash"], unique=False)
    # Deadlines were of the wall clock. As `boot` is not set, whoever opens the journal first lets go of all of them.
    op.execute("UPDATE turns SET retry_at = 0 WHERE retry_at <> 0")
    op.add_column("versions", sa.Column("serve_seq", sa.Integer(), server_default="0", nullable=False))
    # Where nobody ever rolled back, versions serve in the order of their numbers, whatever the clock said when they
    # were published. Elsewhere the times are all there is to go by.
    op.execute(
        "UPDATE versions SET serve_seq = CASE WHEN served_at = 0 THEN 0"
        " WHEN NOT EXISTS (SELECT 1 FROM versions o WHERE o.served_at IS NOT NULL) THEN number"
        " ELSE (SELECT count(*) FROM versions o WHERE coalesce(o.served_at, o.published_at) > 0"
        " AND (coalesce(o.served_at, o.published_at), o.number)"
        " <= (coalesce(versions.served_at, versions.published_at), versions.number)) END"
    )
    op.create_index("ix_versions_serve_seq", "versions", ["serve_seq"], unique=False)
    op.drop_column("versions", "served_at")
