"""The commands of `turnwise skills`."""

from turnwise.cli.skills import packs as packs  # adds its commands to the group
from turnwise.cli.skills.commands import skills_app

__all__ = ["skills_app"]
