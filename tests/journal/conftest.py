"""The contract of the journal is played on each database that it may lie in: a SQLite file, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Cluster, cluster, programs
from turnwise.config import Config
from turnwise.journal import read_only, store
from turnwise.journal.dialects import Database, database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test on both; one that is marked `files` is about SQLite's file, and has no meaning on a server."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    metafunc.parametrize("place", ["sqlite"] if "files" in marks else ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """One server for all tests of this process."""
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL here: `make postgres` installs it")
    with cluster(found) as one:
        yield one


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where journals lie in this test. On PostgreSQL every home has a database of its own."""
    which = getattr(request, "param", "sqlite")  # a state machine of Hypothesis takes no parameters
    if which == "sqlite":
        yield which
        return
    server: Cluster = request.getfixturevalue("postgres")
    homes: dict[Path, str] = {}

    def on_the_server(config: Config) -> Database:
        url = config.journal.url or homes.get(config.home) or homes.setdefault(config.home, server.database())
        section = config.journal.model_copy(update={"url": url})
        return database(config.model_copy(update={"journal": section}))

    for module in (store, read_only):
        monkeypatch.setattr(module, "database", on_the_server)
    yield which
    for url in homes.values():
        server.give_back(url)
