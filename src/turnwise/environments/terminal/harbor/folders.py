"""Loads Harbor task folders: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/solve.sh`.

Such tasks name places of their image. In the sandbox the working directory is `/box`, and the verifier's files have a
place of their own: where texts of the task name the others, these names are changed.
"""

from __future__ import annotations

import itertools
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from turnwise.environments.base import Task
from turnwise.environments.tasks import MOST_OF_AN_ID, is_plain
from turnwise.environments.terminal.harbor.dockerfile import Built, read_dockerfile
from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.folder import MOST_BYTES, GuestFolder
from turnwise.sandbox.limits import INSIDE

PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin"
FETCHES = ("curl ", "wget ", "apt-get ", "apt ", "pip install", "pip3 install", "uvx ", "uv run", "npm install")
"""What a verifier without a network cannot do."""
MOST_FILES = 200
LONGEST_S = 600
"""The most that a verifier may run."""
TESTS, LOGS = "{tests}", "{logs}"
"""What stands for the verifier's own places in its texts."""


def folders_in(path: Path) -> list[Path]:
    """The task folders at a path: itself, or those in it. Raises DataError where there is none."""
    found = [path] if (path / "task.toml").is_file() else sorted(each.parent for each in path.glob("*/task.toml"))
    if not found:
        raise DataError(f"there is no Harbor task in {path}: such a folder has a task.toml")
    return found


def read_folder(path: Path) -> Task:
    """The task of one folder. Raises DataError with why it cannot be played here."""
    name = path.name
    if not is_plain(name) or not 1 <= len(name) <= MOST_OF_AN_ID:
        raise DataError(f"its name is no id: 1 to {MOST_OF_AN_ID} letters, digits or any of . _ -")
    path = path.resolve()
    told = _toml(path)
    _refuse_demands(path, told)
    built = read_dockerfile(_text(path, "environment/Dockerfile"), _has_program)
    tests = dict(_files(path, "tests", built))
    if "test.sh" not in tests:
        raise DataError("it has no tests/test.sh")
    if fetched := next((word for text in tests.values() for word in FETCHES if word in text), None):
        raise DataError(f"its tests fetch or install something ({fetched.strip()}), and a verifier has no network")
    seconds = told.get("verifier", {}).get("timeout_sec", 120)
    seconds = seconds if isinstance(seconds, (int, float)) else 120
    harbor: dict[str, Any] = {"files": dict(_copied(path, built)), "tests": tests}
    harbor |= {"seconds": float(min(LONGEST_S, max(1, seconds)))}
    harbor |= {"setup": [moved(command, built.workdir) for command in built.commands]}
    solve = "solution/solve.sh"
    oracle = [moved(_text(path, solve), built.workdir)] if (path / solve).is_file() else []
    prompt = moved(_text(path, "instruction.md"), built.workdir).strip()
    if not prompt:
        raise DataError("its instruction.md is empty")
    return Task(name, "terminal", prompt, {"harbor": harbor, "oracle": oracle})


def moved(text: str, workdir: str) -> str:
    """A text in which the places of the image are those of the sandbox."""
    for place, to in (("/tests", TESTS), ("/logs", LOGS), (workdir, INSIDE)):
        text = _renamed(text, place, to)
    return text


def _renamed(text: str, place: str, to: str) -> str:
    """A text with another name for a place, where it is the beginning of a path and not a part of another name."""
    parts = text.split(place)
    made = [parts[0]]
    for number, (before, after) in enumerate(itertools.pairwise(parts)):
        sign = before[-1:] or (place[-1:] if number else " ")
        is_it = not (sign.isalnum() or sign in "._-/}" or after[:1].isalnum() or after[:1] in ("_", "-"))
        made += [to if is_it else place, after]
    return "".join(made)


def _refuse_demands(path: Path, told: dict[str, Any]) -> None:
    for name in ("environment", "verifier"):
        if not isinstance(told.get(name, {}), dict):
            raise DataError(f"its task.toml has an [{name}] that is no table")
    environment = told.get("environment", {})
    if environment.get("docker_image"):
        raise DataError(f"it runs in an image of its own ({environment['docker_image']})")
    if environment.get("gpus"):
        raise DataError("it wants a GPU")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (path / "environment" / name).exists():
            raise DataError(f"it runs several containers (environment/{name})")
    if told.get("steps"):
        raise DataError("it has several steps, each with an instruction of its own")


def _copied(path: Path, built: Built) -> Iterator[tuple[str, str]]:
    """The files of the beginning, by their way in the working directory."""
    inside = dict(_files(path, "environment", built))
    for source, to in built.copied:
        source = source.removeprefix("./").rstrip("/") or "."
        target = PurePosixPath(built.workdir) / to
        if not target.is_relative_to(built.workdir):
            raise DataError(f"it copies {source} to {to}, outside of its working directory {built.workdir}")
        way = target.relative_to(built.workdir)
        if source in inside:
            is_folder = to.endswith(("/", ".")) or str(way) == "."
            yield str(way / PurePosixPath(source).name) if is_folder else str(way), inside[source]
            continue
        below = "" if source == "." else f"{source}/"
        found = {name: text for name, text in inside.items() if name.startswith(below) and name != "Dockerfile"}
        if not found:
            raise DataError(f"it copies {source}, which is not in its folder environment")
        for name, text in found.items():
            yield str(way / name.removeprefix(below)), text


def _files(path: Path, folder: str, built: Built) -> Iterator[tuple[str, str]]:
    """The texts in a folder of the task, by their way in it. Raises DataError, also for a link: its author may have
    made it to a file of ours."""
    top = path / folder
    if top.is_symlink():
        raise DataError(f"its {folder} cannot be read: it is a link")
    found = sorted(each for each in top.glob("**/*") if each.is_symlink() or each.is_file()) if top.is_dir() else []
    if len(found) > MOST_FILES:
        raise DataError(f"it has more than {MOST_FILES} files in {folder}")
    for each in found:
        yield each.relative_to(top).as_posix(), moved(_text(path, each.relative_to(path).as_posix()), built.workdir)


def _text(path: Path, way: str) -> str:
    try:
        return GuestFolder(path).read(way, MOST_BYTES).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DataError(f"its {way} is no text, and tasks are kept as texts") from None
    except FileNotFoundError:
        raise DataError(f"it has no {way}") from None
    except FolderFault as e:
        raise DataError(f"its {way} cannot be read: {e}") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(path, "task.toml"))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as e:
        raise DataError(f"its task.toml is no TOML: {e}") from None


def _has_program(name: str) -> bool:
    return shutil.which(name, path=PROGRAMS) is not None
