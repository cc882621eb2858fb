"""The wall clock jumps between any two steps, loops die, the machine starts anew: nothing is lost, or done twice."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.journal.test_clocks import Time
from tests.support.postgres import Cluster
from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.errors import LeaseLost
from turnwise.journal import Journal
from turnwise.types import Batch, JudgeTask, PolicyVersion, TurnState, Verdict

LEASE_S = 30.0
JUMPS = st.floats(-4e8, 4e8)  # a dozen years in either direction


class Clocks(RuleBasedStateMachine):
    """A home with a real journal, whose loops claim, die, come late, and finish."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        train = {"train.min_batch": 1, "train.max_batch": 2, "train.lease_s": LEASE_S, "train.max_staleness": 1000}
        self.url = self.database()
        place = {"home": Path(self.folder.name), "journal.url": self.url}
        self.config = load_config(overrides=place | {"judge.lease_s": LEASE_S, "sessions.idle_close_s": 600} | train)
        self.time, self.boot = Time(), 0
        self.journal = self.open()
        self.served: list[str] = []
        self.judging: list[JudgeTask] = []  # what judges hold, or held
        self.batches: list[Batch] = []  # and trainers
        self.trained: list[str] = []
        self.serves = 0

    def database(self) -> str | None:
        """The address of an empty journal; None for a file in the home."""
        return None

    def open(self) -> Journal:
        return Journal.open(self.config, self.time.clock, self.time.monotonic, f"boot-{self.boot}")

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.everything_gets_done()
            self.journal.close()
            self.folder.cleanup()

    @rule(by=JUMPS)
    def the_wall_clock_jumps(self, by: float) -> None:
        self.time.wall += by

    @rule(by=st.floats(0, 100))
    def time_passes(self, by: float) -> None:
        self.time.mono += by
        self.time.wall += by

    @rule(uptime=st.floats(1, 1e7))
    def the_machine_starts_anew(self, uptime: float) -> None:
        self.journal.close()
        self.time.mono, self.boot = uptime, self.boot + 1
        self.journal = self.open()

    @rule()
    def a_turn_is_served_and_answered_by_the_person(self) -> None:
        turn = answered(self.journal, session_id=f"s{len(self.served) % 3}")
        self.served.append(turn)
        self.journal.verdicts.feedback(turn, None, "the reply")

    @rule(limit=st.integers(1, 3))
    def a_judge_claims(self, limit: int) -> None:
        self.judging += self.journal.judging.claim("j", limit, LEASE_S)

    @rule(failed=st.booleans(), last=st.booleans())
    def a_judge_speaks_perhaps_too_late(self, failed: bool, last: bool) -> None:
        if not self.judging:
            return
        task = self.judging.pop(-1 if last else 0)
        try:
            if failed:
                self.journal.judging.failed(task, "503", retry_in_s=50, max_attempts=10_000)
            else:
                self.journal.judging.record(task, Verdict(1, None, "signals"))
        except LeaseLost:
            pass

    @rule()
    def a_trainer_claims(self) -> None:
        batch = self.journal.batches.claim("t", LEASE_S)
        if batch is not None:
            self.batches.append(batch)

    @rule(last=st.booleans())
    def a_trainer_publishes_perhaps_too_late(self, last: bool) -> None:
        if not self.batches:
            return
        batch = self.batches.pop(-1 if last else 0)
        try:
            number = self.journal.batches.reserve_version(batch)
            self.journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", 0.0))
        except LeaseLost:
            return
        self.trained += [s.turn_id for s in batch.samples]
        self.serves = number

    @rule(to=st.integers(0, 5))
    def a_person_rolls_back(self, to: int) -> None:
        if to == 0 or self.journal.versions.get(to) is not None:
            self.journal.versions.serve(to)
            self.serves = to

    @invariant()
    def the_version_that_was_made_to_serve_last_serves(self) -> None:
        if hasattr(self, "journal"):
            assert self.journal.versions.latest() == self.serves

    @invariant()
    def nothing_is_lost_and_nothing_trained_twice(self) -> None:
        if hasattr(self, "journal"):
            turns = self.journal.status.figures()["turns"]
            assert sum(turns.values()) == len(self.served)
            assert turns[TurnState.TRAINED] == len(self.trained) == len(set(self.trained))

    def everything_gets_done(self) -> None:
        """After the longest lease and the longest wait, no deadline of any earlier clock stands in the way."""
        self.batches.clear()
        for _ in range(3 * len(self.served) + 3):
            self.time.mono += 601
            for task in self.journal.judging.claim("j", 100, LEASE_S):
                self.journal.judging.record(task, Verdict(1, None, "signals"))
            batch = self.journal.batches.claim("t", LEASE_S)
            if batch is not None:
                number = self.journal.batches.reserve_version(batch)
                self.journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", 0.0))
        turns = self.journal.status.figures()["turns"]
        assert turns[TurnState.JUDGING] == turns[TurnState.READY] == turns[TurnState.LEASED] == 0, turns


TestClocks = Clocks.TestCase
TestClocks.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class ClocksOfAServer(Clocks):
    """The same on PostgreSQL: no start of a machine ends a lease, and the clock that deadlines are of may jump."""

    server: ClassVar[Cluster]

    def database(self) -> str:
        return self.server.database()

    def open(self) -> Journal:
        return Journal.open(self.config, self.time.clock, self.time.monotonic)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "journal") and self.url is not None:
            self.server.give_back(self.url)


@pytest.fixture(scope="class")
def a_server(postgres: Cluster) -> None:
    ClocksOfAServer.server = postgres


@pytest.mark.usefixtures("a_server")
class TestClocksOfAServer(ClocksOfAServer.TestCase):
    settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
