"""The record through which the loops meet."""

from turnwise.journal.journal import Journal
from turnwise.journal.recording import Answer, NewTurn

__all__ = ["Answer", "Journal", "NewTurn"]
