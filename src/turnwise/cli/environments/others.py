"""`turnwise tasks openenv` and `turnwise tasks verifiers`: tasks of environments that others wrote."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from turnwise.cli.environments.tasks import numbers, write_tasks
from turnwise.cli.options import err
from turnwise.errors import ConfigError


def openenv(
    server: Annotated[str, typer.Argument(help="Address of an OpenEnv server, as http://127.0.0.1:8000.")],
    prompt: Annotated[str, typer.Option(help="What the agent is told to do.")],
    seeds: Annotated[str, typer.Option(help="Seeds, each a task: 0-9, or 1,5,7.")] = "0-9",
    reset: Annotated[str, typer.Option(help="What an episode begins with beside its seed: a JSON object.")] = "{}",
    last: Annotated[bool, typer.Option("--last", help="The last reward is the outcome, not the sum of all.")] = False,
    name: Annotated[str, typer.Option(help="The tasks are called NAME-SEED.")] = "openenv",
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
) -> None:
    """Tasks at an OpenEnv server, which is asked for its actions and tools."""
    from turnwise.environments.base import Task
    from turnwise.environments.openenv.task import as_tools, openenv_task
    from turnwise.environments.openenv.wire import action_schema

    given = _object(reset, "--reset")
    schema, listed = action_schema(server)
    acts: dict[str, Any] = {"tools": as_tools(listed)} if listed else {"action": schema}
    counts = {"reward": "last"} if last else {}
    tasks = [
        Task(
            f"{name}-{seed}", "openenv", prompt, {"server": server, "reset": {**given, "seed": seed}, **acts, **counts}
        )
        for seed in numbers(seeds, "--seeds", 0, 10**9)
    ]
    openenv_task(tasks[0].data)
    write_tasks(out_file, tasks)


def tasksets(
    taskset: Annotated[str, typer.Argument(help="The taskset's id: the name of its package.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the package lies, if it is not installed beside verifiers.")
    ] = None,
    config: Annotated[str, typer.Option(help="The taskset's settings: a JSON object.")] = "{}",
    most: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Tasks that are looked at.")] = 100,
    answer: Annotated[str | None, typer.Option(help="The field of a task's data that solves it, for oracle.")] = None,
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
) -> None:
    """Tasks of a taskset of `verifiers`; those that cannot be played are named, with why."""
    from turnwise.environments.base import InfrastructureFailure, Task
    from turnwise.environments.verified.child import TasksetProcess, TasksetRefused

    beside = None if folder is None else folder.absolute()
    if beside is not None and not beside.is_dir():
        raise ConfigError(f"{folder} is no folder; give the one that holds the package {taskset}")
    asked = {"taskset": taskset, "config": _object(config, "--config")}
    with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
        process = TasksetProcess(Path(place) / "taskset", beside)
        try:
            said = process.ask("list", **asked, most=most, answer=answer)
        except (TasksetRefused, InfrastructureFailure) as e:
            raise ConfigError(f"the taskset {taskset} cannot be loaded: {e}") from e
        finally:
            process.close()
    for index, why in said["left_out"].items():
        err.print(f"left out task {index}: {why}", highlight=False, markup=False, soft_wrap=True)
    at = {} if beside is None else {"folder": str(beside)}
    name = "".join(sign if (sign.isalnum() and sign.isascii()) or sign in "._-" else "-" for sign in taskset)[:60]
    tasks = []
    for each in said["tasks"]:
        of = {key: each[key] for key in ("index", "hash", "system", "tools", "answer") if each[key] not in (None, [])}
        tasks.append(Task(f"{name}-{each['index']}", "verifiers", each["prompt"], {**asked, **at, **of}))
    write_tasks(out_file, tasks)


def _object(given: str, flag: str) -> dict[str, Any]:
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f'{flag} is a JSON object, as \'{{"split": "test"}}\'')
    return found
