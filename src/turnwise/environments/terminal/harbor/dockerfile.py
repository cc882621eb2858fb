"""Reads a Dockerfile as far as the sandbox can be what it builds: a working directory, files copied into it, and
programs that this machine has. Anything else is refused by name. Pure, but for the question which programs are here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwise.errors import DataError

NO_MATTER = ("FROM", "LABEL", "MAINTAINER", "EXPOSE", "CMD", "ENTRYPOINT", "SHELL", "ARG")
"""Instructions without which the task is the same in the sandbox; of FROM see `MACHINE`."""
MACHINE = ("ubuntu", "debian", "alpine", "python", "busybox", "scratch")
"""Images that bring no more than a machine's own programs."""
TIDYING = (("apt-get", "update"), ("apt-get", "clean"), ("apt", "update"), ("rm", "-rf", "/var/lib/apt/lists/*"))
INSTALLING = (("apt-get", "install"), ("apt", "install"), ("apk", "add"))

HARMLESS = ("DEBIAN_FRONTEND", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "TZ")
"""Variables without which the task is the same."""


@dataclass(slots=True)
class Built:
    """What stands in the image beside the machine's programs: its working directory, which way of the build's folder
    is copied to which way in it, and commands that run there."""

    workdir: str = "/"
    copied: list[tuple[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def read_dockerfile(text: str, has_program: Callable[[str], bool]) -> Built:
    """Raises DataError with the instruction that the sandbox cannot follow."""
    built, ended = Built(), False
    for line in _lines(text):
        word, _, rest = line.partition(" ")
        name, rest = word.upper(), rest.strip()
        if name == "FROM":
            _from(rest, ended)
            ended = True
        elif name == "WORKDIR":
            built.workdir = rest.rstrip("/") or "/"
        elif name in ("COPY", "ADD"):
            built.copied += _copied(rest, line)
        elif name == "ENV":
            _check_variables(rest, line)
        elif name == "RUN":
            _run(rest, built, has_program)
        elif name not in NO_MATTER:
            raise DataError(f"the sandbox has no image of its own, and {line[:80]!r} asks for one")
    if built.workdir == "/":
        raise DataError("its Dockerfile names no WORKDIR, and the sandbox has one folder that can be written")
    return built


def _lines(text: str) -> list[str]:
    """The instructions, each a line; comments are left out."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(kept).replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def _from(image: str, again: bool) -> None:
    name = image.split(" ")[0].split("/")[-1].split(":")[0].split("@")[0]
    if again or name not in MACHINE:
        raise DataError(
            f"it is built from the image {image[:80]!r}, which the sandbox is not ({', '.join(MACHINE)} are)"
        )


def _copied(rest: str, line: str) -> list[tuple[str, str]]:
    try:
        words = [word for word in shlex.split(rest) if not word.startswith("--chmod")]
    except ValueError:
        words = []
    odd = any(word.startswith(("--", "http:", "https:")) or set(word) & set("*?[") for word in words)
    if len(words) < 2 or odd:
        raise DataError(
            f"{line[:80]!r} cannot be followed; files are copied from the folder environment by their names"
        )
    *sources, to = words
    return [(source, to) for source in sources]


def _check_variables(rest: str, line: str) -> None:
    """Raises DataError for a variable that a task may need, since commands of an agent are given none."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    names = [word.split("=")[0] for word in words] if "=" in (words or [""])[0] else words[:1]
    if not names or any(name not in HARMLESS for name in names):
        raise DataError(f"{line[:80]!r} sets a variable, and commands in the sandbox are given none")


def _run(rest: str, built: Built, has_program: Callable[[str], bool]) -> None:
    """Programs that are installed must be here; other commands run in the working directory."""
    own: list[str] = []
    for command in rest.split("&&"):
        words = command.split()
        if tuple(words[:2]) in INSTALLING:
            _are_here(words[2:], command, has_program)
        elif not any(tuple(words[: len(each)]) == each for each in TIDYING):
            own.append(command.strip())
    if own:
        built.commands.append(" && ".join(own))


def _are_here(words: Sequence[str], command: str, has_program: Callable[[str], bool]) -> None:
    for word in words:
        if not word.startswith("-") and not has_program(word.split("=")[0]):
            raise DataError(f"it installs {word[:60]}, which is not here as a program ({command.strip()[:80]})")
