"""The table of pictures: which stand in a turn's prompt, and where. Their files are in the home's folder `pictures`."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, Table

from turnwise.journal.schema import Text
from turnwise.journal.schema.rollouts import metadata

turn_pictures = Table(
    "turn_pictures",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("start", Integer, primary_key=True, autoincrement=False),  # in the ids of the whole prompt
    Column("end", Integer, nullable=False),
    Column("placeholder", Integer, nullable=False),  # the id at which the model sees it
    Column("sha256", Text, nullable=False),
    Column("width", Integer, nullable=False),  # its own, in pixels
    Column("height", Integer, nullable=False),
    Column("shown_width", Integer, nullable=False),  # what the model's processor scales it to
    Column("shown_height", Integer, nullable=False),
    Index("ix_turn_pictures_sha256", "sha256"),
    sqlite_with_rowid=False,
)
