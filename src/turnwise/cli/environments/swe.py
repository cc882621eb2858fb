"""`turnwise tasks swe build`: tasks about real packages with planted faults."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.environments.tasks import numbers, write_tasks
from turnwise.cli.options import err, out
from turnwise.errors import ConfigError

swe_app = typer.Typer(help="Tasks about repositories of real packages.", no_args_is_help=True)


@swe_app.callback()
def group() -> None:
    """Tasks about repositories of real packages."""


@swe_app.command("build", epilog="Example: turnwise tasks swe build --packages inflection,schema --seeds 0-4 --out swe")
def build(
    packages: Annotated[str | None, typer.Option(help="Names of packages with commas between; unset: all.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, each a task of every package: 0-9, or 1,5,7.")] = "0",
    edits: Annotated[int, typer.Option(min=1, max=3, help="Most changes of a fault.")] = 3,
    folder: Annotated[Path, typer.Option("--out", help="The folder for the tasks.")] = Path("swe"),
    show: Annotated[bool, typer.Option("--list", help="Show the packages, and build nothing.")] = False,
) -> None:
    """Plant faults in packages, keep those that hidden tests show, and write DIR/tasks.jsonl; fetches what it needs."""
    from turnwise.config import Config
    from turnwise.environments.base import Task
    from turnwise.environments.swe import packages as known
    from turnwise.environments.swe.building import build as built
    from turnwise.environments.swe.kind import KIND
    from turnwise.files import write_atomically

    names = [name.strip() for name in packages.split(",")] if packages else list(known.packages())
    chosen = [known.package_named(name) for name in dict.fromkeys(names)]
    if show:
        for package in chosen:
            out.print(f"{package.name} {package.version}", highlight=False, markup=False)
        return

    def say(said: str) -> None:
        err.print(said, highlight=False, markup=False, soft_wrap=True)

    KIND.check_machine(Config())
    known.fetch(names, say)
    tasks, dropped = [], []
    with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
        for each in built(chosen, numbers(seeds, "--seeds", 0, 10**9), edits, Path(place), say):
            if isinstance(each, Task):
                tasks.append(each)
                say(f"{each.id}: {len(each.data['edits'])} changes, {len(each.data['fail_to_pass'])} hidden tests")  # type: ignore[arg-type]
            else:
                dropped.append({"package": each.package, "seed": each.seed, "reason": each.reason})
    if not tasks:
        raise ConfigError(f"none of {len(dropped)} faults makes a task; give other seeds")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "dropped.json", json.dumps(dropped, indent=1).encode())
    write_tasks(folder / "tasks.jsonl", tasks)
    out.print(f"{len(dropped)} faults made no task; {folder / 'dropped.json'} says why", highlight=False, markup=False)
