"""`turnwise tasks calls`: tasks whose answer is the right calls, from a person's copy of the leaderboard's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.environments.tasks import write_tasks
from turnwise.errors import ConfigError


def calls(
    folder: Annotated[Path, typer.Argument(help="The folder with BFCL_v4_*.json and possible_answer.")],
    categories: Annotated[str, typer.Option(help="Names of categories with commas between.")] = "simple_python",
    most: Annotated[int | None, typer.Option("--limit", min=1, help="Tasks of each category; unset: all.")] = None,
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
) -> None:
    """Tasks about calls of given functions, from files of the Berkeley Function Calling Leaderboard."""
    from turnwise.environments.base import Task
    from turnwise.environments.tools.calls import CATEGORIES, read_leaderboard

    tasks: list[Task] = []
    for category in dict.fromkeys(name.strip() for name in categories.split(",")):
        if category not in CATEGORIES:
            raise ConfigError(f"there is no category {category!r}, only {', '.join(CATEGORIES)}")
        found = read_leaderboard(folder, category)
        tasks += [
            Task(at, "tools", words, data) for _, (at, words, data) in zip(range(most or 10**9), found, strict=False)
        ]
    write_tasks(out_file, tasks)
