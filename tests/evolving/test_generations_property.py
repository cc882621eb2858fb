"""No sample of generation g or below is trained on after the bump to g + 1, whatever the order of judging, evolving and
training: Hypothesis looks for one, on a real journal and with the real evolver."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from tests.evolving.test_evolver import bad_call
from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.errors import JournalError, SkillError
from turnwise.evolving.worker import Evolver
from turnwise.journal import Journal, schema
from turnwise.messages import saying
from turnwise.types import Batch, PolicyVersion, TurnState, Verdict

T, S = schema.turns.c, schema.skill_sources.c
WISHES = (
    "Please end every answer with Cheers.",
    "Stop saying Cheers.",
    "From now on answer in German.",
    "From now on answer in French.",
    "Always use metric units.",
    "Never apologise.",
)
TOOLS = ("read_file", "write_file", "search", "run", "fetch", "list_files")
turns = st.integers(0, 30)


class TrainingBesideEvolving(RuleBasedStateMachine):
    """Turns in any order; what is trained when a generation begins is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        fixed = {"home": self.home, "train.min_batch": 2, "train.max_batch": 3, "gate.probe_share": 0.0,
                 "skills.failures_before": 1}  # fmt: skip
        self.config = load_config(overrides=fixed)
        self.journal = Journal.open(self.config)
        self.evolver = Evolver(self.config, self.journal)
        self.stamps: dict[str, int] = {}
        self.batch: Batch | None = None
        self.trained_at: dict[int, set[str]] = {}
        self.support_at: dict[int, set[str]] = {}

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.home)

    def _turn(self, number: int) -> str:
        return list(self.stamps)[number % len(self.stamps)]

    def _trained(self) -> set[str]:
        with self.journal.store.reading() as c:
            return set(c.execute(select(T.id).where(T.state == TurnState.TRAINED)).scalars())

    @rule(late=st.booleans(), unstamped=st.booleans())
    def ask(self, late: bool, unstamped: bool) -> None:
        """The gateway may have looked at the library a moment before it changed."""
        now = self.journal.skills.current().generation
        stamp = max(now - late, 0)
        turn = answered(self.journal, session_id=uuid.uuid4().hex, generation=None if unstamped else stamp)
        self.stamps[turn] = 0 if unstamped else stamp

    @rule(late=st.booleans(), tool=st.sampled_from(TOOLS))
    def fail(self, late: bool, tool: str) -> None:
        """A failure, of which the evolver makes a skill: the bump of a generation."""
        stamp = max(self.journal.skills.current().generation - late, 0)
        self.stamps[bad_call(self.journal, tool, generation=stamp)] = stamp

    @precondition(lambda self: self.stamps)
    @rule(number=turns, words=st.sampled_from([*WISHES, "no", "great, thanks"]))
    def react(self, number: int, words: str) -> None:
        self.journal.turns.react(self._turn(number), [saying("user", words)])

    @rule(score=st.sampled_from([1, -1, 0]), wish=st.sampled_from([None, *WISHES]))
    def judge(self, score: int, wish: str | None) -> None:
        for task in self.journal.judging.claim("judge", 2, 60):
            self.journal.judging.record(task, Verdict(score, wish, "signals"))

    @precondition(lambda self: self.stamps)
    @rule(number=turns, score=st.sampled_from([1, -1]), wish=st.sampled_from([None, *WISHES]))
    def feedback(self, number: int, score: int, wish: str | None) -> None:
        with suppress(JournalError):
            self.journal.verdicts.feedback(self._turn(number), score, wish)

    @precondition(lambda self: self.batch is None)
    @rule()
    def claim(self) -> None:
        self.batch = self.journal.batches.claim("trainer", 60)

    @precondition(lambda self: self.batch is not None)
    @rule()
    def publish(self) -> None:
        batch, self.batch = self.batch, None
        assert batch is not None
        with suppress(JournalError):
            number = self.journal.batches.reserve_version(batch)
            self.journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", 0.0))

    @rule()
    def evolve(self) -> None:
        before = self.journal.skills.current().generation
        with suppress(SkillError):
            asyncio.run(self.evolver.step())
        now = self.journal.skills.current().generation
        for generation in range(before + 1, now + 1):
            self.trained_at[generation] = self._trained()
            with self.journal.store.reading() as c:
                self.support_at[generation] = set(c.execute(select(S.turn_id).where(S.support)).scalars())

    @invariant()
    def nothing_earlier_is_trained_later(self) -> None:
        trained = self._trained()
        for generation, before in self.trained_at.items():
            later = trained - before
            assert not {turn for turn in later if self.stamps[turn] < generation}
            assert not later & self.support_at[generation], "nor what a skill was made of"


TestTrainingBesideEvolving = TrainingBesideEvolving.TestCase
TestTrainingBesideEvolving.settings = settings(
    max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
