"""Peers that the benches measure beside: each in an environment of its own, kept in the cache folder."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from turnwise.config import cache_dir
from turnwise.errors import TurnwiseError

INSTALL_LIMIT_S = 1800


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """The environment ``name``, with ``packages`` from the package index; ``needs`` is a file that must be there."""

    name: str
    packages: tuple[str, ...]
    needs: str = "python"

    @property
    def folder(self) -> Path:
        return cache_dir() / "peers" / self.name

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def version(self) -> str | None:
        """The installed version, or None when it is not installed."""
        if not self.program("python").exists():
            return None
        asking = f"import importlib.metadata as m; print(m.version({self.name!r}))"
        done = subprocess.run([self.program("python"), "-c", asking], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 and self.program(self.needs).exists() else None

    def install(self) -> str:
        """Install what the package index has, unless it is there. Gives the version. Raises TurnwiseError."""
        if (found := self.version()) is not None:
            return found
        for command in (
            [sys.executable, "-P", "-m", "venv", str(self.folder)],
            [
                str(self.program("python")),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *self.packages,
            ],
        ):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise TurnwiseError(f"installing {self.name} took more than {INSTALL_LIMIT_S} s; try again") from None
            if done.returncode:
                raise TurnwiseError(f"could not install {self.name} into {self.folder}:\n{done.stderr[-1500:]}")
        if (found := self.version()) is None:
            raise TurnwiseError(f"{self.name} was installed into {self.folder}, but has no `{self.needs}` command")
        return found
