"""Which sandbox holds an agent's commands: the one of the settings, or the first that works here."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from turnwise.config.environments import EnvironmentsConfig, SandboxKind
from turnwise.errors import SandboxError
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.containers import ContainerLodging, check_containers, clean_containers
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.groups import clean_groups
from turnwise.sandbox.guest import BubblewrapLodging
from turnwise.sandbox.leftovers import end_left, is_left
from turnwise.sandbox.limits import Allowed, BoxLimits
from turnwise.sandbox.overlay import take_down
from turnwise.sandbox.shell import Shell

CONTAINERS = ("docker", "podman")


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Opens sandboxes as the settings say."""

    settings: EnvironmentsConfig = field(default_factory=EnvironmentsConfig)

    def check(self) -> str:
        """The name of the one that is used. Raises SandboxError that says what is missing."""
        return chosen(self.settings.sandbox, self.settings.image)

    def shell(self, folder: GuestFolder, limits: BoxLimits, allowed: Allowed | None = None) -> Shell:
        """A shell that lasts, over a folder. Raises SandboxError."""
        given = allowed or Allowed(hosts=tuple(self.settings.hosts))
        name = self.check()
        if name == "bubblewrap":
            return Shell(BubblewrapLodging(folder, limits, given), limits)
        return Shell(ContainerLodging(name, self.settings.image, folder, limits, given), limits)


@cache
def chosen(kind: SandboxKind, image: str) -> str:
    if kind in CONTAINERS:
        check_containers(kind, image)
        return kind
    try:
        check_machine()
    except SandboxError:
        for program in CONTAINERS if kind == "auto" else ():
            if _holds(program, image):
                return program
        raise
    return "bubblewrap"


def _holds(program: str, image: str) -> bool:
    try:
        check_containers(program, image)
    except SandboxError:
        return False
    return True


def clean_up(folder: Path) -> int:
    """End and take away what hosts that live no more left in a folder and on the machine; says how many things."""
    found = clean_groups() if sys.platform == "linux" else 0
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_left(entry.name):
            end_left(entry)
            take_down(entry)
            delete_folder(entry)
            found += 1
    return found + sum(clean_containers(program) for program in CONTAINERS if shutil.which(program))
