"""Task files of benchmarks of the web, as their authors give them out, read into tasks of ours. Nothing is fetched.

WebVoyager, DeepShop and WebGym are JSON lines, Online-Mind2Web is one JSON list. None has a verifier, so a judge says
whether a task was done. A line that lacks something is an error that says which, and what is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnwise.environments.base import Task
from turnwise.environments.browser.web_task import MOST_OF_A_REFERENCE, web_task
from turnwise.environments.tasks import MOST_OF_AN_ID
from turnwise.errors import DataError

MOST_OF_A_FILE = 512 << 20
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Format:
    """What a benchmark calls the parts of a task. Of several names the first that is there counts.

    ``only``: a field that no other format has, by which a file is known.
    """

    name: str
    id: tuple[str, ...]
    prompt: tuple[str, ...]
    url: tuple[str, ...]
    level: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


FORMATS = {
    each.name: each
    for each in (
        Format("deepshop", ("id",), ("ques",), ("web",), ("difficulty",), only=("ques", "attribute")),
        Format("webvoyager", ("id",), ("ques",), ("web",), only=("ques",)),
        Format(
            "online-mind2web",
            ("task_id",),
            ("confirmed_task", "task_description"),
            ("website",),
            ("level",),
            only=("confirmed_task",),
        ),
        Format(
            "webgym",
            ("task_id",),
            ("task_name",),
            ("website",),
            ("difficulty",),
            ("definite_answer",),
            only=("task_name",),
        ),
    )
}
"""By their names. A file is of the first whose ``only`` are all there: DeepShop's has all of WebVoyager's fields."""


def read_suite(
    path: Path,
    format_name: str | None = None,
    mirrors: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
) -> list[Task]:
    """The tasks of a benchmark's file. ``mirrors``: hosts with the address that they are played from; ``hosts``: what
    pages may reach beside the task's own site. Raises DataError with the line that is wrong, and what it lacks."""
    tasks: dict[str, Task] = {}
    chosen = None if format_name is None else format_named(format_name)
    for where, row in _rows(path):
        if not isinstance(row, dict):
            raise DataError(f"{where}: a task is a JSON object")
        chosen = chosen or _known(row, where)
        task = _task(row, chosen, where, mirrors or {}, hosts)
        if task.id in tasks:
            raise DataError(f"{where}: the id {task.id!r} stands there twice")
        tasks[task.id] = task
    if not tasks:
        raise DataError(f"{path} has no task in it")
    return list(tasks.values())


def format_named(name: str) -> Format:
    """Raises DataError for a name that there is not."""
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}, only {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each task as it stands in the file, with where it stands: a JSON list, or an object a line."""
    try:
        if path.stat().st_size > MOST_OF_A_FILE:
            raise DataError(f"{path} has more than {MOST_OF_A_FILE >> 20} MB; split it")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the tasks {path} cannot be read: {e}") from e
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise DataError(f"{path} begins as a JSON list and is none ({str(e)[:80]})") from None
        yield from ((f"{path} task {number}", row) for number, row in enumerate(listed, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path} line {number}", json.loads(line)
            except (ValueError, RecursionError) as e:
                raise DataError(f"{path} line {number} is no JSON object ({str(e)[:80]})") from None


def _known(row: Mapping[str, Any], where: str) -> Format:
    for each in FORMATS.values():
        if all(name in row for name in each.only):
            return each
    needed = "; ".join(f"{each.name}: {_needed(each)}" for each in FORMATS.values())
    raise DataError(f"{where}: this is of no format that is known ({needed}); name one with --format")


def _needed(form: Format) -> str:
    return ", ".join("/".join(names) for names in (form.id, form.prompt, form.url))


def _task(row: Mapping[str, Any], form: Format, where: str, mirrors: Mapping[str, str], hosts: Sequence[str]) -> Task:
    lacking = ["/".join(names) for names in (form.id, form.prompt, form.url) if _of(row, names) in (None, "")]
    if lacking:
        raise DataError(f"{where}: {' and '.join(lacking)} is missing; a task of {form.name} has {_needed(form)}")
    url = _of(row, form.url) or ""
    url = url if "://" in url else f"https://{url}"
    reach = [*([] if mirrors else _own_hosts(url)), *hosts]
    data: dict[str, object] = {"url": url, "judge": True}
    if reach:
        data["hosts"] = reach
    if mirrors:
        data["mirrors"] = dict(mirrors)
    if level := _of(row, form.level):
        data["level"] = level[:40]
    if (reference := _of(row, form.reference)) and reference.strip().lower() not in ("none", "n/a", "null"):
        data["reference"] = reference[:MOST_OF_A_REFERENCE]
    try:
        web_task(data)
    except DataError as e:
        raise DataError(f"{where}: {e}") from None
    return Task(plain_id(_of(row, form.id) or ""), "web", _of(row, form.prompt) or "", data)


def _of(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these fields that is there, as text; a number counts as one."""
    for name in names:
        value = row.get(name)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (str, int, float)):
            return str(value)
    return None


def _own_hosts(url: str) -> list[str]:
    """The site of an address and what stands below its name: `www.shop.example` has `*.shop.example` as well."""
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:  # which is told of the whole task
        return []
    if not host or host.replace(".", "").isdigit() or "." not in host:
        return []
    above = host.removeprefix("www.")
    return [above, f"*.{above}"]


def plain_id(given: str) -> str:
    """An id as ours are: `Cambridge Dictionary--29` becomes `Cambridge-Dictionary--29`."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "-" for sign in given)[
        :MOST_OF_AN_ID
    ]
