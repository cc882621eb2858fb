"""The programs of a desktop, a table: what an agent may open, what they are, and which Debian package has them."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from turnwise.errors import SandboxError
from turnwise.sandbox.limits import INSIDE

PATH = "/usr/local/bin:/usr/bin:/bin"
PYTHON = "/usr/bin/python3"
"""The system's own: the bindings to the accessibility bus are a package of the system."""
BUS_LAUNCHERS = ("/usr/libexec/at-spi-bus-launcher", "/usr/lib/at-spi2-core/at-spi-bus-launcher")
BINDINGS = "girepository-1.0/Atspi-2.0.typelib"


@dataclass(frozen=True, slots=True)
class DeskProgram:
    """``command`` starts it; what it is to open comes behind."""

    command: str
    package: str
    about: str

    def line(self, way: str | None = None) -> str:
        """The shell's words that start it, with a file or folder of the task."""
        if way is None:
            return f"{self.command} {INSIDE}" if self.command == "pcmanfm" else self.command
        return f"{self.command} {shlex.quote(f'{INSIDE}/{way}')}"


PROGRAMS = {
    "editor": DeskProgram("mousepad", "mousepad", "a text editor (Mousepad)"),
    "files": DeskProgram("pcmanfm", "pcmanfm", "a file manager (PCManFM)"),
    "sheet": DeskProgram("gnumeric", "gnumeric", "a spreadsheet (Gnumeric)"),
    "terminal": DeskProgram("lxterminal", "lxterminal", "a terminal with a shell"),
}
_OTHERS = {
    "Xvfb": "xvfb",
    "xdotool": "xdotool",
    "openbox": "openbox",
    "dbus-daemon": "dbus",
}


def launcher() -> str:
    """Where the accessibility bus is started from. Raises SandboxError."""
    for place in BUS_LAUNCHERS:
        if Path(place).exists():
            return place
    raise SandboxError(_install(["at-spi2-core"]))


def check_programs() -> None:
    """Raises SandboxError with the packages that are missing for a desktop."""
    if sys.platform != "linux":
        raise SandboxError("a desktop is hosted on Linux alone; use a Linux machine or a virtual one")
    wanted = {program.command: program.package for program in PROGRAMS.values()} | _OTHERS
    missing = [package for name, package in wanted.items() if shutil.which(name, path=PATH) is None]
    if not any(Path(place).exists() for place in BUS_LAUNCHERS):
        missing.append("at-spi2-core")
    if not any(Path("/usr").glob(f"lib*/**/{BINDINGS}")):
        missing.append("gir1.2-atspi-2.0")
    if not Path("/usr/lib/python3/dist-packages/gi").exists():
        missing.append("python3-gi")
    if not any(Path("/usr").glob("lib*/**/gtk-2.0/modules/libgail.so")):
        missing.append("libgail-common")
    if not any(Path("/usr").glob("lib*/**/gtk-2.0/modules/libatk-bridge.so")):
        missing.append("libatk-adaptor")
    if missing:
        raise SandboxError(_install(missing))


def _install(packages: list[str]) -> str:
    return f"a desktop needs programs that are not here; install them (make desktop; Debian: {' '.join(packages)})"
