"""The library of skills: its revisions, every version of a skill, what it was made from, and where it was used."""

import sqlalchemy as sa
from alembic import op

from turnwise.journal.schema import Id, Text

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("turns", sa.Column("generation", sa.Integer(), nullable=True))
    op.create_table(
        "skill_versions",
        sa.Column("id", Id, sa.Identity(), primary_key=True),
        sa.Column("name", Text, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("made_by", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_skill_versions_name", "skill_versions", ["name", "number"], unique=True)
    op.create_table(
        "skill_sources",
        sa.Column("version", Id, primary_key=True),
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("session_id", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_skill_sources_session", "skill_sources", ["session_id"])
    op.create_table(
        "skill_uses",
        sa.Column("turn_id", Text, primary_key=True),
        sa.Column("version", Id, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_skill_uses_version", "skill_uses", ["version"])
    op.create_table(
        "libraries",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("what", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("cost", sa.Integer(), server_default="0", nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
    )
