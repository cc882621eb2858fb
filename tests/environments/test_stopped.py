"""Ctrl-C at `turnwise rollout` as a terminal sends it, to the whole group of processes: at the first one what is under
way ends, the second one waits for nothing; both runs go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.environments.test_harbor import folder
from tests.environments.test_rollout import needs_box
from turnwise.config import load_config
from turnwise.environments.base import Environment
from turnwise.environments.host import Host
from turnwise.environments.tasks import written
from turnwise.environments.terminal.harbor.folders import read_folder
from turnwise.journal import Journal
from turnwise.journal.schema.rollouts import environment_leases
from turnwise.sandbox.choice import clean_up

SLOW = "#!/bin/bash\nsleep 4\necho 'Hello!' > /app/hello.txt\n"


@contextmanager
def started(words: list[str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a group of processes of its own."""
    with said.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "turnwise", *words], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def until(said: Path, words: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for something that the command says."""
    deadline = time.monotonic() + 60
    while words not in said.read_text():
        assert time.monotonic() < deadline and process.poll() is None, said.read_text()
        time.sleep(0.1)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A run of three rollouts, each of some seconds."""
    task = read_folder(folder(tmp_path / "slow", solution__solve_sh=SLOW))
    (tmp_path / "tasks.jsonl").write_text(f"{written(task)}\n")
    asked = ["rollout", str(tmp_path / "tasks.jsonl"), "--agent", "oracle", "--group", "3", "--parallel", "1"]
    return [*asked, "--run", "r", "--home", str(tmp_path / "home")]


def begun(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the folder of an episode is there, and a little longer."""
    deadline = time.monotonic() + 60
    while not any((home / "environments").glob("*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    time.sleep(1)


@needs_box
@pytest.mark.slow
def test_what_is_under_way_ends_and_the_run_goes_on(words: list[str], tmp_path: Path) -> None:
    said = tmp_path / "said"
    with started(words, said) as process:
        begun(tmp_path / "home", process)
        os.killpg(process.pid, signal.SIGINT)
        until(said, "stopping when what is under way has ended; once more ends it at once", process)
        assert process.wait(60) == 1
    told = " ".join(said.read_text().split())
    assert "r.slow.0: reward 1" in told and "mean reward 1.000 of 1" in told, told
    assert "2 rollouts are not done; the same command with --run r goes on with them" in told, told
    with started(words, said) as process:
        assert process.wait(60) == 0
    assert "mean reward 1.000 of 3" in said.read_text(), said.read_text()


@needs_box
@pytest.mark.slow
def test_a_second_one_waits_for_nothing_and_leaks_nothing(words: list[str], tmp_path: Path) -> None:
    said, home = tmp_path / "said", tmp_path / "home"
    with started(words, said) as process:
        begun(home, process)
        os.killpg(process.pid, signal.SIGINT)
        until(said, "stopping", process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    assert "ended in the middle; after a minute the same command with --run r goes on" in said.read_text()
    assert clean_up(home / "environments") and not any((home / "environments").glob("turnwise-*"))
    with closing(Journal.open(load_config(None, {"home": home}))) as journal:
        assert [row.state for row in journal.environments.of_run("r")] == ["leased"], "it runs out after a minute"


def made(kind: str, place: Path) -> Environment:
    raise AssertionError("the rollout gets no environment in this test")


def deadline(journal: Journal) -> float:
    with journal.store.reading() as c:
        return float(c.execute(select(environment_leases.c.until_mono)).scalar_one())


def test_a_lease_is_kept_as_long_as_its_rollout_waits_for_something(journal: Journal, tmp_path: Path) -> None:
    with Host(journal.environments, made, tmp_path / "at", 1, keep_every_s=0.05).lease("r", "s") as lease:
        assert lease is not None
        first = deadline(journal)
        until_later = time.monotonic() + 30
        while deadline(journal) == first:
            assert time.monotonic() < until_later, "nobody kept it"
            time.sleep(0.02)
    assert journal.environments.take("r", "s") is not None, "it was given back"
