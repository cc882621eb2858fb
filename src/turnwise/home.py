"""Where the server of a home runs, as the home itself tells: for commands that speak to it."""

from __future__ import annotations

from filelock import FileLock, Timeout

from turnwise.config import Config
from turnwise.journal.read_only import exists, read_ours


def running_url(config: Config) -> str | None:
    """The address of this home's gateway; None where none runs, so that no token goes to another program at its port.

    Raises JournalError where the journal cannot be read.
    """
    lock = config.home / "gateway.lock"
    if not lock.exists() or not exists(config):
        return None
    try:
        with FileLock(lock, timeout=0):
            return None  # nobody holds it
    except Timeout:
        pass
    figures = read_ours(config, lambda journal: journal.status.figures())
    said = figures["loops"].get("gateway")  # it says so as it starts
    return None if said is None else said.get("url")
