"""Agents that prove the machinery: one that does everything right, one that does it wrong, and two that do next to
nothing. None of them asks a model or runs a command.

The data has no solutions of its file checks. The oracle makes files that the checker's rule is content with, derived
from the check itself, and of three files by hand; it shows that every check can be met, not that its files are of use.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from turnwise.bench.metaclaw.commands import Part, RuleCheck, least_entries
from turnwise.bench.metaclaw.data import Round, Workday
from turnwise.bench.metaclaw.play import BenchAgent
from turnwise.bench.metaclaw.snippets import STAR, globs_of
from turnwise.sandbox.folder import GuestFolder

TIME = "2026-03-16T09:30:00+08:00"
META = {"created_at": TIME, "author": "metaclaw_agent", "status": "done"}
FILLERS: dict[str, str] = {
    ".md": f"---\ncreated_at: {TIME}\nauthor: metaclaw_agent\nstatus: done\n---\n\n# Made by the oracle\n",
    ".csv": f"# meta: created_at={TIME} author=metaclaw_agent status=done\nmember,tasks\nAlex,1\n",
    ".py": f'"""Made by the oracle.\n\nMeta:\n  created_at: {TIME}\n  author: metaclaw_agent\n  status: done\n"""\n',
}


@dataclass(frozen=True, slots=True)
class SelectAll:
    """Takes every option and does no work: a floor, not a skill."""

    name: str = "select-all"

    def begin(self, day: Workday, folder: GuestFolder) -> None: ...

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        return _box(asked.options), 0

    def end(self, feedback: str | None) -> None: ...


@dataclass(frozen=True, slots=True)
class DoNothing:
    """Says nothing and does no work."""

    name: str = "do-nothing"

    def begin(self, day: Workday, folder: GuestFolder) -> None: ...

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        return "", 0

    def end(self, feedback: str | None) -> None: ...


class Oracle:
    """Does everything right."""

    name = "oracle"

    def begin(self, day: Workday, folder: GuestFolder) -> None:
        self._folder, self._day = folder, day.id

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        if asked.kind == "multi_choice":
            return _box(sorted(asked.answer)), 0
        for file in files_asked_for(asked):
            self._folder.write(file, self._content(file, asked))
        for part in _rules(asked, "check_backup.py"):
            for file in _plain(part):
                before = self._folder.read(file)
                self._folder.write(f"{file}.bak", before)
                self._folder.write(file, before + b"\nChanged by the oracle.\n")
        for part in _rules(asked, "check_done_log.py"):
            self._log(
                _plain(part)[0], least_entries(part), part.options.get("--task-prefix", f"{self._day}_{asked.id}")
            )
        return "done", 0

    def end(self, feedback: str | None) -> None: ...

    def _content(self, file: str, asked: Round) -> bytes:
        ending = file[file.rfind(".") :]
        if ending != ".json":
            return FILLERS.get(ending, FILLERS[".md"]).encode()
        document: dict[str, Any] = {"meta": META, "content": "made by the oracle"}
        if self._folder.has(file):
            document = json.loads(self._folder.read(file)) | {"meta": META}
        if file in BY_HAND:
            document = BY_HAND[file](self._folder, document)
        for part in _rules(asked, "check_iso8601.py"):
            for way in (word for word in _plain(part) if word != file):
                _set(document, way.split("."))
        return json.dumps(document, indent=2).encode()

    def _log(self, file: str, least: int, prefix: str) -> None:
        before = self._folder.read(file) if self._folder.has(file) else b""
        lines = max(1, least - len(before.splitlines()))
        added = "".join(f"[DONE] {TIME} | {prefix}_{n} | made by the oracle\n" for n in range(lines))
        self._folder.write(file, before + added.encode())


class Spoiler:
    """Does everything wrong, where it is looked for: empty files of the right names, other options."""

    name = "spoiler"

    def begin(self, day: Workday, folder: GuestFolder) -> None:
        self._folder = folder

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        if asked.kind == "multi_choice":
            return _box([option for option in asked.options if option not in asked.answer]), 0
        for file in files_asked_for(asked):
            self._folder.write(file, b"{}" if file.endswith(".json") else b" \n")
        for part in (*_rules(asked, "check_backup.py"), *_rules(asked, "check_done_log.py")):
            for file in _plain(part):
                self._folder.write(f"{file}.bak", b"{}")
                self._folder.write("done.log", b"[DONE] today | nothing\n")
        return "done", 0

    def end(self, feedback: str | None) -> None: ...


def scripted_agents() -> list[BenchAgent]:
    """All of them, each fresh."""
    return [DoNothing(), SelectAll(), Oracle(), Spoiler()]


def files_asked_for(asked: Round) -> list[str]:
    """The files whose content a round's check looks at; where it asks for a pattern, one of such a name."""
    found: dict[str, None] = {}
    for part in asked.parts:
        for piece in _pieces(part):
            words = _words_in_names(piece)
            for glob in globs_of(piece):
                begins, _, ends = glob.partition(STAR)
                for n in range(_least_files(piece)):
                    found[f"{begins}{words[0] if words else 'oracle'}_{asked.id}_{n}{ends}"] = None
            found |= dict.fromkeys(_opened_by(piece))
        if isinstance(part, RuleCheck) and part.script == "check_filename.py":
            folder, ending = part.options["--dir"].rstrip("/"), part.options["--ext"]
            found[f"{folder}/20260316_oracle_{asked.id}.{ending}"] = None
        if isinstance(part, RuleCheck) and part.script in ("check_iso8601.py", "check_metadata.py"):
            found |= dict.fromkeys(word for word in part.words[:1] if isinstance(word, str))
    return list(found)


def _box(options: list[str] | tuple[str, ...]) -> str:
    return f"\\bbox{{{','.join(options)}}}"


def _rules(asked: Round, script: str) -> list[RuleCheck]:
    return [part for part in asked.parts if isinstance(part, RuleCheck) and part.script == script]


def _plain(part: RuleCheck) -> list[str]:
    return [word for word in part.words if isinstance(word, str)]


def _pieces(part: Part) -> Iterator[ast.Module]:
    if isinstance(part, ast.Module):
        yield part
    else:
        yield from (word for word in part.words if isinstance(word, ast.Module))


def _words_in_names(piece: ast.Module) -> list[str]:
    """Words that a file's name must have: the `'client'` of `'client' in f`."""
    compares = (node for node in ast.walk(piece) if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In))
    return [node.left.value for node in compares if isinstance(node.left, ast.Constant)]  # pyright: ignore


def _least_files(piece: ast.Module) -> int:
    """How many files a piece wants: the 3 of `len(files)>=3`."""
    compares = (node for node in ast.walk(piece) if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.GtE))
    numbers = [node.comparators[0].value for node in compares if isinstance(node.comparators[0], ast.Constant)]
    return max([1, *(number for number in numbers if isinstance(number, int) and number < 100)])


def _opened_by(piece: ast.Module) -> list[str]:
    calls = [node for node in ast.walk(piece) if isinstance(node, ast.Call) and ast.unparse(node.func) == "open"]
    return [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)]  # pyright: ignore


def _set(document: Any, way: list[str]) -> None:
    """Put a time at the end of a way, where there is none yet."""
    name, rest = way[0].removesuffix("[]"), way[1:]
    if not rest:
        document[name] = [TIME] if way[0].endswith("[]") else document.get(name) or TIME
    elif way[0].endswith("[]"):
        for item in document.setdefault(name, [{}]):
            _set(item, rest)
    else:
        _set(document.setdefault(name, {}), rest)


def _sprint_tasks(folder: GuestFolder, document: Any) -> Any:
    task = {
        "id": "T-405",
        "title": "Review the OAuth proposal",
        "assignee": "Bai",
        "created_at": TIME,
        "due_date": TIME,
    }
    return document | {"tasks": [*document.get("tasks", []), task]}


def _api_spec(folder: GuestFolder, document: Any) -> Any:
    spec = json.loads(folder.read("day01/api_spec_stub.json"))
    projects = spec["paths"]["/projects"]
    for parameter in projects["get"]["parameters"]:
        parameter["example"] = TIME
    example = projects["post"]["requestBody"]["content"]["application/json"]["example"]
    example["start_date"] = example["deadline"] = TIME
    return spec


def _perf_metrics(folder: GuestFolder, document: Any) -> Any:
    return document | {"sampled_at": [f"2026-03-18T{9 + n // 4:02}:{15 * (n % 4):02}:00+08:00" for n in range(8)]}


BY_HAND: dict[str, Callable[[GuestFolder, Any], Any]] = {
    "day01/sprint_tasks.json": _sprint_tasks,
    "day01/api_spec_v2.3.json": _api_spec,
    "day02/perf_metrics.json": _perf_metrics,
}
"""Files whose check is a piece of code about their content, which nothing is derived from."""
