"""The databases that a journal may lie in, and all that differs between them."""

from turnwise.journal.dialects.base import Database
from turnwise.journal.dialects.choose import database

__all__ = ["Database", "database"]
