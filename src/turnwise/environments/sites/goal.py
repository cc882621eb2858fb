"""What a task on one of the sites is about, as data: a question with an answer in its database, or a change of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.environments.sites.checks import DatabaseCheck, not_met, read_checks, rows_of
from turnwise.environments.sites.table import Site, site_named
from turnwise.errors import DataError

GOAL = ("site", "asked", "checks", "changes")
"""The keys of a task that are read here."""


@dataclass(frozen=True, slots=True)
class SiteGoal:
    """``asked``: a query whose rows are the right answers, on the data as the site began. ``checks``: what holds once
    the task is done. ``changes``: what of the watched data may be different then; all else has to be as it was."""

    site: Site
    asked: str | None
    checks: tuple[DatabaseCheck, ...]
    changes: tuple[str, ...]

    def not_met(self, answer: str | None, now: Path, before: Path) -> list[str]:
        """What is not as it has to be: names of watched data, queries, or "answer". Raises InfrastructureFailure."""
        watched = {name: query for name, query in self.site.watched.items() if name not in self.changes}
        found = [name for name, query in watched.items() if rows_of(now, query) != rows_of(before, query)]
        found += not_met(self.checks, now, before)
        if self.asked is not None and not self._is_right(answer, before):
            found.append("answer")
        return found

    def _is_right(self, answer: str | None, before: Path) -> bool:
        right = {plain(str(row[0])) for row in rows_of(before, self.asked or "")}
        return answer is not None and bool(plain(answer)) and plain(answer) in right


def site_goal(data: Mapping[str, object]) -> SiteGoal:
    """The goal that a task's data describes. Raises DataError with what is missing or wrong."""
    site, asked, changes = site_named(data.get("site")), data.get("asked"), data.get("changes", [])
    checks = read_checks(data.get("checks", []))
    if asked is not None and not (isinstance(asked, str) and asked.strip()):
        raise DataError("'asked' is a query whose rows are the right answers")
    if not isinstance(changes, list) or any(name not in site.watched for name in changes):
        raise DataError(f"'changes' is a list of what may change on the site: {', '.join(site.watched)}")
    if asked is None and not checks:
        raise DataError("'asked' has the query for the right answer, or 'checks' what the site has to hold; give one")
    return SiteGoal(site, asked, checks, tuple(changes))


def plain(text: str) -> str:
    """A text without what does not count: case, space around and between, a full stop at its end."""
    return " ".join(text.split()).casefold().rstrip(".")
