"""The rules P1 to P5 of MetaClaw-Bench (MetaClaw, Table 4), held against files of a folder that an agent filled.

An own implementation from the rules' words and from the questions' feedback, since the bench's checker scripts are no
part of the data. Each check gives None where the rule is kept, else a sentence that says what is wrong. Files are only
read, never run; an empty file and `{}` keep no rule.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec
import yaml

from turnwise.errors import FolderFault
from turnwise.patterns import anchored
from turnwise.sandbox.folder import GuestFolder

STATUSES = frozenset({"done", "in_progress", "pending"})
"""Of P3: those that the questions call right."""
META = ("created_at", "author", "status")

_TIME = anchored(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?\+08:00")
_NAME = anchored(r"([0-9]{8})(_[a-z0-9]{1,80}){1,20}\.([a-z0-9]{1,8})")
_DONE = anchored(r"\[DONE\] (\S{1,40}) \| ([^|\s]{1,120}) \| (\S.{0,400})")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules are held against: the folder, what lay in it at the day's start, and before this round."""

    folder: GuestFolder
    given: Mapping[str, bytes] = field(default_factory=dict)
    before: Mapping[str, bytes] = field(default_factory=dict)


def is_time(value: object) -> bool:
    """P1: a real date and time as 2026-03-16T09:30:00+08:00, with or without fractions of a second."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.datetime.fromisoformat(f"{value[:19]}+08:00")
    except ValueError:
        return False
    return True


def check_times(around: Surroundings, file: str, fields: list[str]) -> str | None:
    """P1 of fields of a JSON file, by ways like `meta.created_at` and `tasks[].due_date`.

    Behind `[]` an item without the field, or with nothing in it, is passed over as long as one item has it: the
    questions ask for one task's times and not for those of its neighbours.
    """
    document, fault = _json_of(around.folder, file)
    if fault is not None:
        return fault
    for way in fields:
        found = list(_values(document, way.split(".")))
        if "[]" in way:
            found = [value for value in found if value not in (None, "")]
        if not found:
            return f"{file} has no {way}"
        if wrong := next((value for value in found if not is_time(value)), None):
            return f"{file}: {way} is {str(wrong)[:60]!r}, no time as 2026-03-16T09:30:00+08:00"
        if not all(is_time(value) for value in found):
            return f"{file}: {way} is empty"
    return None


def check_names(around: Surroundings, folder: str, ending: str, least: int) -> str | None:
    """P2: at least ``least`` files of this ending that are called YYYYMMDD_words_of_it, have content, and are new."""
    kept = 0
    try:
        names = around.folder.names(folder)
        for name in names:
            file = str(PurePosixPath(folder) / name)
            if is_output_name(name, ending) and not _was_given(around, file) and fault_of_content(around, file) is None:
                kept += 1
    except FolderFault as e:
        return str(e)
    if kept < least:
        return f"{kept} of {least} files in {folder} are called as 20260323_build_report.{ending} and have content"
    return None


def is_output_name(name: str, ending: str | None = None) -> bool:
    """Whether a name keeps P2: a real date, then words in snake_case."""
    found = _NAME.fullmatch(name)
    if found is None or (ending is not None and found.group(3) != ending):
        return False
    try:
        datetime.datetime.strptime(found.group(1), "%Y%m%d")
    except ValueError:
        return False
    return True


def check_metadata(around: Surroundings, file: str) -> str | None:
    """P3: `created_at`, `author` and `status` where a file of this kind has them."""
    text, fault = _text_of(around.folder, file)
    if fault is None:
        fault = fault_of_content(around, file)
    if fault is not None:
        return fault
    meta = _meta_of(text, PurePosixPath(file).suffix)
    if not isinstance(meta, Mapping):
        return f"{file} has no metadata where a file of its kind has them"
    if missing := [name for name in META if meta.get(name) in (None, "")]:
        return f"{file}: its metadata have no {', '.join(missing)}"
    if not is_time(meta["created_at"]):
        return f"{file}: created_at is {str(meta['created_at'])[:60]!r}, no time as 2026-03-16T09:30:00+08:00"
    if not isinstance(meta["author"], str) or not meta["author"].strip():
        return f"{file}: author is no name"
    if not isinstance(meta["status"], str) or meta["status"] not in STATUSES:
        return f"{file}: status is {str(meta['status'])[:40]!r}, none of {', '.join(sorted(STATUSES))}"
    return None


def check_backup(around: Surroundings, file: str) -> str | None:
    """P4: beside a changed file lies `<file>.bak` with what was in it before, in this round or at the day's start."""
    try:
        backup, now = _bytes_of(around.folder, f"{file}.bak"), _bytes_of(around.folder, file)
    except FolderFault as e:
        return str(e)
    earlier = [kept[file] for kept in (around.given, around.before) if file in kept]
    if backup is None or now is None:
        return f"there is no {file}.bak" if backup is None else f"{file} is gone"
    if backup not in earlier:
        return f"{file}.bak has not what was in {file} before"
    if now == backup or not now.strip():
        return f"{file} was not changed" if now.strip() else f"{file} is empty"
    return None


def check_done(around: Surroundings, file: str, least: int, prefix: str | None) -> str | None:
    """P5: lines `[DONE] <time> | <task id> | <summary>`, at least ``least``, one with an id that begins so."""
    text, fault = _text_of(around.folder, file)
    if fault is not None:
        return fault
    kept = [
        found for line in text.splitlines() if (found := _DONE.fullmatch(line.rstrip())) and is_time(found.group(1))
    ]
    if len(kept) < least:
        return f"{file} has {len(kept)} of {least} lines as `[DONE] 2026-04-13T18:00:00+08:00 | task_id | summary`"
    if prefix is not None and not any(found.group(2).startswith(prefix) for found in kept):
        return f"no line of {file} has a task id that begins with {prefix}"
    return None


def fault_of_content(around: Surroundings, file: str) -> str | None:
    """What is wrong with a file that should have something in it."""
    if PurePosixPath(file).suffix == ".json":
        document, fault = _json_of(around.folder, file)
        return fault if fault is not None or document else f"{file} has nothing in it"
    text, fault = _text_of(around.folder, file)
    return fault if fault is not None or text.strip() else f"{file} has nothing in it"


def _was_given(around: Surroundings, file: str) -> bool:
    return file in around.given and _bytes_of(around.folder, file) == around.given[file]


def _bytes_of(folder: GuestFolder, file: str) -> bytes | None:
    try:
        return folder.read(file)
    except FileNotFoundError:
        return None


def _text_of(folder: GuestFolder, file: str) -> tuple[str, str | None]:
    try:
        content = _bytes_of(folder, file)
        return ("", f"there is no {file}") if content is None else (content.decode("utf-8"), None)
    except FolderFault as e:
        return "", str(e)
    except UnicodeDecodeError:
        return "", f"{file} is not UTF-8"


def _json_of(folder: GuestFolder, file: str) -> tuple[Any, str | None]:
    text, fault = _text_of(folder, file)
    if fault is not None:
        return None, fault
    try:
        return msgspec.json.decode(text), None
    except (msgspec.DecodeError, RecursionError, ValueError) as e:
        return None, f"{file} is not JSON: {e}"


def _values(at: Any, way: list[str]) -> Iterator[Any]:
    """What stands at the end of a way through a document."""
    if not way:
        yield at
        return
    name = way[0].removesuffix("[]")
    if not isinstance(at, Mapping) or name not in at:
        return
    below = at[name]
    if not way[0].endswith("[]"):
        yield from _values(below, way[1:])
    elif isinstance(below, list):
        for item in below:
            yield from _values(item, way[1:])


def _meta_of(text: str, ending: str) -> object:
    if ending == ".json":
        document = msgspec.json.decode(text)  # its content was read before
        return document.get("meta") if isinstance(document, Mapping) else None
    if ending in (".md", ".txt"):
        return _front_matter(text)
    if ending in (".yaml", ".yml"):
        document = _yaml(text)
        return document.get("meta") if isinstance(document, Mapping) else None
    if ending == ".csv":
        first = text.partition("\n")[0]
        pairs = [word.partition("=") for word in first.removeprefix("# meta:").split()]
        return {name: value for name, _, value in pairs} if first.startswith("# meta:") else None
    if ending == ".py":
        return _docstring_meta(text)
    return None


def _front_matter(text: str) -> object:
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    return None if end is None else _yaml("\n".join(lines[1:end]))


def _yaml(text: str) -> object:
    """A YAML document whose scalars are text, without anchors; None where it is none."""
    if len(text) > 64_000 or any(sign in text for sign in "&*"):
        # An anchor can stand for others and so for any amount of text. Metadata have no need of it.
        return _plain_lines(text)
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return None


def _plain_lines(text: str) -> dict[str, str]:
    """`name: value` of each line that is not set in."""
    lines = [line.partition(":") for line in text.splitlines()[:200] if line[:1].isalpha()]
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


def _docstring_meta(text: str) -> object:
    """What stands under `Meta:` in a module's docstring."""
    try:
        said = ast.get_docstring(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = [line.strip() for line in (said or "").splitlines()]
    if "Meta:" not in lines:
        return None
    pairs = [line.partition(":") for line in lines[lines.index("Meta:") + 1 :]]
    return {name.strip(): value.strip() for name, colon, value in reversed(pairs) if colon}
