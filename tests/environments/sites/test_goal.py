"""What a task asks of a database: data that is none is refused, queries only read, and what nobody asked for counts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.browser.web_task import web_task
from turnwise.environments.sites.checks import rows_of
from turnwise.environments.sites.goal import SiteGoal
from turnwise.environments.sites.table import Site
from turnwise.errors import DataError

BAD = {
    "no site": ({"site": "bank", "asked": "select 1"}, "no site 'bank'"),
    "a site that is no name": ({"site": ["shop"], "asked": "select 1"}, "no site"),
    "no goal": ({"site": "shop"}, "give one"),
    "an answer of its own": ({"site": "shop", "asked": "select 1", "answer": "1"}, "no 'answer'"),
    "hosts of its own": ({"site": "shop", "asked": "select 1", "hosts": ["127.0.0.1:80"]}, "no 'hosts'"),
    "another address": ({"site": "shop", "asked": "select 1", "url": "http://example.org/"}, "is a path"),
    "an address that is no text": ({"site": "shop", "asked": "select 1", "url": 3}, "is a path"),
    "an empty question": ({"site": "shop", "asked": " "}, "'asked' is a query"),
    "checks that are no list": ({"site": "shop", "checks": "select 1"}, "'checks' is a list"),
    "a check without rows": ({"site": "shop", "checks": [{"query": "select 1"}]}, "'checks' is a list"),
    "rows that are none": ({"site": "shop", "checks": [{"query": "select 1", "rows": [1]}]}, "'checks' is a list"),
    "not the same": ({"site": "shop", "checks": [{"query": "select 1", "same": False}]}, "'checks' is a list"),
    "too many": ({"site": "shop", "checks": [{"query": "select 1", "same": True}] * 21}, "'checks' is a list"),
    "changes that nobody watches": ({"site": "shop", "asked": "select 1", "changes": ["prices"]}, "may change"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_task_that_is_none_is_refused(what: str) -> None:
    data, said = BAD[what]
    with pytest.raises(DataError, match=said):
        web_task(data)


def test_a_task_reaches_its_own_site_alone() -> None:
    task = web_task({"site": "tracker", "asked": "select 1", "url": "/issue1"})
    assert task.url == "http://tracker.invalid/issue1" and task.hosts == ("tracker.invalid:80",)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "d")) as made, made:
        made.execute("create table goods (name, price)")
        made.executemany("insert into goods values (?, ?)", [("mug", 4), ("jug", 9)])
    return tmp_path / "d"


HOSTILE = {
    "writes": "insert into goods values ('x', 1)",
    "deletes": "delete from goods",
    "makes a table": "create table t (a)",
    "opens another file": "attach database '/tmp/other.sqlite' as other",
    "changes a setting": "pragma query_only = 0",
    "loads code": "select load_extension('x')",
    "is two": "select 1; select 2",
    "is none": "no query",
    "has no end": "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "gives too much": "with recursive n(i) as (select 1 union all select i + 1 from n limit 30000) select i from n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_query_only_reads(what: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.environments.sites.checks.QUERY_S", 0.2)
    before = database.read_bytes()
    with pytest.raises(DataError):
        rows_of(database, HOSTILE[what])
    assert database.read_bytes() == before


def test_a_database_that_is_gone_is_no_fault_of_the_query(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureFailure, match="cannot be read"):
        rows_of(tmp_path / "none", "select 1")


SITE = Site("shop", "a shop", "/", "d", {"goods": "select * from goods order by name"})


def goal(**given: object) -> SiteGoal:
    return SiteGoal(**({"site": SITE, "asked": None, "checks": (), "changes": ()} | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "right"),
    [("4", True), (" 4. ", True), ("£4", True), ("9", False), ("4 or 9", False), ("", False), (None, False)],
)
def test_an_answer_is_one_of_the_rows(answer: str | None, right: bool, database: Path) -> None:
    asked = "select price from goods where name = 'mug' union select '£' || price from goods where name = 'mug'"
    assert goal(asked=asked).not_met(answer, database, database) == ([] if right else ["answer"])


def test_the_right_answer_is_that_of_the_beginning(database: Path, tmp_path: Path) -> None:
    now = tmp_path / "now"
    now.write_bytes(database.read_bytes())
    with closing(sqlite3.connect(now)) as changed, changed:
        changed.execute("update goods set price = 1 where name = 'mug'")
    asked = goal(asked="select price from goods where name = 'mug'", changes=("goods",))
    assert asked.not_met("1", now, database) == ["answer"] and asked.not_met("4", now, database) == []
    assert goal(asked=asked.asked).not_met("4", now, database) == ["goods"], "nobody asked for that"
