"""The journal: the one record through which the loops meet, in parts over one store.

All calls are synchronous and short; asynchronous callers run them in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from turnwise.config import Config
from turnwise.journal.queue.batches import Batches
from turnwise.journal.queue.inputs import UpdateRecords
from turnwise.journal.queue.judging import Judging
from turnwise.journal.queue.rebuilt import Rebuilding
from turnwise.journal.queue.review import ReviewList
from turnwise.journal.queue.tuning import TuningPlace
from turnwise.journal.queue.verdicts import Verdicts
from turnwise.journal.queue.versions import Versions
from turnwise.journal.rollouts.leases import EnvironmentLeases
from turnwise.journal.rollouts.trajectories import Trajectories
from turnwise.journal.skills.compressions import Compressions
from turnwise.journal.skills.failures import RecordedFailures
from turnwise.journal.skills.records import SkillRecords
from turnwise.journal.skills.replays import SkillReplays
from turnwise.journal.status import Status
from turnwise.journal.store import Store
from turnwise.journal.turns.lookups import Lookups
from turnwise.journal.turns.recording import Turns
from turnwise.journal.turns.sessions import Sessions


class Journal:
    """What a loop opens: each part is what one of them asks for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.turns = Turns(store)
        self.sessions = Sessions(store)
        self.lookups = Lookups(store)
        self.verdicts = Verdicts(store, self.turns)
        self.review = ReviewList(store, self.verdicts)
        self.judging = Judging(store, self.verdicts, self.review)
        self.batches = Batches(store, self.verdicts)
        self.versions = Versions(store, self.batches)
        self.updates = UpdateRecords(store, self.batches)
        self.rebuilding = Rebuilding(store, self.batches)
        self.tuning = TuningPlace(store, self.batches)
        self.skills = SkillRecords(store, self.batches.put_back)
        self.failures = RecordedFailures(store)
        self.replays = SkillReplays(store)
        self.compressions = Compressions(store)
        self.rollouts = Trajectories(store)
        self.environments = EnvironmentLeases(store)
        self.status = Status(store)

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> Self:
        """Open the journal of `config`, creating or migrating it when needed. Raises JournalError."""
        return cls(Store.open(config, clock, monotonic, boot))

    def close(self) -> None:
        """Write what waits to be written, and let go of the database."""
        self.store.close()
