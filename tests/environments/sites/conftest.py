"""Real sites on loopback, loaded once for all tests of a process, and a browser that plays at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.sites.install import interpreter
from turnwise.environments.sites.keepers import running
from turnwise.environments.sites.table import SITES
from turnwise.errors import DataError

try:
    interpreter()
    HAS_SITES = True
except DataError:
    HAS_SITES = False
needs_sites = pytest.mark.skipif(not HAS_SITES, reason="the sites are not installed here (make sites)")


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which they run."""
    place = tmp_path_factory.mktemp("sites")
    with running(place, list(SITES)):
        yield place


@pytest.fixture
def at_sites(sites: Path) -> Iterator[BrowserEnvironment]:
    made = BrowserEnvironment(15, sites=sites)
    yield made
    made.close()
