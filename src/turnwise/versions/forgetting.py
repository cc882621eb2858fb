"""Forgetting a session: its rows, its lines and its traces, and the skills that were made of it, in one go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from turnwise.config import Config
from turnwise.files import remove
from turnwise.journal import Journal
from turnwise.journal.deletion.forgetting import Forgotten, forget, plan
from turnwise.skills.library import Library

HELD = "held"


def forget_session(config: Config, journal: Journal, session_id: str, with_branches: bool = False) -> Forgotten:
    """Delete a session, and the skills that were made of it, from every file of the home."""
    erase: Callable[[], Forgotten] = partial(forget, journal, session_id, with_branches)
    made = plan(journal, session_id, with_branches).skills
    remove(config.versions_dir / HELD)  # what the gate refused may have learned from it, and nobody misses it
    return Library(config, journal).forget(made, erase) if made else erase()
