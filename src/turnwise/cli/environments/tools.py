"""`turnwise tasks tools`: questions with an answer that can be checked, for agents with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.environments.tasks import numbers, write_tasks
from turnwise.cli.options import err, out
from turnwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from turnwise.environments.base import Task

GSM8K = "gsm8k"


def tools(
    families: Annotated[str | None, typer.Option(help="Names of families with commas between; unset: all.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, each a task of every family: 0-9, or 1,5,7.")] = "0-9",
    gsm8k: Annotated[
        Path | None, typer.Option(help=f"Your file of GSM8K, for the family {GSM8K}; a seed is a line from 0.")
    ] = None,
    python: Annotated[bool, typer.Option("--python/--no-python", help="Give the agent an interpreter.")] = True,
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
    show: Annotated[bool, typer.Option("--list", help="Show the families, and write nothing.")] = False,
) -> None:
    """Questions with answers that can be checked, from reasoning-gym and GSM8K; with Python to compute with."""
    from turnwise.environments.tools.answers import families as known

    every = [*known(), *([GSM8K] if gsm8k is not None else [])]
    if show:
        out.print("\n".join(every), highlight=False, markup=False)
        out.print(f"{len(every)} families", highlight=False)
        return
    chosen = [name.strip() for name in families.split(",")] if families else every
    if odd := [name for name in chosen if name not in (*known(), GSM8K)]:
        raise ConfigError(f"there is no family {odd[0]!r}; `turnwise tasks tools --list` names them")
    if GSM8K in chosen and gsm8k is None:
        raise ConfigError(f"the family {GSM8K} is read from your copy of its file; name it with --gsm8k")
    tasks = []
    for name in dict.fromkeys(chosen):
        made = list(_tasks(name, numbers(seeds, "--seeds", 0, 10**9), gsm8k, python))
        if not made:
            err.print(f"{name} has no answer that it takes itself; left out", highlight=False, markup=False)
        tasks += made
    write_tasks(out_file, tasks)


def _tasks(family: str, seeds: list[int], gsm8k: Path | None, python: bool) -> Iterator[Task]:
    from turnwise.environments.base import Task
    from turnwise.environments.tools import answers

    lines = _lines(gsm8k) if family == GSM8K and gsm8k is not None else []
    for seed in seeds:
        if family == GSM8K:
            if seed >= len(lines):
                raise ConfigError(f"{gsm8k} has {len(lines)} problems; there is none with the seed {seed}")
            found = answers.gsm8k(lines[seed])
        else:
            found = answers.asked(family, seed)
        if found is not None:
            words, question = found
            data = {"answer": question.answer} if family == GSM8K else asdict(question)
            yield Task(f"{family}-{seed}", "tools", words, {**data, "python": python})


def _lines(path: Path) -> list[dict[str, object]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as e:
        raise DataError(f"the problems {path} cannot be read: {e}; give GSM8K's test.jsonl") from e
