"""The first schema. No journal is made by it any more: a new one is made whole."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    raise AssertionError("a new journal is made from the schema as it is now")
