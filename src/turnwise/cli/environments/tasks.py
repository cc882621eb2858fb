"""`turnwise tasks`: files of tasks for `turnwise rollout`, made by generators, a command a kind of environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from turnwise.cli.options import err, out
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.environments.base import Task

tasks_app = typer.Typer(help="Make files of tasks for `turnwise rollout`.", no_args_is_help=True)
MOST_SEEDS = 10_000


@tasks_app.command("terminal", epilog="Example: turnwise tasks terminal --seeds 0-9 --difficulty 1-3")
def terminal(
    families: Annotated[str | None, typer.Option(help="Names of families with commas between; unset: all.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, each a task of every family: 0-9, or 1,5,7.")] = "0-9",
    difficulty: Annotated[str, typer.Option(help="1 to 3, or several: 1-3.")] = "1",
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
    show: Annotated[bool, typer.Option("--list", help="Show the families, and write nothing.")] = False,
) -> None:
    """Tasks in a shell: files, text, permissions, archives, git, processes, data."""
    from turnwise.environments.terminal.families.base import MOST_DIFFICULT
    from turnwise.environments.terminal.families.table import FAMILIES, left_out, named, tasks_of

    chosen = named(name.strip() for name in families.split(",")) if families else list(FAMILIES.values())
    if show:
        table = Table("family", "theme", "its tasks", "needs")
        for family in chosen:
            table.add_row(family.name, family.theme, family.says, ", ".join(family.needs))
        out.print(table)
        out.print(f"{len(chosen)} families", highlight=False)
        return
    levels = numbers(difficulty, "--difficulty", 1, MOST_DIFFICULT)
    if (said := left_out(chosen)) is not None:
        err.print(said, highlight=False, markup=False, soft_wrap=True)
    write_tasks(out_file, tasks_of(chosen, numbers(seeds, "--seeds", 0, 10**9), levels))


@tasks_app.command("harbor", epilog="Example: turnwise tasks harbor ./my-tasks --out tasks.jsonl")
def harbor(
    folder: Annotated[Path, typer.Argument(help="A Harbor task folder, or a folder of such folders.")],
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
) -> None:
    """Tasks from Harbor folders that need no image of their own; the others are named, with why."""
    from turnwise.environments.terminal.harbor.folders import folders_in, read_folder
    from turnwise.errors import DataError

    tasks: list[Task] = []
    for each in folders_in(folder):
        try:
            tasks.append(read_folder(each))
        except DataError as e:
            err.print(f"left out {each.name}: {e}", highlight=False, markup=False, soft_wrap=True)
    write_tasks(out_file, tasks)


@tasks_app.command("desktop", epilog="Example: turnwise tasks desktop --families rename-file --out d.jsonl")
def desktop(
    families: Annotated[str | None, typer.Option(help="Names of families with commas between; unset: all.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, each a task of every family: 0-9, or 1,5,7.")] = "0-9",
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
    show: Annotated[bool, typer.Option("--list", help="Show the families, and write nothing.")] = False,
) -> None:
    """Tasks on a desktop: an editor, a file manager, a spreadsheet, a terminal."""
    from turnwise.environments.desktop.families.table import FAMILIES, named, tasks_of

    chosen = named(name.strip() for name in families.split(",")) if families else list(FAMILIES.values())
    if show:
        table = Table("family", "programs", "its tasks")
        for family in chosen:
            table.add_row(family.name, family.theme, family.says)
        out.print(table)
        out.print(f"{len(chosen)} families", highlight=False)
        return
    write_tasks(out_file, tasks_of(chosen, numbers(seeds, "--seeds", 0, 10**9)))


@tasks_app.command("web", epilog="Example: turnwise tasks web --pages enter-text --out web.jsonl")
def web(
    pages: Annotated[str | None, typer.Option(help="Tasks of MiniWoB++ with commas; unset: those with a rule.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, each a task of every page: 0-9, or 1,5,7.")] = "0-9",
    record: Annotated[bool, typer.Option("--record", help="Play each by its rule, and write the calls down.")] = False,
    spoil: Annotated[
        bool, typer.Option("--spoil", help="The same with a mistake in each: tasks whose oracle fails.")
    ] = False,
    given: Annotated[
        Path | None, typer.Option("--from", help="Your copy of a benchmark's task file, in place of MiniWoB++.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", help="webvoyager, online-mind2web, deepshop, webgym; unset: by its fields."),
    ] = None,
    mirrors: Annotated[
        list[str] | None, typer.Option("--mirror", metavar="HOST=URL", help="Play a host's pages from an address.")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="With --from: hosts beside the site's own that pages may reach, with commas.")
    ] = None,
    observe: Annotated[str, typer.Option(help="How pages are shown: text, screenshot, marks, both.")] = "text",
    out_file: Annotated[Path, typer.Option("--out", help="The file of tasks to write.")] = Path("tasks.jsonl"),
    show: Annotated[bool, typer.Option("--list", help="Show the pages, and write nothing.")] = False,
) -> None:
    """Tasks in a browser, from the pages of MiniWoB++ or from a benchmark's task file (docs/web.md)."""
    from turnwise.environments.browser.miniwob import page_names
    from turnwise.environments.browser.miniwob_oracle import RULES
    from turnwise.environments.browser.miniwob_tasks import tasks_of
    from turnwise.environments.browser.suites.formats import read_suite
    from turnwise.environments.browser.suites.spoiled import spoiled_tasks
    from turnwise.environments.browser.web_task import VIEWS

    if show:
        for name in page_names():
            out.print(f"{name}  solved by a rule" if name in RULES else name, highlight=False)
        return
    if observe not in VIEWS:
        raise ConfigError(f"--observe takes {', '.join(VIEWS)}, not {observe!r}")
    view = {} if observe == "text" else {"observe": observe}
    if given is not None:
        others = [part.strip() for part in (hosts or "").split(",") if part.strip()]
        read = read_suite(given, format_name, _mirrors(mirrors or []), others)
        write_tasks(out_file, [replace(task, data={**task.data, **view}) for task in read])
        return
    if format_name or mirrors or hosts:
        raise ConfigError("--format, --mirror and --hosts go with --from, which names a benchmark's task file")
    chosen = [name.strip() for name in pages.split(",")] if pages else list(RULES)
    numbered = numbers(seeds, "--seeds", 0, 10**9)

    def left_out(task: str) -> None:
        why = "its rule with a mistake solves it, or its rule does not" if spoil else "its rule does not solve it"
        err.print(f"left out {task}: {why}", highlight=False, markup=False, soft_wrap=True)

    made = spoiled_tasks(chosen, numbered, left_out) if spoil else tasks_of(chosen, numbered, record, left_out)
    write_tasks(out_file, [replace(task, data={**task.data, **view}) for task in made])


def _mirrors(given: Sequence[str]) -> dict[str, str]:
    """HOST=URL, each. Raises ConfigError."""
    found: dict[str, str] = {}
    for pair in given:
        host, sign, where = pair.partition("=")
        if not sign or not host.strip() or not where.strip():
            raise ConfigError(f"--mirror takes HOST=URL as www.shop.example=http://127.0.0.1:8000, not {pair!r}")
        found[host.strip()] = where.strip()
    return found


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write a file of tasks, whole or not at all, and say so. Raises ConfigError where there are none."""
    from turnwise.environments.tasks import written
    from turnwise.files import write_atomically

    if not tasks:
        raise ConfigError("there is no task to write")
    write_atomically(path, "".join(f"{written(task)}\n" for task in tasks).encode())
    out.print(f"{len(tasks)} tasks in {path}", highlight=False, markup=False, soft_wrap=True)


def numbers(given: str, flag: str, least: int, most: int) -> list[int]:
    """The numbers that a text as 0-9 or 1,5,7 names, in its order. Raises ConfigError."""
    found: dict[int, None] = {}
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 10 or len(last) > 10:
            raise ConfigError(f"{flag} takes numbers as 0-9 or 1,5,7, not {given!r}")
        low, high = int(first), int(last or first)
        if not least <= low <= high <= most or high - low >= MOST_SEEDS:
            raise ConfigError(
                f"{flag} takes numbers from {least} to {most}, at most {MOST_SEEDS} of them, not {given!r}"
            )
        found |= dict.fromkeys(range(low, high + 1))
    return list(found)
