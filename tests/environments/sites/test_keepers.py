"""Starting, stopping and asking sites: an instance a rollout, with data that nobody else has, which ends with it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from tests.environments.sites.conftest import needs_sites
from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.sites import keepers
from turnwise.environments.sites.install import database_of, seed_of
from turnwise.environments.sites.keepers import SiteInstance, open_instance
from turnwise.environments.sites.table import SITES
from turnwise.errors import DataError

pytestmark = [needs_sites, pytest.mark.slow]
WAIT_S = 20.0


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def page(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, follow_redirects=True, timeout=30)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "sites").write_text("a file")
    with pytest.raises(DataError, match="the site shop cannot be started"):
        keepers.start(tmp_path / "sites", "shop")


@pytest.fixture
def two(sites: Path) -> Iterator[tuple[SiteInstance, SiteInstance]]:
    made = open_instance(sites, SITES["shop"]), open_instance(sites, SITES["shop"])
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("name", SITES)
def test_an_instance_serves_its_pages(name: str, sites: Path) -> None:
    instance = open_instance(sites, SITES[name])
    try:
        answer = page(instance.port, SITES[name].start)
        assert answer.status_code == 200 and "</html>" in answer.text.lower()
        instance.settle()
    finally:
        instance.close()


@pytest.mark.parametrize("name", SITES)
def test_every_watched_query_can_be_asked_and_has_columns(name: str) -> None:
    for query in SITES[name].watched.values():
        with closing(sqlite3.connect(database_of(SITES[name]))) as seed:
            assert seed.execute(query).description, query


def test_what_one_rollout_changes_no_other_sees(two: tuple[SiteInstance, SiteInstance], sites: Path) -> None:
    one, other = two
    with closing(sqlite3.connect(one.database)) as changed, changed:
        changed.execute("update catalogue_product set title = 'Painted Elephant' where id = 1")
    assert one.port != other.port and one.pid != other.pid
    assert "Painted Elephant" in page(one.port, "/catalogue/").text
    shown = keepers.status_of(sites, "shop")
    assert shown is not None
    for elsewhere in (other.port, int(shown.url.rpartition(":")[2])):
        assert "Painted Elephant" not in page(elsewhere, "/catalogue/").text
    third = open_instance(sites, SITES["shop"])
    assert "Painted Elephant" not in page(third.port, "/catalogue/").text
    third.close()


def test_an_instance_ends_with_whoever_has_it(sites: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from turnwise.environments.sites.keepers import open_instance; "
        "from turnwise.environments.sites.table import SITES; "
        f"i = open_instance(Path({str(sites)!r}), SITES['wiki']); print(i.pid, i.folder, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    assert lives(int(pid)) and Path(folder).is_dir()
    process.kill()
    process.wait()
    assert until(lambda: not lives(int(pid)) and not Path(folder).exists())


def test_an_instance_that_is_killed_is_told_of(sites: Path) -> None:
    instance = open_instance(sites, SITES["tracker"])
    instance.check()
    os.kill(instance.pid, signal.SIGKILL)
    time.sleep(1)
    with pytest.raises(InfrastructureFailure, match="the site tracker has ended in the middle"):
        instance.check()
    instance.close()
    other = open_instance(sites, SITES["tracker"])
    assert page(other.port, "/").status_code == 200
    other.close()


def test_a_site_goes_on_until_it_is_stopped_and_can_be_reset(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 30)
    began = keepers.start(place, "wiki")
    try:
        assert keepers.start(place, "wiki").pid == began.pid, "it runs already"
        port = int(began.url.rpartition(":")[2])
        assert "Amber Room" in page(port, "/wiki").text
        (database,) = place.glob("wiki/instances/*/data/db/trac.db")
        with closing(sqlite3.connect(database)) as changed, changed:
            changed.execute("update wiki set text = 'Gone.' where name = 'WikiStart'")
        assert "Amber Room" not in page(port, "/wiki").text
        assert keepers.reset(place, "wiki") == began.url and "Amber Room" in page(port, "/wiki").text
        instance = open_instance(place, SITES["wiki"])
        assert (keepers.status_of(place, "wiki") or began).instances == 1
    finally:
        assert keepers.stop(place, "wiki")
    assert not keepers.stop(place, "wiki") and until(lambda: not lives(began.pid) and not lives(instance.pid))
    assert keepers.status_of(place, "wiki") is None and not list(place.glob("wiki/instances/*/*"))
    with pytest.raises(InfrastructureFailure, match="is not running; start it: turnwise sites start wiki"):
        open_instance(place, SITES["wiki"])
    with pytest.raises(DataError, match="is not running"):
        keepers.reset(place, "wiki")


def test_what_a_killed_keeper_leaves_is_no_hindrance(tmp_path: Path) -> None:
    began = keepers.start(tmp_path, "tracker")
    instance = open_instance(tmp_path, SITES["tracker"])
    os.kill(began.pid, signal.SIGKILL)
    assert until(lambda: not lives(instance.pid)), "no instance lives longer than its keeper"
    with pytest.raises(InfrastructureFailure, match="ended in the middle"):
        instance.check()
    again = keepers.start(tmp_path, "tracker")
    try:
        assert again.pid != began.pid and page(int(again.url.rpartition(":")[2]), "/issue1").status_code == 200
    finally:
        assert keepers.stop(tmp_path, "tracker")


def test_the_data_of_a_site_is_made_once() -> None:
    for site in SITES.values():
        assert seed_of(site) == seed_of(site) and database_of(site).is_file()
