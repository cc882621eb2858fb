"""Which sandbox holds an agent's commands: the one of the settings, or the first that works here."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from turnwise.config.environments import EnvironmentsConfig, SandboxKind
from turnwise.errors import SandboxError
from turnwise.sandbox.box import Box
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.containers import ContainerLodging, check_containers, clean_containers
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.groups import clean_groups
from turnwise.sandbox.guest import BubblewrapLodging
from turnwise.sandbox.leftovers import is_left
from turnwise.sandbox.limits import Allowed, BoxLimits, Ran
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

    def run(
        self, folder: GuestFolder, command: str, limits: BoxLimits | None = None, allowed: Allowed | None = None
    ) -> Ran:
        """Run one command over a folder in a sandbox of its own, of which nothing is left. Without ``allowed`` it has
        no network, whatever the settings say. Raises SandboxError."""
        name, held, given = self.check(), limits or BoxLimits(), allowed or Allowed()
        if name == "bubblewrap":
            return Box(folder, held, given).run(command)
        room = Shell(ContainerLodging(name, self.settings.image, folder, held, given), held)
        try:
            return room.run(command)
        finally:
            room.close()

    def check_bubblewrap(self, what: str) -> None:
        """Raises SandboxError where the settings name another sandbox for what runs in bubblewrap alone, or it is not
        here."""
        if self.settings.sandbox in CONTAINERS:
            said = f"{what} runs in bubblewrap alone, and environments.sandbox is {self.settings.sandbox!r}"
            raise SandboxError(f"{said}; set it to 'auto' or 'bubblewrap'")
        check_machine()


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
    """Take away what hosts that live no more left in a folder and on the machine; says how many things."""
    found = clean_groups() if sys.platform == "linux" else 0
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_left(entry.name):
            take_down(entry)
            delete_folder(entry)
            found += 1
    return found + sum(clean_containers(program) for program in CONTAINERS if shutil.which(program))
