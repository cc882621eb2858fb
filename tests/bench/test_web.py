"""The bench of browsers: its figures once, and one round of what browsers endure."""

from __future__ import annotations

import pytest

from tests.environments.browser.conftest import needs_browser
from turnwise.bench.web.endurance import ROUND, TROUBLES, endure
from turnwise.bench.web.processes import browser_processes
from turnwise.bench.web.run import bench_web

pytestmark = [needs_browser, pytest.mark.slow]


def test_the_figures_are_of_browsers_that_were_there() -> None:
    said: list[str] = []
    report = bench_web([1, 2], 2, said.append)
    rows = report.grids[0].rows
    assert [row[:2] for row in rows[::3]] == [["1", "turnwise"], ["2", "turnwise"]] and len(said) == 2
    assert [row[1] for row in rows[1:3]] == ["bare Playwright", "ratio"]
    assert all(float(row[-1].split()[0]) > 1 for row in rows if row[1] != "ratio"), "a browser takes some memory"
    assert {figure.what for figure in report.figures} == {
        "did anything change, p50", "the text that an agent sees, p50", "screenshot, p50",
    }  # fmt: skip
    assert not browser_processes()


@pytest.mark.long
def test_no_rollout_is_lost_but_those_whose_browser_was_killed() -> None:
    found = endure(8, 0.0, 0, lambda _: None)
    assert found.wrong == [] and found.left == 0
    assert dict(found.rollouts) == dict.fromkeys(TROUBLES, ROUND)
    assert {name for name, masked in found.masked.items() if masked} == {"crash of a browser", "crash of a page"}
