"""The record through which the loops meet."""

from turnwise.journal.journal import Journal
from turnwise.journal.turns.recorded import PossibleParent, SameRequest, Turn, WholeTurn
from turnwise.journal.turns.recording import Answer, NewTurn

__all__ = ["Answer", "Journal", "NewTurn", "PossibleParent", "SameRequest", "Turn", "WholeTurn"]
