"""One rollout at a site: an instance of its own, how a browser reaches it, and what its database says at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.sites.goal import SiteGoal
from turnwise.environments.sites.keepers import SiteInstance, open_instance
from turnwise.errors import DataError


class SiteVisit:
    """An instance, and what is to be done at it."""

    def __init__(self, goal: SiteGoal, instance: SiteInstance) -> None:
        self._goal, self._instance = goal, instance

    @property
    def leads(self) -> Mapping[str, str]:
        """Where the site's own name leads to."""
        return {f"{self._goal.site.host}:80": f"127.0.0.1:{self._instance.port}"}

    def check(self) -> None:
        """Raises InfrastructureFailure where the site has ended."""
        self._instance.check()

    def not_met(self, answer: str | None) -> list[str]:
        """What is not as it has to be, once the site has answered all it was asked. Raises InfrastructureFailure."""
        try:
            self._instance.settle()
            return self._goal.not_met(answer, self._instance.database, self._instance.before)
        except (DataError, OSError) as e:
            raise InfrastructureFailure(f"the site {self._goal.site.name} cannot be looked at: {e}") from e

    def close(self) -> None:
        self._instance.close()


def visit(goal: SiteGoal, sites: Path | None) -> SiteVisit:
    """Open an instance for a task. Raises InfrastructureFailure where the site does not run."""
    if sites is None:
        raise InfrastructureFailure(f"no folder of sites was named, so that {goal.site.name} cannot be reached")
    return SiteVisit(goal, open_instance(sites, goal.site))
