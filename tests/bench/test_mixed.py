"""The bench of a person beside three streams of rollouts: its tasks, and all of it once with the real model."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.environments.browser.conftest import needs_browser
from tests.environments.test_rollout import needs_box
from turnwise.bench.mixed.run import bench_mixed
from turnwise.bench.mixed.streams import STREAMS, written_tasks
from turnwise.config import load_config
from turnwise.methods import PERSONAL

pytestmark = [needs_browser, needs_box, pytest.mark.slow]


def test_the_streams_have_equally_many_tasks_in_no_order(tmp_path: Path) -> None:
    file = written_tasks(tmp_path, "0-1", random.Random(0))
    tasks = [json.loads(line) for line in file.read_text().splitlines()]
    assert Counter(task["environment"] for task in tasks) == dict.fromkeys(STREAMS, 8)
    assert len({task["id"] for task in tasks}) == len(tasks)
    assert len({task["environment"] for task in tasks[:8]}) > 1


@pytest.mark.widest
@pytest.mark.timeout(2400)
def test_each_stream_and_the_person_are_learned_from(model_dir: Path) -> None:
    report = bench_mixed(load_config(overrides={"model.path": "smollm2-135m-instruct"}), 0.5, 2, 0)
    waits = [figure for figure in report.figures if figure.what.startswith("a person's wait")]
    assert len(waits) == 4 and all(float(figure.value.split()[0]) > 0 for figure in waits)
    learned = " ".join(figure.value for figure in report.figures if "learned from" in figure.what)
    assert all(f"{name}:" in learned for name in (PERSONAL, *STREAMS)), report.notes
