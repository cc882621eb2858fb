"""The trainer as a real process: killed with SIGKILL at random moments, and stopped politely."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.support.servers import wait_until_said
from tests.training.homes import NO_LIMITS, feed, settings
from turnwise.journal import Journal
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir
from turnwise.types import TurnState

pytestmark = pytest.mark.slow

BATCHES = 3
KILLS = 2
"""For each batch. A third would say that the batch itself ends its trainers."""


def write_config(home: Path, model: Path) -> Path:
    """As `settings` of test_worker, in a file; the short lease makes a killed trainer's batch free again soon."""
    file = home.parent / f"{home.name}.toml"
    file.write_text(
        f'home = "{home}"\n[model]\npath = "{model}"\n'
        '[train]\nwhen = "always"\n'
        "lr = 3e-3\nlora_rank = 4\nmin_batch = 4\nmax_batch = 4\nminibatch = 1\nepochs = 4\n"
        'microbatch_tokens = 64\ndevice = "cpu"\ndtype = "float32"\nthreads = 1\nlease_s = 1.0\n'
        "[gate]\nanswers = 0\n" + "".join(f"{n[5:]} = {v}\n" for n, v in NO_LIMITS.items())
    )
    return file


def start(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "turnwise.training", "--config", str(config)])


def wait_for(what, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.05)


def finish(config: Path, journal: Journal, version: int = BATCHES) -> None:
    started = time.monotonic()
    process = start(config)
    wait_until_said(journal, "trainer", since=started, limit_s=120)  # by then it hears a signal
    wait_for(lambda: journal.versions.latest() >= version)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path, tiny_dir: Path) -> None:
    weights = []
    in_the_middle = 0
    for name, kills in (("steady", 0), ("killed", KILLS)):
        home = tmp_path / name
        config = write_config(home, tiny_dir)
        journal = Journal.open(settings(home, tiny_dir))
        feed(journal, range(4 * BATCHES))
        rng = random.Random(1)
        killed: Counter[int] = Counter()
        for _ in range(BATCHES * kills):
            while killed[journal.versions.latest() + 1] >= kills:
                finish(config, journal, journal.versions.latest() + 1)
            if journal.versions.latest() >= BATCHES:
                break
            started = time.monotonic()
            process = start(config)
            wait_until_said(journal, "trainer", since=started, limit_s=120)
            time.sleep(rng.uniform(0, 0.4))
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
            killed[journal.versions.latest() + 1] += 1
            in_the_middle += journal.status.figures()["batches"].get("open", 0)
        finish(config, journal)
        assert journal.status.figures()["turns"][TurnState.TRAINED] == 4 * BATCHES
        assert [v.turn_ids for v in journal.versions.all()] == [
            sorted(f"turn-{n}" for n in range(4 * b, 4 * b + 4)) for b in range(BATCHES)
        ]
        journal.close()
        weights.append([load_version_dir(version_dir(home / "versions", n)).weights for n in range(1, BATCHES + 1)])
    assert in_the_middle > 0, "no kill came while a batch was open"
    for steady, killed in zip(*weights, strict=True):
        assert all(torch.equal(steady[name], killed[name]) for name in steady)


def test_a_missing_model_is_a_sentence_and_exit_code_1(tmp_path: Path) -> None:
    config = write_config(tmp_path / "home", tmp_path / "no-such-model")
    done = subprocess.run(
        [sys.executable, "-m", "turnwise.training", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "no-such-model" in done.stderr
    assert "Traceback" not in done.stderr
