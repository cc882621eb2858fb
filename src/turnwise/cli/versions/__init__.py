"""The commands of `turnwise versions`."""

from turnwise.cli.versions import comparing as comparing  # each adds its command to the group
from turnwise.cli.versions.commands import versions_app

__all__ = ["versions_app"]
