"""`kill -9` around the moment in which skills evolve: journal and folder are whole, and nothing is used twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy import func, select

from turnwise.config import Config, load_config
from turnwise.evolving.worker import Evolver
from turnwise.journal import Journal, schema
from turnwise.skills.library import Library
from turnwise.types import IN_FOLDER, Exclusion, TurnState

KILLS = {"sqlite": 50, "postgres": 16}
LATEST = 1.3
"""The latest kill, as a share of the time that a process needs that is not killed."""

NURSERY = """
import asyncio, os, signal, sys, uuid
from tests.evolving.test_evolver import bad_call
from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.evolving.worker import Evolver
from turnwise.journal import Journal
from turnwise.skills.library import Library
from turnwise.skills.vectors import word_vectors

word_vectors().embed(["warm"])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def say(what):
    sys.stdout.write(f"{os.getpid()} {what}\\n")
    sys.stdout.flush()

real = Library.evolve

def told(*given):
    say("evolves")
    return real(*given)

Library.evolve = told

def evolve(home, tool):
    config = load_config(overrides={"home": home, "gate.probe_share": 0.0, "train.min_batch": 2,
                                    "skills.failures_before": 1})
    journal = Journal.open(config)
    generation = journal.skills.current().generation or None
    for _ in range(2):
        journal.verdicts.feedback(answered(journal, session_id=uuid.uuid4().hex, generation=generation), 1, None)
    bad_call(journal, tool, generation=generation)
    journal.batches.claim("trainer", 60)
    say("looks")
    asyncio.run(Evolver(config, journal).step())
    say("done")

for line in sys.stdin:
    home, _, tool = line.strip().partition(" ")
    if os.fork() == 0:
        evolve(home, tool)
        os._exit(0)
"""


class Nursery:
    """Makes processes that have a new failure in their journal, and evolve."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._orders: IO[str] = process.stdin
        self._said: IO[str] = process.stdout
        self._home = home

    def begin(self, tool: str) -> int:
        """The pid of a process that begins to look for what is new: a failure of a tool that never failed before."""
        self._orders.write(f"{self._home} {tool}\n")
        self._orders.flush()
        return self.wait("looks")

    def wait(self, what: str, who: int | None = None) -> int:
        """Until a process says this, or `who` that it is done; gives its pid."""
        while line := self._said.readline().split():
            if line[1] == what or (line[1] == "done" and int(line[0]) == who):
                return int(line[0])
        raise AssertionError("the nursery ended")

    def close(self) -> None:
        self._orders.close()


def check(config: Config) -> None:
    """Journal and folder are whole, and agree."""
    with closing(Journal.open(config)) as journal:
        view = Library(config, journal).sync()
        assert view.faults == {}
        lying = {file.parent.name: file.read_bytes() for file in config.skills_dir.glob("*/SKILL.md")}
        assert lying == {name: k.skill.content for name, k in view.skills.items() if k.state in IN_FOLDER}
        T, F, S = schema.turns.c, schema.failures.c, schema.skill_sources.c
        with journal.store.reading() as c:
            if c.dialect.name == "sqlite":
                assert c.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            bumps = c.execute(select(func.count()).where(schema.libraries.c.what.like("extractive%"))).scalar_one()
            assert view.revision.generation == bumps, "a generation for each change that came of a failure"
            used = set(c.execute(select(F.turn_id).where(F.state == "used")).scalars())
            assert used == set(c.execute(select(S.turn_id)).scalars()), "used and made of in one transaction"
            support = c.execute(select(T.exclusion).where(T.id.in_(used))).scalars().all()
            # What a killed one left waits for the next look, where another failure may begin a generation before it.
            assert set(support) <= {Exclusion.SUPPORT_DATA, Exclusion.EARLIER_GENERATION}
            ready = T.state.in_([TurnState.READY, TurnState.LEASED])
            oldest = c.execute(select(func.min(func.coalesce(T.generation, 0))).where(ready)).scalar_one()
            assert oldest is None or oldest >= view.revision.generation


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_evolver_leaves_library_and_journal_whole(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if place == "postgres":  # what another process opens is told by the home's own configuration
        url = request.getfixturevalue("postgres").database()
        (home / "config.toml").write_text(f'[journal]\nurl = "{url}"\n')
    config = load_config(overrides={"home": home, "gate.probe_share": 0.0, "skills.failures_before": 1})
    Journal.open(config).close()
    chance = random.Random(11)
    generations: list[int] = []
    root, environment = Path(__file__).parents[2], os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen([sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          cwd=root, env=environment) as process:  # fmt: skip
        nursery = Nursery(process, home)
        took: dict[str, float] = {}
        for phase in ("looks", "evolves"):  # how long each takes that is not killed
            pid = nursery.begin(f"first_{phase}")
            if phase == "evolves":
                nursery.wait(phase, pid)
            started = time.monotonic()
            nursery.wait("done")
            took[phase] = time.monotonic() - started
        for n in range(KILLS[place]):
            pid = nursery.begin(f"tool_{n}")
            phase = "looks" if n % 5 == 0 else "evolves"
            if phase == "evolves":
                nursery.wait(phase, pid)
            time.sleep(chance.uniform(0, LATEST * took[phase]))
            with suppress(ProcessLookupError):  # it may have been faster
                os.kill(pid, signal.SIGKILL)
            check(config)
            with closing(Journal.open(config)) as journal:
                generations.append(journal.skills.current().generation)
        nursery.close()
    assert len(set(generations)) > 1, "some were killed after the transaction"
    assert len(set(generations)) < KILLS[place], "and some before it"
    with closing(Journal.open(config)) as journal:
        asyncio.run(Evolver(config, journal).step())
        assert journal.failures.counts().keys() <= {"used", "left"}, "what was cut off is done by the next one"
    check(config)
