"""How SQLite looks turns up: by what tells most, and never by reading all that a client ever asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite

from turnwise.config import load_config
from turnwise.journal import Journal, lookups


@pytest.mark.parametrize("hashes", [["a"], ["a", "b"], [str(n) for n in range(lookups.MOST_HASHES)]], ids=len)
@pytest.mark.parametrize("scope", ["in_session", "of_client"])
@pytest.mark.parametrize("by", ["context", "thread", "answer"])
def test_a_turn_is_looked_up_by_its_hash(tmp_path: Path, by: str, scope: str, hashes: list[str]) -> None:
    query = getattr(getattr(lookups, f"_BY_{by.upper()}"), scope).params(hashes=hashes, scope="s")
    sql = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    journal = Journal.open(load_config(overrides={"home": tmp_path / "home"}))
    with journal.reading() as c:
        [search, *_] = [row[3] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
    journal.close()
    assert f"ix_turns_{by} ({by}_hash=?)" in search
